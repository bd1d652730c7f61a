"""Which day a run is for, and which days it leaves out: the policy after trouble.

After an outage only the newest slot runs. A run that finds a newer slot of its deployment due, or a
newer day on the release branch, ends in the state `Skipped`. The day is never taken from a clock.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID
from zoneinfo import ZoneInfo

from prefect.client.orchestration import get_client
from prefect.client.schemas import filters
from prefect.client.schemas.objects import StateType
from prefect.runtime import deployment, flow_run
from prefect.types import DateTime

from pipeline.core.errors import AdaCalibError
from pipeline.formats.days import day_name, day_number
from pipeline.params.params_file import read_params

# Days of a gap that a sentence names one by one.
NAMED_DAYS = 14
# How a slot may end that leaves its work to another.
WITHOUT_RESULT = (
    StateType.FAILED, StateType.CRASHED, StateType.CANCELLED, StateType.CANCELLING,
)  # fmt: skip


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


def days_of(first: str, last: str) -> list[str]:
    """Every day from the first to the last, both included, the oldest first.

    Raises:
        AdaCalibError: a day is misspelled, or the last lies before the first.
    """
    begin, end = day_number(first), day_number(last)
    if end < begin:
        raise AdaCalibError(f"the range {first}..{last} ends before it begins; swap the days")
    return [day_name(number) for number in range(begin, end + 1)]


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
    due = filters.FlowRunFilterExpectedStartTime(after_=mine, before_=now)
    own = filters.DeploymentFilterId(any_=[UUID(str(deployment.id))])
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(
            deployment_filter=filters.DeploymentFilter(id=own),
            flow_run_filter=filters.FlowRunFilter(expected_start_time=due),
        )
    stand = [run for run in runs if run.state and run.state.type not in WITHOUT_RESULT]
    slots = [run.expected_start_time for run in stand if run.auto_scheduled]
    days = {day_before(slot, time_zone) for slot in slots if slot}
    return sorted(day for day in days if day > day_before(mine, time_zone))
