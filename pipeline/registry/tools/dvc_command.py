"""The dvc command: it waits for another one in the folder; a failure is told in one sentence."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from pipeline.core.errors import ToolError
from pipeline.registry.tools.programs import Finished, beside_python, run_leashed

RWLOCK = Path(".dvc/tmp/rwlock")
PATIENCE = 600.0  # seconds to wait for another dvc in the same folder


def dvc(
    folder: Path,
    *arguments: str,
    tell: Callable[[str], None] | None = None,
    patience: float = PATIENCE,
) -> Finished:
    """Run dvc; where another dvc works in the folder, wait for it, and say once for whom.

    Raises:
        ToolError: dvc is missing, or the other one still holds the folder after `patience` seconds.
    """
    command, give_up = [beside_python("dvc"), *arguments], time.monotonic() + patience
    waiting = False
    while True:
        finished = run_leashed(command, folder, tell)
        holder = _holder(finished)
        if holder is None:
            return finished
        if _forgot_the_dead(folder):
            continue
        if time.monotonic() > give_up:
            raise ToolError(
                f"{holder} has held {folder.resolve()} for more than {patience:.0f} s; try again "
                "when it has ended"
            )
        if tell and not waiting:
            tell(f"waiting for {holder}")
        waiting = True
        time.sleep(min(1.0, patience))


def _holder(finished: Finished) -> str | None:
    """The other dvc that made this one give up, None if none did."""
    said = finished.output + finished.errors
    busy = "is busy, it is being blocked by" in said or "Unable to acquire lock" in said
    if not finished.code or not busy:
        return None
    named = re.search(r"\(PID (\d+)\): (.+)", said)
    return f"process {named[1]} ({named[2]})" if named else "another dvc"


def _forgot_the_dead(folder: Path) -> bool:
    """Whether DVC's lock file was removed, because every process in it is gone.

    DVC itself forgets a process whose number is free. After a restart of the machine or container
    the number may belong to another program, and DVC would wait for that one for ever.
    """
    holders = _holders(folder)
    if not holders or any(_is_dvc(pid) for pid in holders):
        return False
    (folder / RWLOCK).unlink(missing_ok=True)
    return True


def _holders(folder: Path) -> list[int]:
    """The processes that DVC's lock file of a folder names."""
    try:
        lock = json.loads((folder / RWLOCK).read_text())
    except (OSError, ValueError):
        return []
    readers = [holder for holders in lock.get("read", {}).values() for holder in holders]
    return [holder["pid"] for holder in [*lock.get("write", {}).values(), *readers]]


def refuse_busy(folder: Path) -> None:
    """Refuse a folder in which a dvc is at work.

    Raises:
        ToolError: one is.
    """
    holder = next((pid for pid in _holders(folder) if _is_dvc(pid)), None)
    if holder:
        raise ToolError(f"process {holder}, a dvc, is at work in {folder}; run again when it ended")


def _is_dvc(pid: int) -> bool:
    try:
        return any("dvc" in word for word in psutil.Process(pid).cmdline())
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True


def failure(action: str, finished: Finished) -> ToolError:
    """An error with what dvc said last, its own advertisements left out."""
    said = finished.errors or finished.output
    lines = [line for line in said.splitlines() if line and "dvc.org/support" not in line]
    errors = [line for line in lines if line.startswith("ERROR: ")] or lines
    reason = " ".join(" ".join(errors).replace("ERROR: ", "").split())
    return ToolError(f"{action} failed: {reason[:500] or f'exit code {finished.code}'}")
