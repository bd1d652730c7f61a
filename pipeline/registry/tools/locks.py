"""A lock that one process of a machine holds; the system frees it however the process ends."""

import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pipeline.core.errors import ToolError
from pipeline.registry.tools.programs import git_folder


def run_lock(folder: Path, branch: str) -> Path:
    """The lock of a clone's runs that work on a branch, each in the branch's own worktree.

    Raises:
        ToolError: the folder is in no git repository.
    """
    return git_folder(folder) / f"adacalib-{branch}.lock"


@contextmanager
def hold(
    path: Path,
    purpose: str,
    place: str,
    patience: float = 0.0,
    tell: Callable[[str], None] = print,
) -> Iterator[None]:
    """Hold the lock at `path` while the block runs.

    Args:
        path: of the lock's file. Only who holds it may remove it: others then try again.
        purpose: what whoever waits for this process is told.
        place: what is locked, in words.
        patience: seconds to wait for another process.
        tell: called once with the sentence that says for whom this process waits.

    Raises:
        ToolError: another process holds it; the sentence says which.
    """
    give_up, waiting = time.monotonic() + patience, False
    with path.open("a+") as file:
        while not _taken(file, path):
            file.seek(0)
            holder = file.read().strip() or "another process"
            if time.monotonic() >= give_up:
                raise ToolError(f"{holder} is at work in {place}; run again when it is done")
            if not waiting:
                tell(f"waiting for {holder}")
            waiting = True
            time.sleep(0.5)
        file.truncate(0)
        file.write(f"{purpose} (process {os.getpid()} on {socket.gethostname()})\n")
        file.flush()
        yield


def _taken(file: IO[str], path: Path) -> bool:
    """Whether this process holds the lock now; a file that was removed meanwhile is none."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except (BlockingIOError, FileNotFoundError):
        return False
