"""Days of the past, the oldest first, in a worktree of their own: reports, and no promotion.

    python -m flows.backfill --first YYYY-MM-DD --last YYYY-MM-DD [--folder DIR]

Each day becomes a commit of the branch `backfill`. A run that was killed goes on where it was: days
that were made with the same committed code and parameters are not made again. Nothing here touches
the release branch, its worktree or production.
"""

from pathlib import Path
from typing import Annotated

import typer
from prefect import flow
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.states import Completed

from flows.arrival import NotLandedError, bring, days_of
from flows.stages import run_stages
from flows.states import command_line, failing_in_one_sentence
from flows.worktree import (
    BACKFILL,
    commit_day,
    committed_days,
    git_output,
    release_worktree,
    take_code,
)
from pipeline.core.errors import AdaCalibError, ToolError
from pipeline.core.files import read_json
from pipeline.params.params_file import set_values
from pipeline.registry.pull import fetch_champion


@flow(
    name="backfill",
    flow_run_name="backfill {first}..{last}",
    persist_result=False,
)
@failing_in_one_sentence
def backfill(
    first: Annotated[str, typer.Option()],
    last: Annotated[str, typer.Option()],
    folder: str = ".",
    source: str | None = None,
    mapping: str | None = None,
) -> State:
    """Make the reports of a range of days, the oldest first.

    Args:
        first: the oldest day, YYYY-MM-DD.
        last: the newest day.
        folder: the checkout; the work is done in its backfill worktree.
        source: the files in which a day arrives; see refresh.
        mapping: how those files are read; see refresh.

    The final state is `Backfilled`, with the verdict of every day, or `Failed` at the first day
    that fails.
    """
    days, checkout, log = days_of(first, last), Path(folder), get_run_logger().info
    purpose = f"backfill of {first}..{last}"
    with release_worktree(checkout, purpose, report=log, branch=BACKFILL) as worktree:
        head = git_output(checkout, "rev-parse", "HEAD")
        made = committed_days(worktree, f"{head}..HEAD")
        lines = []
        for day in days:
            if day in made:
                lines.append(f"{day}: made before")
                continue
            lines.append(f"{day}: {_make(day, worktree, checkout, source, mapping)}")
            log(lines[-1])
    return Completed(name="Backfilled", message="\n".join([f"{len(days)} days", *lines]))


def _make(day: str, worktree: Path, checkout: Path, source: str | None, mapping: str | None) -> str:
    """The verdict of a day.

    Raises:
        AdaCalibError: the day has not landed, or a stage failed; the sentence names the day.
    """
    try:
        take_code(checkout, worktree)
        bring(day, worktree, checkout, source, mapping)
        set_values(worktree / "params.yaml", {"split.last_day": day})
        fetch_champion(worktree)  # the one that is committed: days of the past move no pin
        for _ in run_stages(worktree):
            pass
        commit_day(worktree, day)
    except AdaCalibError as error:
        step = "; land it, or leave it out" if isinstance(error, NotLandedError) else ""
        raise ToolError(f"backfill stopped at {day}: {error}{step}") from None
    gate = read_json(worktree / "reports/gate.json")
    return "passed" if gate["passed"] else f"refused: {'; '.join(gate['reasons'])}"


if __name__ == "__main__":
    command_line(backfill)
