"""Rows that come in any order become one whole Parquet file a day, in bounded memory."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.errors import DataError
from pipeline.core.files import sha256_of
from pipeline.data.log_store.day_rows import rows_by_day
from pipeline.data.log_store.engine import engine, name, text
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
REPEATED = """
SELECT count(*) > count(DISTINCT hash({id})) FROM read_parquet([{files}]) WHERE {id} IS NOT NULL
"""
ALL = "SELECT r, place AS source FROM given"
ONCE = """
, again AS (
    SELECT row, min(row) OVER (PARTITION BY id) AS first,
        row_number() OVER (PARTITION BY id ORDER BY place DESC, row) AS nth
    FROM given WHERE id IS NOT NULL QUALIFY count(*) OVER (PARTITION BY id) > 1
)
SELECT r, place AS source FROM given LEFT JOIN again USING (row)
WHERE coalesce(nth, 1) = 1 ORDER BY coalesce(first, row)
"""


class PartWriter:
    """What writes the one file of a day; equal rows, equal bytes (one pyarrow).

    Row groups have `block_rows` rows however the rows were cut when they came.

    Attributes:
        path: of the file.
        block: rows of a row group.
        waiting_bytes: of rows that are not yet written.
        is_cut: whether rows were written before they were a whole block.
        dropped: rule → rows that it left out.
        sources: name and sha256 of a file → rows that are from it, in their order.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path, self._schema, self.block = path, schema, block_rows(schema)
        self._writer: pq.ParquetWriter | None = None
        self._digest = ContentDigest()
        self._waiting: list[pa.Table] = []
        self._waiting_rows = self.waiting_bytes = 0
        self.is_cut = False
        self.dropped: Counter[str] = Counter()
        self.sources: Counter[tuple[str, str]] = Counter()

    def add(self, table: pa.Table) -> None:
        """Add rows."""
        self._waiting.append(table)
        self._waiting_rows += len(table)
        self.waiting_bytes += table.nbytes
        if self._waiting_rows >= self.block:
            rows = self._take()
            whole = len(rows) // self.block * self.block
            for start in range(0, whole, self.block):
                self._write(rows.slice(start, self.block))
            if whole < len(rows):
                self.add(rows.slice(whole).combine_chunks())

    def spill(self) -> None:
        """Write the rows that wait; `rewritten` makes whole blocks of them."""
        self._write(self._take())
        self.is_cut = True

    def entry(self) -> DayEntry:
        """Finish the file, and what the manifest says of it, with the files that rows are from."""
        if self._waiting or self._writer is None:
            self._write(self._take())
        assert self._writer is not None
        self._writer.close()
        return DayEntry(
            self._digest.rows,
            self._digest.hexdigest(),
            {PART: sha256_of(self.path)},
            dropped=dict(self.dropped),
            sources=tuple(SourceRows(*file, rows) for file, rows in self.sources.items()),
        )

    def _take(self) -> pa.Table:
        rows = pa.concat_tables([self._schema.empty_table(), *self._waiting])
        self._waiting, self._waiting_rows, self.waiting_bytes = [], 0, 0
        return rows

    def _write(self, table: pa.Table) -> None:
        if self._writer is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(
                self.path, self._schema, compression="zstd", store_schema=False
            )
        table = table.combine_chunks()
        self._digest.add(table)
        self._writer.write_table(table, row_group_size=self.block)


class DayFiles:
    """The rows of files of a day, one file after the other, as a relation `given` for SQL.

    Its columns are `r`, the row as a struct; `id`, that of its event; `comes`, whether it is of the
    last file; `row`, its number from 1; and those of `facts`.

    Args:
        paths: Parquet files with the columns of the schema.
        schema: of the log.
        facts: integers of every row of all files.
        event_id: the column with the ids of events; None: `id` is null.
    """

    def __init__(
        self, paths: Sequence[Path], schema: pa.Schema, facts: pa.Table, event_id: str | None
    ) -> None:
        self._paths, self._schema, self._facts = paths, schema, facts
        row = ", ".join(f"{text(column)}: {name(column)}" for column in schema.names)
        event = name(event_id) if event_id else "NULL"
        files = (
            f"SELECT {{{row}}} AS r, {event} AS id, {path == paths[-1]} AS comes "
            f"FROM read_parquet({text(str(path))}, hive_partitioning = false)"
            for path in paths
        )
        numbered = f"SELECT *, row_number() OVER () AS row FROM ({' UNION ALL '.join(files)})"
        rows = f"SELECT * FROM ({numbered}) POSITIONAL JOIN facts"
        self._given = f"WITH given AS NOT MATERIALIZED ({rows})"

    def select(self, query: str) -> Iterator[pa.RecordBatch]:
        """What a query of `given` says, some rows at a time.

        Raises:
            DataError: a file is missing or damaged.
        """
        try:
            with engine() as database:
                database.register("facts", self._facts)
                yield from database.sql(f"{self._given} {query}").to_arrow_reader(
                    block_rows(self._schema)
                )
        except duckdb.Error as error:
            said = str(error).splitlines()[0]
            raise DataError(
                f"{self._paths[0]} cannot be read: {said}; land its day with --allow-shrink"
            ) from None

    def rewritten(self, query: str, files: Sequence[SourceRows], target: Path) -> DayEntry:
        """Put the rows of a query into the file `target`, and return their entry.

        Args:
            query: its columns are `r`, and `source`, a position among the files that are known.
            files: those files.
            target: one of the paths, or another one.
        """
        writer = PartWriter(target.with_suffix(".new"), self._schema)
        runs: list[SourceRows] = []
        for batch in self.select(query):
            rows = pa.RecordBatch.from_struct_array(batch.column("r"))
            writer.add(pa.Table.from_batches([rows]).cast(self._schema))
            places = batch.column("source").to_numpy()
            starts = np.flatnonzero(np.diff(places, prepend=-1))
            counts = np.diff(starts, append=len(places)).tolist()
            for place, count in zip(places[starts], counts, strict=True):
                again = bool(runs) and replace(runs[-1], rows=0) == replace(files[place], rows=0)
                before = runs.pop().rows if again else 0
                runs.append(replace(files[place], rows=before + count))
        entry = writer.entry()
        writer.path.replace(target)
        return replace(entry, sources=tuple(runs) if any(run.file for run in runs) else ())


def _may_repeat(paths: Sequence[Path], event_id: str) -> bool:
    """Whether an event is there twice, or two have ids with the same hash."""
    files = ", ".join(text(str(path)) for path in paths)
    with engine() as database:
        (found,) = database.execute(REPEATED.format(id=name(event_id), files=files)).fetchall()
        return found[0]


@dataclass(frozen=True)
class Part:
    """Rows of a day in the order in which they came, in a file of their own.

    Attributes:
        path: of the file.
        entry: what the manifest would say of it.
        is_cut: whether its row groups are not those of equal rows elsewhere.
    """

    path: Path
    entry: DayEntry
    is_cut: bool


def whole(parts: Sequence[Part], schema: pa.Schema, event_id: str | None) -> tuple[Path, DayEntry]:
    """The one file of a day, and its entry: the rows of its parts, one after the other; equal rows,
    equal bytes.

    Args:
        parts: of the day; their files stay as they are.
        schema: of the log.
        event_id: the column with the ids of events; of rows with the same id that of the last file
            stays, and there the first, in the place of all; the others are dropped and counted. A
            row without an id is an event of its own. None: every row is one.
    """
    dropped = sum((Counter(part.entry.dropped) for part in parts), Counter[str]())
    held = [part for part in parts if part.entry.rows] or parts[:1]
    paths, entry, target = [part.path for part in held], held[0].entry, held[0].path
    again = event_id is not None and _may_repeat(paths, event_id)
    if again or len(held) > 1 or held[0].is_cut:  # into a file of its own: it may be begun again
        target = Path(mkdtemp(dir=target.parent)) / PART
        sources = [source for part in held for source in part.entry.sources]
        rows = DayFiles(paths, schema, pa.table({"place": places_of(sources)}), event_id)
        entry = rows.rewritten(ONCE if again else ALL, sources, target)
        before = sum(part.entry.rows for part in held)
        dropped += Counter({f"{event_id} came before": before - entry.rows})
    known = entry.sources if any(source.file for source in entry.sources) else ()
    return target, replace(entry, dropped=dict(dropped), sources=known)


def places_of(sources: Sequence[SourceRows]) -> np.ndarray:
    """The position of every row's source: int32 [n]."""
    return np.repeat(np.arange(len(sources), dtype=np.int32), [source.rows for source in sources])


class DayWriter:
    """The days that a reader brings, each in `folder`/day=YYYY-MM-DD, in the order rows come.

    Args:
        folder: where the days are written; not the log itself.
        schema: of every table; an attribute, too.
    """

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._folder, self.schema = folder, schema
        self._days: dict[str, PartWriter] = {}

    def add(self, table: pa.Table, numbers: np.ndarray, source: tuple[str, str] = ("", "")) -> None:
        """Add rows.

        Args:
            table: columns of the schema, [n] rows.
            numbers: int [n], the day of every row in days since 1970-01-01.
            source: name and sha256 of the file that they are from; all its rows come in a row.
        """
        table = table.select(self.schema.names)
        for day, rows in rows_by_day(table, numbers):
            part = self._part(day)
            part.add(rows)
            part.sources[source] += len(rows)
        while sum(day.waiting_bytes for day in self._days.values()) > BUDGET:
            max(self._days.values(), key=lambda day: day.waiting_bytes).spill()

    def drop(self, rule: str, numbers: np.ndarray) -> None:
        """Count rows that a rule left out; `numbers` are their days."""
        for number, count in zip(*np.unique(numbers, return_counts=True), strict=True):
            self._part(day_name(number)).dropped[rule] += int(count)

    def parts(self) -> Iterator[tuple[str, Part]]:
        """Every day in ascending order, as its rows came, one by one."""
        for day in sorted(self._days):
            part = self._days.pop(day)
            yield day, Part(part.path, part.entry(), part.is_cut)

    def _part(self, day: str) -> PartWriter:
        if day not in self._days:
            path = day_folder(self._folder, day) / PART
            self._days[day] = PartWriter(path, self.schema)
        return self._days[day]
