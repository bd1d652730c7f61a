"""Which day a run is for, and which days it leaves out: the policy after trouble.

After an outage only the newest slot runs. A run that finds a newer slot of its deployment due, or a
newer day on the release branch, ends in the state `Skipped`. The day is never taken from a clock.
"""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from uuid import UUID
from zoneinfo import ZoneInfo

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterExpectedStartTime,
)
from prefect.client.schemas.objects import State, StateType
from prefect.runtime import deployment, flow_run
from prefect.types import DateTime

from pipeline.core.errors import AdaCalibError
from pipeline.params.params_file import read_params

# Days of a gap that a sentence names one by one.
NAMED_DAYS = 14


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


def days_of(first: str, last: str) -> list[str]:
    """Every day from the first to the last, both included, the oldest first.

    Raises:
        AdaCalibError: a day is misspelled, or the last lies before the first.
    """
    begin, end = (date.fromisoformat(check_day(day)) for day in (first, last))
    if end < begin:
        raise AdaCalibError(f"the range {first}..{last} ends before it begins; swap the days")
    return [(begin + timedelta(days=n)).isoformat() for n in range((end - begin).days + 1)]


def days_between(newest: str | None, day: str) -> list[str]:
    """The days after the newest one that was refreshed and before `day`; none before the first."""
    if newest is None or day <= newest:
        return []
    return days_of(newest, day)[1:-1]


def named(days: list[str]) -> str:
    """Days in words: each by name, or their ends and number where they are many."""
    if len(days) > NAMED_DAYS:
        return f"{days[0]} to {days[-1]} ({len(days)} days)"
    return ", ".join(days)


def newer_slots(folder: Path) -> list[str]:
    """The later days for which this deployment has a slot that is due by now; none without one.

    Slots that wait, that are at work and that were completed all count: whichever it is, the run
    that asks is not the newest. A slot of the same day does not count: it would do the same work.
    """
    if deployment.id is None:
        return []
    time_zone = read_params(folder / "params.yaml").log.time_zone
    mine, now = flow_run.scheduled_start_time, DateTime.now(UTC)
    due = FlowRunFilterExpectedStartTime(after_=mine, before_=now)
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(
            deployment_filter=DeploymentFilter(
                id=DeploymentFilterId(any_=[UUID(str(deployment.id))])
            ),
            flow_run_filter=FlowRunFilter(expected_start_time=due),
        )
    slots = [run.expected_start_time for run in runs if run.auto_scheduled and _stands(run.state)]
    days = {day_before(slot, time_zone) for slot in slots if slot}
    return sorted(day for day in days if day > day_before(mine, time_zone))


def _stands(state: State | None) -> bool:
    """Whether a slot's work is done or will be; a failed, crashed or cancelled run leaves it."""
    without_result = (
        StateType.FAILED,
        StateType.CRASHED,
        StateType.CANCELLED,
        StateType.CANCELLING,
    )
    return state is not None and state.type not in without_result
