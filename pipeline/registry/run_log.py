"""The run log of a clone: what its last refresh did and why, for whoever asks in the morning.

It stands in git's own folder, so it is in no commit and no stage can depend on it. A refresh writes
it when it begins and again when it ends; without an end it was killed. Prefect has all runs.
"""

import contextlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline.core.errors import ArtifactError, ToolError
from pipeline.core.files import read_json, write_json
from pipeline.registry.tools.programs import git_folder


def run_log(folder: Path) -> Path:
    """Where the run log of a clone is, for any of its worktrees.

    Raises:
        ToolError: the folder is in no git repository.
    """
    return git_folder(folder) / "adacalib-refresh.json"


def write_run(folder: Path, **entry: Any) -> None:
    """Write what a refresh does, with the time; on a full disk it is lost, and nothing else."""
    path = run_log(folder)
    with contextlib.suppress(OSError):
        write_json(path, {"at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), **entry})


def last_refresh(folder: Path) -> str:
    """What the last refresh of this clone did and why, in a few lines."""
    try:
        last = read_json(run_log(folder))
    except (ArtifactError, ToolError):
        return "No refresh has run in this clone."
    if "state" not in last:
        return (
            f"The last refresh, of {last['day']}, began {last['at']} and has not ended: it is at "
            "work, or was killed; the next one begins where it was."
        )
    first, *more = last["sentence"].splitlines() or [""]
    lines = [f"The last refresh, of {last['day']}, ended {last['at']} as {last['state']}: {first}"]
    lines += [f"  {line}" for line in more]
    lines += [f"  {stage}: {outcome}" for stage, outcome in last.get("stages", {}).items()]
    return "\n".join(lines)
