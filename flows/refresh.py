"""The scheduled day: land → reproduce stage by stage → read the verdict → promote or report.

    python -m flows.refresh --day YYYY-MM-DD [--folder DIR] [--no-promote]

It works in the release worktree of a checkout and runs with or without a Prefect server. The
logical day is a parameter; a deployed run without one takes the day before its scheduled time.
"""

import argparse
import sys
from datetime import date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.runtime import deployment, flow_run
from prefect.states import Completed

from flows.evidence import show
from flows.promotion import put_in_production
from flows.stages import run_stages
from flows.states import failing_in_one_sentence, run_and_tell
from flows.worktree import (
    commit_day,
    newest_day,
    refuse_older_day,
    release_worktree,
    take_code,
)
from pipeline.errors import AdaCalibError, DataError, ToolError
from pipeline.files import read_json
from pipeline.params import read_params, set_values
from pipeline.release.commits import identity
from pipeline.release.pin import fetch_champion, pin_champion
from pipeline.release.programs import run_leashed


def day_before(instant: datetime, time_zone: str) -> str:
    """The last whole day in a time zone that had ended at an instant, as YYYY-MM-DD."""
    return (instant.astimezone(ZoneInfo(time_zone)).date() - timedelta(days=1)).isoformat()


def scheduled_day(folder: Path) -> str:
    """The logical day of the deployed run that asks: the day before its scheduled time.

    The scheduled time stays the same while a run waits for its turn, past midnight too.

    Raises:
        AdaCalibError: the run belongs to no deployment, so nothing scheduled it.
    """
    if deployment.id is None:
        raise AdaCalibError("no day is given and no schedule implies one; say --day YYYY-MM-DD")
    time_zone = read_params(folder / "params.yaml").log.time_zone
    return day_before(flow_run.scheduled_start_time, time_zone)


def check_day(day: str) -> str:
    """A day, if it is spelled YYYY-MM-DD and is in the calendar.

    Raises:
        AdaCalibError: it is not.
    """
    try:
        if date.fromisoformat(day).isoformat() == day:
            return day
    except ValueError:
        pass
    raise AdaCalibError(f"a day is spelled YYYY-MM-DD, got {day!r}")


@task(name="land", retries=2, retry_delay_seconds=10, cache_policy=NO_CACHE, persist_result=False)
@failing_in_one_sentence
def land(folder: str) -> State:
    """Bring the log that params.yaml of a folder names into data/; a failed transfer is retried."""
    log_format = read_params(Path(folder) / "params.yaml").log.format
    command = [sys.executable, "-m", "pipeline.cli", "data", log_format]
    finished = run_leashed(command, Path(folder), get_run_logger().info)
    last = finished.output.strip().rpartition("\n")[2]
    if finished.code:
        raise ToolError(last or f"{' '.join(command)} ended with {finished.code}")
    return Completed(name="Landed", message=last)


def require_day(folder: Path, day: str) -> None:
    """Refuse to go on without the day's rows.

    Raises:
        DataError: the log in a folder has no such day; the sentence says how far it reaches.
    """
    days = read_json(folder / "data/manifest.json")["days"]
    if day not in days:
        reach = f"{min(days)}..{max(days)}" if days else "no day"
        raise DataError(f"{day} has not landed; the log in {folder}/data holds {reach}")


@flow(
    name="refresh",
    flow_run_name=lambda: f"refresh {flow_run.parameters['day'] or 'of the day before'}",
    persist_result=False,
)
@failing_in_one_sentence
def refresh(day: str | None = None, folder: str = ".", promotion: bool = True) -> State:
    """Land a day, reproduce every stage, and promote the model or report why not.

    Args:
        day: the logical day, YYYY-MM-DD; none: the day before the run's scheduled time.
        folder: the checkout; the work is done in its release worktree.
        promotion: put the model in production if the verdict allows it.

    The final state is `Promoted`, `Passed` (promotion is off), `Refused` or `Failed`.
    """
    day = check_day(day or scheduled_day(Path(folder)))
    with release_worktree(Path(folder), f"refresh of {day}") as release:
        who = identity(release)
        take_code(Path(folder), release)
        refuse_older_day(release, day)
        landed = land(str(release), return_state=True)
        if landed.is_failed():
            raise ToolError(f"land: {landed.message}")
        require_day(release, day)
        set_values(release / "params.yaml", {"log.last_day": day})
        same_day = newest_day(release) == day  # it keeps its champion, so nothing of it is stale
        get_run_logger().info(fetch_champion(release) if same_day else pin_champion(release))
        run_stages(release)
        show(day, release)
        commit_day(release, day, who)
        gate = read_json(release / "reports/gate.json")
        if not gate["passed"]:
            reasons = "\n- ".join([f"{day} stays out of production", *gate["reasons"]])
            return Completed(name="Refused", message=reasons)
        if not promotion:
            return Completed(name="Passed", message=f"{day}: the verdict allows promotion")
        return put_in_production(release)


def main() -> None:
    """Run the command line; a failure is one sentence on stderr and exit code 1."""
    parser = argparse.ArgumentParser(prog="python -m flows.refresh", description=__doc__)
    parser.add_argument("--day", required=True, help="the logical day, YYYY-MM-DD")
    parser.add_argument("--folder", default=".", help="the checkout")
    parser.add_argument("--no-promote", action="store_true", help="report the verdict, no more")
    arguments = parser.parse_args()
    day, folder, promotion = arguments.day, arguments.folder, not arguments.no_promote
    run_and_tell("refresh", lambda: refresh(day, folder, promotion, return_state=True))


if __name__ == "__main__":
    main()
