"""The journal of a clone's refreshes: what each did and why, for whoever asks in the morning.

It stands in git's own folder, so it is in no commit and no stage can depend on it. A refresh writes
a line when it begins and another when it ends; a line without its second is a run that was killed.
"""

import contextlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline.core.errors import ToolError
from pipeline.registry.tools.programs import git_folder

FILE = "adacalib-journal.jsonl"
KEPT = 1000  # lines that stay when the journal is cut, which is when it has twice as many


def journal(folder: Path) -> Path:
    """Where the journal of a clone is, for any of its worktrees.

    Raises:
        ToolError: the folder is in no git repository.
    """
    return git_folder(folder) / FILE


def note(folder: Path, **entry: Any) -> None:
    """Append one line to the journal, with the time; a disk that is full loses the line alone."""
    path = journal(folder)
    line = json.dumps({"at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), **entry})
    with contextlib.suppress(OSError):
        before = path.read_text() if path.exists() else ""
        if before and not before.endswith("\n"):  # a writer was killed in the middle of its line
            line = f"\n{line}"
        with path.open("a") as file:
            file.write(f"{line}\n")
        if before.count("\n") > 2 * KEPT:
            shorter = path.with_suffix(f".{os.getpid()}")
            shorter.write_text("".join(path.read_text().splitlines(keepends=True)[-KEPT:]))
            shorter.replace(path)


def entries(folder: Path) -> list[dict[str, Any]]:
    """The lines of the journal, the oldest first; a line that was cut short is left out."""
    with contextlib.suppress(ToolError, FileNotFoundError):
        return [
            entry for line in journal(folder).read_text().splitlines() if (entry := _read(line))
        ]
    return []


def _read(line: str) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError:
        return None
    return entry if isinstance(entry, dict) else None


def last_refresh(folder: Path) -> str:
    """What the last refresh of this clone did and why, in a few lines."""
    found = [entry for entry in entries(folder) if entry.get("flow") == "refresh"]
    if not found:
        return "No refresh has run in this clone."
    last = found[-1]
    if "state" not in last:
        return (
            f"The last refresh, of {last['day']}, began {last['at']} and has not ended: it is at "
            "work, or was killed; the next one begins where it was."
        )
    first, *more = last["sentence"].splitlines() or [""]
    lines = [f"The last refresh, of {last['day']}, ended {last['at']} as {last['state']}: {first}"]
    lines += [f"  {line}" for line in more]
    lines += [f"  {stage}: {said}" for stage, said in last.get("stages", {}).items()]
    return "\n".join(lines)
