"""A lock that one process of a machine holds; the system frees it however the process ends."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

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
    report: Callable[[str], None] = print,
) -> Iterator[None]:
    """Hold the lock at `path` while the block runs; who does is named in a file beside it.

    Args:
        path: of the lock's file.
        purpose: what whoever waits for this process reads.
        place: what is locked, in words.
        patience: seconds to wait for another process.
        report: called once with the sentence that says for whom this process waits.

    Raises:
        ToolError: another process holds it; the sentence says which.
    """
    lock, named = FileLock(path, poll_interval=0.5), path.with_suffix(".holder")
    try:
        try:
            held = lock.acquire(timeout=0)
        except Timeout:
            if patience:
                report(f"waiting for {_holder(named)}")
            held = lock.acquire(timeout=patience)
    except Timeout:
        sentence = f"{_holder(named)} is at work in {place}; run again when it is done"
        raise ToolError(sentence) from None
    with held:
        named.write_text(f"{purpose} ({_this_process()})\n")
        try:
            yield
        finally:
            named.unlink(missing_ok=True)


def refuse_lost(path: Path) -> None:
    """Refuse to go on with what the lock at `path` protects where another process has it by now.

    So it is where somebody removed the lock's file while this process held it.

    Raises:
        ToolError: this process is not the one that is named.
    """
    holder = _holder(path.with_suffix(".holder"))
    if f"({_this_process()})" not in holder:
        raise ToolError(f"{holder} has taken {path} over, so this run publishes nothing")


def _this_process() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _holder(named: Path) -> str:
    try:
        return named.read_text().strip() or "another process"
    except FileNotFoundError:
        return "another process"
