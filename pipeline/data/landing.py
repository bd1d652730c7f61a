"""Landing: a log, or one day of it, becomes whole under its name or stays as it was."""

import fcntl
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from pipeline.data.days import day_number
from pipeline.data.manifest import (
    MANIFEST,
    PART,
    DayEntry,
    Manifest,
    day_folder,
    holds,
    read_manifest,
    write_manifest,
)
from pipeline.data.staging import DayStage, PartWriter
from pipeline.errors import DataError
from pipeline.files import publish


@dataclass(frozen=True)
class LogKind:
    """What all days of a log have in common.

    Attributes:
        format: name of the reader.
        time_zone: days begin at midnight there.
        schema: names and types of the columns, the same on every day.
        origin: what decides the rows; see `Manifest`.
    """

    format: str
    time_zone: str
    schema: pa.Schema
    origin: Mapping[str, Any]

    def manifest(self, days: Mapping[str, DayEntry]) -> Manifest:
        """The manifest of a log of this kind that holds `days`."""
        columns = {column.name: str(column.type) for column in self.schema}
        return Manifest(
            self.format, self.time_zone, dict(sorted(days.items())), columns, self.origin
        )


@contextmanager
def landing_lock(folder: Path) -> Iterator[None]:
    """Hold the right to write `folder`; a second writer waits until the first has ended.

    The lock is on the parent folder itself and is the kernel's, so no file stays behind and a
    killed writer holds nothing. What such a writer left behind is put in order first.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder.parent, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logging.getLogger(__name__).warning("another landing in %s runs; waiting", folder)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        _clear_up(folder)
        yield
    finally:
        os.close(descriptor)


def _clear_up(folder: Path) -> None:
    """Bring back a log that was moved aside and not yet replaced; remove unfinished writes."""
    for aside in folder.parent.glob(f".{folder.name}.tmp-old-*"):
        if not folder.exists():
            aside.rename(folder)
    leftovers = [*folder.parent.glob(f".{folder.name}.tmp-*"), *folder.glob(".*.tmp-*")]
    for path in [*leftovers, *folder.glob("day=*/.*.tmp-*")]:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def land_log(
    folder: Path, kind: LogKind, days: Callable[[], Iterable[tuple[str, pa.Table]]]
) -> tuple[Manifest, bool]:
    """Make `folder` hold exactly the log that `days()` yields, and return its manifest.

    The log is written beside `folder`, a day in memory at a time, and takes its name when it is
    complete. Where the manifest and every checksum already fit, nothing is done.

    Args:
        folder: the log's folder; it and all that is in it is replaced.
        kind: what the days have in common; a log of equal kind has equal rows.
        days: yields each day once and its rows; called only if the log has to be made.

    Returns:
        The manifest, and whether anything was written.

    Raises:
        DataError: `folder` holds a log that no command can bring again, or a day breaks `kind`.
    """
    with landing_lock(folder):
        standing = _standing(folder)
        if standing and standing == kind.manifest(standing.days) and holds(folder, standing):
            return standing, False
        if standing and not standing.origin:
            raise DataError(
                f"{folder} holds a log of format {standing.format} that cannot be brought again; "
                f"move it away before landing {kind.format}"
            )
        with publish(folder) as temporary:
            entries = {}
            for day, table in days():
                path = day_folder(temporary, day) / PART
                path.parent.mkdir(parents=True)
                entries[day] = _write_part(path, kind, day, table)
            manifest = kind.manifest(entries)
            write_manifest(temporary / MANIFEST, manifest)
        return manifest, True


def land_day(folder: Path, kind: LogKind, day: str, table: pa.Table) -> Manifest:
    """Make `table` the rows of `day`, in place of any that were there, and return the manifest.

    Landing the same rows again changes no byte. The day's file is replaced in one rename and the
    manifest right after it; other days are not touched. A log with a day from elsewhere can no
    longer be brought again by a command, so new rows clear its origin.

    Raises:
        DataError: `folder` holds a log of another kind, or the rows break the schema.
    """
    with landing_lock(folder):
        _refuse_other_kind(folder, kind, f"day {day}")
        with publish(day_folder(folder, day) / PART) as temporary:
            entry = _write_part(temporary, kind, day, table)
            _begin(folder, kind)
        return _enter(folder, kind, day, entry)


def land_days(
    folder: Path, kind: LogKind, fill: Callable[[DayStage], None]
) -> tuple[Manifest, dict[str, DayEntry]]:
    """Make the rows that `fill` adds to a stage the days of `folder`, in place of any of the same
    name, and return the manifest and the entries of those days.

    All days are first written whole, beside `folder` and in bounded memory; where `fill` refuses,
    the log stays as it was. Then each takes its name as in `land_day`. A day whose every row was
    dropped is not landed.

    Raises:
        DataError: `folder` holds a log of another kind, or what `fill` raises.
    """
    with landing_lock(folder):
        _refuse_other_kind(folder, kind, "what comes")
        with TemporaryDirectory(prefix=f".{folder.name}.tmp-", dir=folder.parent) as place:
            stage = DayStage(Path(place), kind.schema)
            fill(stage)
            staged = list(stage.finish())
            for day, file, entry in staged:
                if entry.rows:
                    _begin(folder, kind)
                    with publish(day_folder(folder, day) / PART) as temporary:
                        file.rename(temporary)
                    _enter(folder, kind, day, entry)
            landed = _standing(folder) or kind.manifest({})
        return landed, {day: entry for day, _, entry in staged}


def _refuse_other_kind(folder: Path, kind: LogKind, what: str) -> None:
    standing = _standing(folder)
    if standing and standing != replace(kind.manifest(standing.days), origin=standing.origin):
        raise DataError(
            f"{folder} holds a log of format {standing.format} in {standing.time_zone} with "
            f"columns {sorted(standing.columns)}; {what} is of another kind ({kind.format}, "
            f"{kind.time_zone}, {sorted(kind.schema.names)})"
        )


def _begin(folder: Path, kind: LogKind) -> None:
    """See that there is a manifest, so that a writer killed at its first day leaves a log."""
    if not (folder / MANIFEST).exists():
        write_manifest(folder / MANIFEST, kind.manifest({}))


def _enter(folder: Path, kind: LogKind, day: str, entry: DayEntry) -> Manifest:
    """Write `entry` into the manifest and remove other files of the day."""
    standing = read_manifest(folder / MANIFEST)
    days = dict(sorted({**standing.days, day: entry}.items()))
    origin = standing.origin if days == standing.days else {}
    manifest = replace(standing, days=days, origin=origin)
    write_manifest(folder / MANIFEST, manifest)
    for path in day_folder(folder, day).glob("*"):
        if path.name not in entry.files:
            path.unlink()
    return manifest


def _standing(folder: Path) -> Manifest | None:
    """The manifest of the log in `folder`; None where there is no log at all."""
    if not (folder / MANIFEST).exists():
        if any(not path.name.startswith(".") for path in folder.glob("*")):
            raise DataError(
                f"{folder} holds files and no {MANIFEST}, so they are no landed log; move them away"
            )
        return None
    return read_manifest(folder / MANIFEST)


def _write_part(path: Path, kind: LogKind, day: str, table: pa.Table) -> DayEntry:
    """Write `table` to `path` as the one file of `day`; equal rows, equal bytes (one pyarrow)."""
    day_number(day)
    for column in kind.schema:
        if column.name not in table.column_names:
            raise DataError(f"day {day} lacks the column {column.name}")
        if table.schema.field(column.name).type != column.type:
            raise DataError(
                f"column {column.name} is {table.schema.field(column.name).type} on day {day}, "
                f"the format {kind.format} declares {column.type}"
            )
    writer = PartWriter(path, kind.schema)
    writer.write(table.select(kind.schema.names).replace_schema_metadata(None))
    return writer.entry()
