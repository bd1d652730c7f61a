"""Landing: a log, or some days of it, become whole under their names or stay as they were."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from pipeline.core.columns import read_columns
from pipeline.core.errors import DataError
from pipeline.core.files import publish, scratch_folder
from pipeline.data.log_store.day_rows import REMEDY
from pipeline.data.log_store.day_writer import Part, PartWriter, whole
from pipeline.data.log_store.manifest import (
    MANIFEST,
    PART,
    DayEntry,
    Manifest,
    day_folder,
    holds,
    type_name,
    write_manifest,
)
from pipeline.data.log_store.merging import LARGEST_SHRINK, REPLACE, DayMerge
from pipeline.data.log_store.splits import labels_until, ordinary_days, with_labels
from pipeline.data.log_store.store import Staged, commit, landing_lock, standing_log
from pipeline.encoding.values import as_numbers
from pipeline.formats.days import day_number

Over: TypeAlias = Callable[..., Iterable[tuple[Any, Any]]]
"""Maps a function over items, as `pipeline.engine.day_map.map_days` does."""


def one_by_one(
    work: Callable[[Any], Any], items: Sequence[Any], *_: str
) -> Iterator[tuple[Any, Any]]:
    """Each item with what `work` makes of it, here."""
    return ((item, work(item)) for item in items)


@dataclass(frozen=True)
class LogKind:
    """What all days of a log have in common.

    Attributes:
        format: name of the reader.
        time_zone: days begin at midnight there.
        schema: names and types of the columns, the same on every day.
        origin: what decides the rows; see `Manifest`.
        reading: how the files are read; see `Manifest`.
    """

    format: str
    time_zone: str
    schema: pa.Schema
    origin: Mapping[str, Any]
    reading: Mapping[str, Any] = field(default_factory=dict)

    def manifest(self, days: Mapping[str, DayEntry]) -> Manifest:
        """The manifest of a log of this kind that holds `days`."""
        columns = {column.name: type_name(column.type) for column in self.schema}
        whole = dict(sorted(days.items()))
        return Manifest(self.format, self.time_zone, whole, columns, self.origin, self.reading)


@dataclass(frozen=True)
class LandingOptions:
    """How days land: what the log section of params.yaml says of the columns, and what is allowed.

    Attributes:
        format: of the log whose columns these are.
        event_id: column with the ids of events, each of which counts once a day; None: none.
        label: column with the responses; None: none is known.
        impressions: column with the impressions of a row; None: a row is one.
        as_of: the logical day of the landing, up to which labels are known; None: the newest
            ordinary day of what comes.
        allow_shrink: whether what comes takes the place of a day that has landed, whatever that
            loses, and is not merged with it.
        report: called with the bytes of the files that were read since the last call.

    Raises:
        DataError: `as_of` is no day.
    """

    format: str = ""
    event_id: str | None = None
    label: str | None = None
    impressions: str | None = None
    as_of: str | None = None
    allow_shrink: bool = False
    report: Callable[[int], None] = lambda _: None

    def __post_init__(self) -> None:
        if self.as_of is not None:
            day_number(self.as_of)


DEFAULTS = LandingOptions()


@dataclass(frozen=True)
class Landed:
    """What a landing of days did.

    Attributes:
        manifest: of the log as it is now.
        days: what came: day → its entry, also where no row was left to land.
        changes: a sentence on each day that was there with other rows.
    """

    manifest: Manifest
    days: dict[str, DayEntry]
    changes: list[str]


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
        DataError: `folder` holds a log that no command can bring again, or the disk takes no more.
        KeyError, pa.ArrowInvalid: a day breaks `kind`.
    """
    with landing_lock(folder):
        standing = standing_log(folder)
        if standing and standing == kind.manifest(standing.days) and holds(folder, standing):
            return standing, False
        if standing and not standing.origin:
            raise DataError(
                f"{folder} holds a log ({standing.format}) that nothing brings again; move it away"
            )
        with publish(folder) as temporary:
            manifest = kind.manifest(
                {day: _write_day(temporary, kind, day, table) for day, table in days()}
            )
            write_manifest(temporary / MANIFEST, manifest)
        return manifest, True


def land_parts(
    folder: Path,
    kind: LogKind,
    bring: Callable[[Path], Iterable[tuple[str, Part]]],
    options: LandingOptions = DEFAULTS,
    over: Over = one_by_one,
) -> Landed:
    """Add the rows of parts of days, those of a day in the order in which they come, to the days
    of `folder`, as `DayMerge` says where one has landed.

    All days are first written whole, beside `folder` and in bounded memory; where `bring` refuses,
    the log stays as it was. Then they take their names: a reader sees the previous day or the whole
    new one, also where the writer was killed. The same rows change no byte, other days are not
    touched. A day whose every row was dropped is not landed. A log with a day from elsewhere can no
    longer be brought again by a command, so new rows clear its origin.

    Args:
        folder: the log's folder.
        kind: what the days have in common.
        bring: writes parts of days into a folder that goes at the end; they are the days' names.
        options: how days land.
        over: maps a function over days.

    Raises:
        DataError: `folder` holds a log of another kind, there is no column with ids of events, what
            `bring` raises, the disk takes no more, or what `DayMerge` refuses.
    """
    schema, event_id = kind.schema, options.event_id
    if event_id is not None and event_id not in schema.names:
        raise DataError(
            f"log.event_id is {event_id}, which is no column of the log; it has {schema.names}"
        )
    with landing_lock(folder):
        _refuse_other_kind(folder, kind)
        with scratch_folder(f".{folder.name}.tmp-", folder.parent) as place:  # on the same disk
            parts: dict[str, list[Part]] = defaultdict(list)
            for day, part in bring(place):
                parts[day].append(part)
            made = over(lambda day: whole(parts[day], schema, event_id), sorted(parts), "land")
            staged = dict(made)
            manifest = replace(standing_log(folder) or kind.manifest({}), reading=kind.reading)
            days, changes = _as_they_will_be(folder, kind, manifest, staged, options)
            manifest = commit(folder, manifest, days) if days else manifest
        return Landed(manifest, {day: entry for day, (_, entry) in staged.items()}, changes)


def _as_they_will_be(
    folder: Path, kind: LogKind, standing: Manifest, staged: Staged, options: LandingOptions
) -> tuple[dict[str, tuple[Path, DayEntry]], list[str]]:
    """The days that come, with the rows of those that have landed as `DayMerge` says, and with the
    day up to which their labels are known; and the changes. A day without rows is none.

    Where only some of a day's files came, its labels are known as far as they were before.
    """
    came = {day: entry for day, (_, entry) in staged.items() if entry.rows}
    as_of = options.as_of or max(ordinary_days(came), default="")
    if as_of < min(came, default=""):
        raise DataError(
            f"no label of {min(came)}, the first day that comes, is known as of {as_of}; give the "
            "day on which its rows were written (--as-of)"
        )
    days, changes = {}, []
    for day, (file, coming) in staged.items():
        if not coming.rows:
            continue
        before, entry, until = standing.days.get(day), coming, as_of
        old = [day_folder(folder, day) / name for name in before.files] if before else []
        if before and not options.allow_shrink:
            entry = DayMerge(day, before, coming, options.event_id).write(old, file, kind.schema)
        if before and not _all_came(before, coming):
            until = labels_until(before) or as_of
        responses = _responses([file], options.label)
        same = before and before.content_sha256 == entry.content_sha256
        known = responses if same else _responses(old, options.label)
        counted = before.labels.get(labels_until(before) or "") if before else None
        if not options.allow_shrink:
            _refuse_lost_responses(day, known, responses)
        if before and None not in (known, counted) and known != counted:
            before = replace(before, labels=dict.fromkeys(before.labels))  # counts of another label
        days[day] = file, with_labels(entry, before, until, responses)
        if before and not same:
            grown = "" if None in (known, responses) else f", {known:,} -> {responses:,} responses"
            versions = " -> ".join(found.content_sha256[:8] for found in (before, entry))
            rows = f"{before.rows:,} -> {entry.rows:,} rows"
            changes.append(f"{day} has a new version: {rows}{grown} (content {versions})")
    return days, changes


def _refuse_lost_responses(day: str, before: int | None, now: int | None) -> None:
    """A few may be taken back; many are those of a file that later ones have corrected."""
    if before and now is not None and before - now > max(LARGEST_SHRINK * before, 3 * before**0.5):
        raise DataError(
            f"day {day} has {before:,} responses and would have {now:,}: where a file comes again "
            "that later ones have corrected, name all files of the day in one call, the newest "
            f"last; where the day shall lose them, {REPLACE}"
        )


def _all_came(before: DayEntry, came: DayEntry) -> bool:
    files = {name for source in came.sources for name in (source.file, source.sha256)}
    return all({source.file, source.sha256} & files for source in before.sources)


def is_other_kind(folder: Path, kind: LogKind) -> bool:
    """Whether `folder` holds a log of another kind."""
    standing = standing_log(folder)
    if standing is None:
        return False
    alike = replace(standing, origin=kind.origin, reading=kind.reading)
    return kind.manifest(standing.days) != alike


def _refuse_other_kind(folder: Path, kind: LogKind) -> None:
    standing = standing_log(folder)
    if standing and is_other_kind(folder, kind):
        there, comes = standing.columns.items(), kind.manifest({}).columns.items()
        raise DataError(
            f"{folder} holds a log of format {standing.format} in {standing.time_zone}, what comes "
            f"is of another kind ({kind.format}, {kind.time_zone}); only there is "
            f"{dict(sorted(there - comes))}, only what comes has {dict(sorted(comes - there))}; "
            f"move {folder} away, or land it in a clone of its own"
        )
    before, now = (found.reading.get("nulls", ()) for found in (standing or kind, kind))
    if standing and standing.reading and kind.reading and set(before) != set(now):
        raise DataError(
            f"{folder} was landed with the nulls {sorted(before)}, what comes has {sorted(now)}: "
            "what is null on one day would be a value on another; use the same, or move "
            f"{folder} away and land all days again"
        )


def _write_day(folder: Path, kind: LogKind, day: str, table: pa.Table) -> DayEntry:
    """Write `table` into `folder` as the one file of `day`; equal rows make equal bytes."""
    day_number(day)
    writer = PartWriter(day_folder(folder, day) / PART, kind.schema)
    writer.add(table.select(kind.schema.names).replace_schema_metadata(None))
    return writer.entry()


def _responses(files: Iterable[Path], label: str | None) -> int | None:
    """The responses in files of a day; None where no column says them, or a file is damaged."""
    if label is None:
        return None
    try:
        columns = (read_columns(file, REMEDY, [label], DataError)[label] for file in files)
        return sum(int(np.nansum(as_numbers(column))) for column in columns)
    except DataError:
        return None
