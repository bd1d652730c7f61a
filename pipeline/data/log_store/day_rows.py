"""Days of a log: where they begin in a time zone, and their rows."""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from pipeline.core.columns import read_columns
from pipeline.core.errors import DataError
from pipeline.core.files import sha256_of
from pipeline.data.log_store.manifest import MANIFEST, Manifest, day_folder, read_manifest
from pipeline.encoding.values import Column
from pipeline.formats.days import EPOCH, day_name, day_number

REMEDY = "land the day again, or remove its folder and dvc pull"


def day_boundaries(day: str, time_zone: str) -> tuple[datetime, datetime]:
    """The instants [start, end) of `day` in `time_zone`, in UTC.

    A day starts at its first midnight, or where clocks skip midnight, at the first instant after;
    so a day of a clock change has 23 or 25 hours, and the end of a day is the start of the next.

    Raises:
        DataError: the day does not exist.
    """
    first = EPOCH + timedelta(days=day_number(day))
    return _midnight(first, time_zone), _midnight(first + timedelta(days=1), time_zone)


def _midnight(day: date, time_zone: str) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(time_zone)).astimezone(UTC)


def local_days(stamps: Column, time_zone: str) -> np.ndarray:
    """The day in `time_zone` that every time stamp belongs to: int32 [n], days since 1970-01-01.

    Each instant is in exactly one day's [start, end) of `day_boundaries`.

    Args:
        stamps: [n] Arrow time stamps with a zone, without nulls.

    Raises:
        DataError: a stamp is far from any calendar.
    """
    micros = stamps.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    seconds = micros.to_numpy() // 10**6
    near = np.unique(seconds // 86400)
    candidates = np.unique(np.concatenate([near + shift for shift in (-1, 0, 1, 2)]))
    starts = [day_boundaries(day_name(day), time_zone)[0].timestamp() for day in candidates]
    return candidates[np.searchsorted(starts, seconds, side="right") - 1].astype(np.int32)


def rows_by_day(table: pa.Table, numbers: np.ndarray) -> Iterator[tuple[str, pa.Table]]:
    """The days of `table` in ascending order, each with its rows in their old order, and in memory
    of their own unless all are of one day.

    Args:
        numbers: int [n], the day of every row in days since 1970-01-01.
    """
    for day in np.unique(numbers):
        of_day = numbers == day
        yield day_name(day), table if of_day.all() else table.filter(pa.array(of_day))


def calendar_days(last_day: str, count: int, time_zone: str) -> list[str]:
    """The `count` days of `time_zone` that end with `last_day`, ascending.

    A day that the zone left out (Pacific/Apia had no 2011-12-30) is none of them.

    Raises:
        DataError: the calendar does not reach so far back, or the day does not exist.
    """
    days: list[str] = []
    number = day_number(last_day)
    while len(days) < count:
        day = day_name(number)
        start, end = day_boundaries(day, time_zone)
        if start < end:
            days.append(day)
        number -= 1
    return days[::-1]


def days_between(first: str, last: str, time_zone: str) -> list[str]:
    """The days of `time_zone` from `first` to `last`, both with it, ascending.

    Raises:
        DataError: a day does not exist.
    """
    days = calendar_days(last, max(day_number(last) - day_number(first) + 1, 0), time_zone)
    return [day for day in days if day >= first]


def read_day(
    folder: Path, day: str, columns: Sequence[str] | None = None, manifest: Manifest | None = None
) -> pa.Table:
    """The rows of `day` in the order they were landed.

    Args:
        folder: the log's folder.
        columns: those wanted, in this order; None: all.
        manifest: the log's manifest, read from `folder` where None.

    Raises:
        DataError: the day is not in the manifest, a file is missing or damaged, or a column is
            missing; file and day are named.
    """
    entry = (manifest or read_manifest(folder / MANIFEST)).entry(day)
    tables = [
        read_columns(day_folder(folder, day) / name, REMEDY, columns, DataError)
        for name in entry.files
    ]
    try:
        return pa.concat_tables(tables)
    except pa.ArrowInvalid as error:
        raise DataError(f"the files of day {day} do not fit together: {error}") from None


def refuse_changed(folder: Path, day: str, manifest: Manifest) -> None:
    """Hold the files of `day` against the manifest's checksums.

    Raises:
        DataError: a file is missing, or not the one that was landed.
    """
    for name, expected in manifest.entry(day).files.items():
        path = day_folder(folder, day) / name
        if not path.is_file():
            raise DataError(f"{path} is missing; {REMEDY}")
        if sha256_of(path) != expected:
            raise DataError(
                f"{path} is not the file that was landed: it was changed or cut short; {REMEDY}"
            )


def read_days(
    folder: Path, days: Sequence[str], columns: Sequence[str] | None = None
) -> Iterator[tuple[str, pa.Table]]:
    """Each of `days` and its rows, one day in memory at a time.

    Raises:
        DataError: as `read_day`.
    """
    manifest = read_manifest(folder / MANIFEST)
    for day in days:
        yield day, read_day(folder, day, columns, manifest)
