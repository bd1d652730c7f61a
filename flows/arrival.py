"""The day: which one a run is for, which it leaves out, and how it lands.

The policy after trouble: after an outage only the newest slot runs. A run that finds a newer slot
of its deployment due, or a newer day on the release branch, ends in the state `Skipped`. The day is
never taken from a clock. It lands from its log, or from the files in which it arrives.
"""

import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from uuid import UUID
from zoneinfo import ZoneInfo

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas import filters
from prefect.client.schemas.objects import State, StateType
from prefect.logging import get_run_logger
from prefect.runtime import deployment, flow_run
from prefect.states import Completed
from prefect.types import DateTime

from flows.states import failing_in_one_sentence
from pipeline.core.errors import AdaCalibError, ToolError
from pipeline.core.files import read_json, sha256_of
from pipeline.data.ingest.fetched import PUBLIC
from pipeline.data.ingest.mapping import read_mapping
from pipeline.data.ingest.sources import names_of, of_day
from pipeline.data.log_store.manifest import MANIFEST, day_folder
from pipeline.formats.days import day_name, day_number
from pipeline.params.params_file import read_params
from pipeline.registry.tools.dvc import restore_data
from pipeline.registry.tools.programs import follow, program_lines

CHANGED = " has a new version: "  # of the sentence on a day that has other rows now
LOOK_BACK = 14  # days before the one that is due, of which files that came or grew late are read
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


def landed_days(folder: Path) -> list[str]:
    """The days of the log in a folder, the oldest first; none where there is no log yet."""
    manifest = folder / "data/manifest.json"
    return sorted(read_json(manifest)["days"]) if manifest.exists() else []


def files_of(source: str, day: str, checkout: Path) -> list[str]:
    """The files in which a day arrives, paths or addresses.

    Args:
        source: a pattern in which `{day}` stands for YYYY-MM-DD and `{day:%Y%m%d}` for the day in
            another form, for example `/logs/{day}/*.csv.gz` or `s3://bucket/dt={day}/*.parquet`; a
            relative one is looked up in the checkout.
        day: the day.
        checkout: the checkout.

    Raises:
        AdaCalibError: the pattern does not name the day, so every day would be the same files; or
            a store does not answer.
    """
    return names_of(of_day(source, day), Path(checkout).absolute())


def files_to_land(
    source: str, day: str, checkout: Path, folder: Path, window: int = 0
) -> list[str]:
    """The files of a day, and of the days before it whose labels may still come.

    Those of a window of days before it, and of LOOK_BACK days if that is longer; what landed as it
    is, is not read again. Empty as long as the day itself has not come.
    """
    if not files_of(source, day, checkout):
        return []
    held = landed_days(folder)
    back = len(days_of(held[-1], day)) - 1 if held and held[-1] < day else 0
    first = date.fromisoformat(day) - timedelta(days=max(back, window, LOOK_BACK))
    before = [d for d in days_of(first.isoformat(), day)[:-1] if held and held[0] <= d]
    return [file for d in [*before, day] for file in files_of(source, d, checkout)]


def bring_back(folder: Path) -> tuple[str, ...]:
    """Bring back files of landed days that were overwritten in place; a sentence for each.

    Also where size and time stamp are as they were, by which DVC takes them for the same. Only
    files that were touched since the last landing are read.
    """
    manifest, sentences = folder / "data" / MANIFEST, []
    if not manifest.exists():
        return ()
    for day, entry in read_json(manifest)["days"].items():
        for name, sha256 in entry.get("files", {}).items():
            file = day_folder(manifest.parent, day) / name
            touched = file.exists() and file.stat().st_ctime > manifest.stat().st_ctime
            if touched and sha256_of(file) != sha256:
                file.unlink()
                sentences.append(f"{file} was overwritten; DVC's cache gave it again")
    if sentences:
        restore_data(folder)
    return tuple(sentences)


@task(name="land", retries=2, retry_delay_seconds=10, cache_policy=NO_CACHE, persist_result=False)
@failing_in_one_sentence
def land(
    folder: str,
    mapping: str | None = None,
    files: tuple[str, ...] = (),
    as_of: str | None = None,
) -> State:
    """Bring the log that params.yaml of a folder names into data/; a failed transfer is retried.
    The final state's message is what landed, and the days that have other rows now.

    Args:
        folder: where params.yaml and data/ are.
        mapping: how files are read; none: by the mapping that `log.format` names.
        files: the files of a log that is not fetched.
        as_of: the day up to which their labels are known.
    """
    log_format = mapping or read_params(Path(folder) / "params.yaml").log.format
    command = [sys.executable, "-m", "pipeline.cli.main", "data", log_format, *files]
    command += ["--as-of", as_of] if as_of else []
    command += _size(Path(folder) / "data" / MANIFEST) if log_format == "simulated" else []
    finished = follow(program_lines(command, Path(folder)), get_run_logger().info)
    lines = finished.output.strip().split("\n")
    last = lines[-1].removeprefix("adacalib: ")
    if finished.code:
        raise ToolError(last or f"{' '.join(command)} ended with {finished.code}")
    changes = [line for line in lines if CHANGED in line]
    return Completed(name="Landed", message="\n".join(changes) or last)


def _size(manifest: Path) -> list[str]:
    """The options by which a simulated log is made again as it landed; none where none did."""
    held = read_json(manifest) if manifest.exists() else {}
    sizes = held.get("origin", {}).items() if held.get("format") == "simulated" else ()
    return [f"--{name.replace('_', '-')}={n}" for name, n in sizes if name != "generator"]


def _refuse_other_log(comes: str, release: Path) -> None:
    held = read_params(release / "params.yaml").log.format
    if comes != held:
        raise AdaCalibError(
            f"the mapping is of the log {comes}, log.format of params.yaml is {held} as it was "
            "committed, and a refresh runs what is committed: git add params.yaml data.dvc, git "
            "commit, and call it again"
        )


class NotLandedError(AdaCalibError):
    """A day could not be had yet; the sentence says why."""


def bring(
    day: str, release: Path, checkout: Path, source: str | None, mapping: str | None
) -> tuple[str, ...]:
    """Land a day, and what has come since of the days before it; a sentence for each earlier day
    that grew or shrank, or was overwritten.

    Args:
        day: the day.
        release: the worktree in which it lands.
        checkout: where a relative source or mapping is looked up.
        source: the pattern of its files; none: the log is fetched.
        mapping: see `land`.

    Raises:
        NotLandedError: it has not come.
        AdaCalibError: what came was refused; the sentence is the reader's. Or it is of another log
            than the params.yaml that is committed.
    """
    restored = bring_back(release)
    files: list[str] = []
    if source is not None:
        window = read_params(release / "params.yaml").log.maturity_days
        files = files_to_land(source, day, checkout, release, window)
        if not files and day not in landed_days(release):
            raise NotLandedError(f"{day} has not landed: there is no file {of_day(source, day)}")
    changes: tuple[str, ...] = ()
    if source is None or files:
        if mapping and (checkout / mapping).is_file():
            mapping = str((checkout / mapping).absolute())
            _refuse_other_log(read_mapping(mapping).format, release)
        # What is here is refused the same again; a transfer may get through.
        fetched = (mapping or read_params(release / "params.yaml").log.format) in PUBLIC
        bring_in = land if fetched else land.with_options(retries=0)
        as_of = day if source else None
        landed = bring_in(str(release), mapping, tuple(files), as_of, return_state=True)
        if landed.is_failed():
            raise ToolError(f"land: {landed.message}")
        changes = tuple(line for line in (landed.message or "").split("\n") if CHANGED in line)
    days = landed_days(release)
    if day not in days:
        reach = f"{days[0]}..{days[-1]}" if days else "no day"
        raise NotLandedError(f"{day} has not landed; the log in {release}/data holds {reach}")
    return restored + changes
