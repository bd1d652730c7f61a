"""Rows that come in any order become one whole Parquet file a day, in bounded memory."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

from pipeline.core.errors import DataError
from pipeline.core.files import sha256_of
from pipeline.data.log_store.deduplication import EventIds
from pipeline.data.log_store.manifest import (
    PART,
    ContentDigest,
    DayEntry,
    SourceRows,
    block_rows,
    day_folder,
)
from pipeline.formats.days import day_name

BUDGET = 192 << 20  # bytes of rows that wait in memory, over all days; more go to the disk


class PartWriter:
    """A context that writes the one file of a day; equal rows, equal bytes (one pyarrow).

    Row groups have `block_rows` rows however the rows were cut when they came.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path, self._schema = path, schema
        self._writer: pq.ParquetWriter | None = None
        self._digest = ContentDigest()

    def write(self, table: pa.Table) -> None:
        """Add `table`; only the last one may have another number of rows than whole blocks."""
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(
                self._path, self._schema, compression="zstd", store_schema=False
            )
        table = table.combine_chunks()
        self._digest.add(table)
        self._writer.write_table(table, row_group_size=block_rows(self._schema))

    def entry(self) -> DayEntry:
        """Finish the file, and what the manifest says of it."""
        if self._writer is None:
            self.write(self._schema.empty_table())
        assert self._writer is not None
        self._writer.close()
        return DayEntry(self._digest.rows, self._digest.hexdigest(), {PART: sha256_of(self._path)})


class _Day:
    """A day whose rows are still coming: a file with whole blocks, and fewer rows that wait."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self.folder, self.writer = folder, PartWriter(folder / PART, schema)
        self.ids = EventIds(folder / ".event-ids")
        self._schema, self._block = schema, block_rows(schema)
        self.waiting: list[pa.Table | Path] = []
        self.waiting_rows = self.waiting_bytes = 0
        self.dropped: Counter[str] = Counter()
        self.sources: Counter[tuple[str, str]] = Counter()
        self._spilled = 0

    def add(self, table: pa.Table) -> None:
        self.waiting.append(table)
        self.waiting_rows += len(table)
        self.waiting_bytes += table.nbytes
        if self.waiting_rows >= self._block:
            rows = self._take()
            whole = len(rows) // self._block * self._block
            for start in range(0, whole, self._block):
                self.writer.write(rows.slice(start, self._block))
            if whole < len(rows):
                self.add(rows.slice(whole).combine_chunks())

    def spill(self) -> None:
        """Move the rows that wait to the disk."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f".waiting-{self._spilled}.arrow"
        self._spilled += 1
        rows = self.waiting_rows
        table = self._take()
        with ipc.new_file(path, table.schema) as file:
            file.write_table(table)
        self.waiting, self.waiting_rows = [path], rows

    def finish(self) -> DayEntry:
        if self.waiting:
            self.writer.write(self._take())
        entry = self.writer.entry()
        sources = tuple(SourceRows(*file, rows) for file, rows in self.sources.items() if file[0])
        return replace(entry, dropped=dict(self.dropped), sources=sources)

    def finish_once(self, event_id: str) -> DayEntry:
        """As `finish`, of every event the first row alone."""
        entry = self.finish()
        again = self.ids.came_before() if entry.rows else np.zeros(0, bool)
        if not again.any():
            return entry
        once = _Day(self.folder / ".once", self._schema)
        places = np.repeat(np.arange(len(self.sources)), list(self.sources.values()))
        kept = np.bincount(places[~again], minlength=len(self.sources)).tolist()
        once.sources = Counter(dict(zip(self.sources, kept, strict=True)))
        start = 0
        with pq.ParquetFile(self.folder / PART) as file:
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group).cast(self._schema)
                once.add(rows.filter(pa.array(~again[start : start + len(rows)])))
                start += len(rows)
        once.dropped = self.dropped + Counter({f"{event_id} came before": int(again.sum())})
        entry = once.finish()
        (once.folder / PART).replace(self.folder / PART)
        return entry

    def _take(self) -> pa.Table:
        tables = [_unspilled(rows) if isinstance(rows, Path) else rows for rows in self.waiting]
        self.waiting, self.waiting_rows, self.waiting_bytes = [], 0, 0
        return pa.concat_tables(tables)


class DayWriter:
    """The days that a reader brings, each in `folder`/day=YYYY-MM-DD, in the order rows come.

    Args:
        folder: where the days are written; not the log itself.
        schema: of every table.
        event_id: the column with the ids of events; of rows of a day with the same id the first
            stays, the others are dropped and counted. A row without an id is an event of its own.
            None: every row is one.

    Raises:
        DataError: there is no such column.
    """

    def __init__(self, folder: Path, schema: pa.Schema, event_id: str | None = None) -> None:
        if event_id is not None and event_id not in schema.names:
            raise DataError(
                f"log.event_id is {event_id}, which is no column of the log; it has {schema.names}"
            )
        self._folder, self._schema, self._event_id = folder, schema, event_id
        self._days: dict[int, _Day] = {}

    def add(self, table: pa.Table, numbers: np.ndarray, source: tuple[str, str] = ("", "")) -> None:
        """Add rows.

        Args:
            table: columns of the schema, [n] rows.
            numbers: int [n], the day of every row in days since 1970-01-01.
            source: name and sha256 of the file that they are from; all its rows come in a row.
        """
        table = table.select(self._schema.names)
        for number, rows in _by_day(table, numbers):
            self._day(number).add(rows)
            self._day(number).sources[source] += len(rows)
            if self._event_id is not None:
                self._day(number).ids.add(rows[self._event_id])
        while sum(day.waiting_bytes for day in self._days.values()) > BUDGET:
            max(self._days.values(), key=lambda day: day.waiting_bytes).spill()

    def drop(self, rule: str, numbers: np.ndarray) -> None:
        """Count rows that a rule left out; `numbers` are their days."""
        for number, count in zip(*np.unique(numbers, return_counts=True), strict=True):
            self._day(int(number)).dropped[rule] += int(count)

    @property
    def numbers(self) -> set[int]:
        """The days that there are, as days since 1970-01-01."""
        return set(self._days)

    def finish(self) -> Iterator[tuple[str, Path, DayEntry]]:
        """Every day with rows in ascending order, its file and its entry, one by one."""
        for number in sorted(self._days):
            day = self._days.pop(number)
            entry = day.finish_once(self._event_id) if self._event_id else day.finish()
            yield day_name(number), day.folder / PART, entry

    def _day(self, number: int) -> _Day:
        if number not in self._days:
            self._days[number] = _Day(day_folder(self._folder, day_name(number)), self._schema)
        return self._days[number]


def _by_day(table: pa.Table, numbers: np.ndarray) -> Iterator[tuple[int, pa.Table]]:
    """Each day's rows, in memory of their own unless all are of one day."""
    days = np.unique(numbers)
    if len(days) == 1:
        yield int(days[0]), table
        return
    for day in days:
        yield int(day), table.take(pa.array(np.flatnonzero(numbers == day)))


def _unspilled(path: Path) -> pa.Table:
    """The rows of a spilled file, which goes."""
    with pa.OSFile(str(path)) as file:
        table = ipc.open_file(file).read_all()
    path.unlink()
    return table
