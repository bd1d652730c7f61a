"""Landing a day: from its log, or from the files in which it arrives; and waiting for it."""

import glob
import sys
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.logging import get_run_logger
from prefect.states import Completed

from flows.schedule_slots import days_of
from flows.states import failing_in_one_sentence
from pipeline.core.errors import AdaCalibError, ToolError
from pipeline.core.files import read_json, sha256_of
from pipeline.data.log_store.manifest import MANIFEST, day_folder
from pipeline.params.params_file import read_params
from pipeline.registry.tools.dvc import restore_data
from pipeline.registry.tools.programs import run_program

DAY = "{day}"
CHANGED = " has a new version: "  # of the sentence on a day that has other rows now
LOOK_BACK = 14  # days before the one that is due, of which files that came or grew late are read


def landed_days(folder: Path) -> list[str]:
    """The days of the log in a folder, the oldest first; none where there is no log yet."""
    manifest = folder / "data/manifest.json"
    return sorted(read_json(manifest)["days"]) if manifest.exists() else []


def files_of(source: str, day: str, checkout: Path) -> list[str]:
    """The files in which a day arrives.

    Args:
        source: a pattern of paths in which `{day}` stands for YYYY-MM-DD, for example
            `/logs/{day}/*.csv.gz`; a relative one is looked up in the checkout.
        day: the day.
        checkout: the checkout.

    Raises:
        AdaCalibError: the pattern does not name the day, so every day would be the same files.
    """
    if DAY not in source:
        raise AdaCalibError(f"source {source!r} does not name the day; write {DAY} where it stands")
    pattern = Path(glob.escape(str(Path(checkout).absolute()))) / source.replace(DAY, day)
    return sorted(glob.glob(str(pattern)))


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
    finished = run_program(command, Path(folder), get_run_logger().info)
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


@dataclass(frozen=True)
class Brought:
    """What came of bringing a day.

    Attributes:
        missing: why it could not be had yet; empty where it is there.
        changes: sentences on earlier days that grew or shrank, or were overwritten.
    """

    missing: str
    changes: tuple[str, ...] = ()


def bring(
    day: str, release: Path, checkout: Path, source: str | None, mapping: str | None
) -> Brought:
    """Land a day, and what has come since of the days before it.

    Args:
        day: the day.
        release: the worktree in which it lands.
        checkout: where a relative source or mapping is looked up.
        source: the pattern of its files; none: the log is fetched.
        mapping: see `land`.

    Raises:
        ToolError: what came was refused; the sentence is the reader's.
    """
    restored = bring_back(release)
    files: list[str] = []
    if source is not None:
        window = read_params(release / "params.yaml").log.maturity_days
        files = files_to_land(source, day, checkout, release, window)
        if not files and day not in landed_days(release):
            return Brought(f"{day} has not landed: there is no file {source.replace(DAY, day)}")
    changes: tuple[str, ...] = ()
    if source is None or files:
        if mapping and (checkout / mapping).is_file():
            mapping = str((checkout / mapping).absolute())
        # Files that are here are refused the same again; a transfer may get through.
        bring_in = land.with_options(retries=0) if source else land
        as_of = day if source else None
        landed = bring_in(str(release), mapping, tuple(files), as_of, return_state=True)
        if landed.is_failed():
            raise ToolError(f"land: {landed.message}")
        changes = tuple(line for line in (landed.message or "").split("\n") if CHANGED in line)
    days = landed_days(release)
    if day in days:
        return Brought("", restored + changes)
    reach = f"{days[0]}..{days[-1]}" if days else "no day"
    return Brought(f"{day} has not landed; the log in {release}/data holds {reach}")
