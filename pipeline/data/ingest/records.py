"""Files of a log as blocks of rows: DuckDB reads them as the mapping says, never by a guess."""

import json
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from glob import escape
from pathlib import Path
from typing import TypeVar

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.errors import DataError
from pipeline.core.work import prefetched
from pipeline.data.ingest import text_files
from pipeline.data.ingest.mapping import Mapping
from pipeline.data.log_store.engine import engine, name, refuse_no_select, shut, text

Item = TypeVar("Item")
Report = Callable[[int], None]

ROWS = 1 << 16  # of a block
AHEAD = 4  # blocks that are read while days are written, which comes in bursts
NO_NULL = "\x1e\x1f\x1e"  # that no cell is: which texts are null the mapping alone says
WHOLE = (  # a cell of JSON as text; 7.0 is 7 and NaN null, as in Parquet
    "CASE WHEN json_type({0}) = 'DOUBLE' AND isnan({0}::DOUBLE) THEN NULL "
    "WHEN json_type({0}) IN ('OBJECT', 'ARRAY') THEN error({1}) "
    "WHEN json_type({0}) = 'DOUBLE' AND {0}::DOUBLE % 1 = 0 AND abs({0}::DOUBLE) < 2 ** 53 "
    "THEN {0}::DOUBLE::BIGINT::VARCHAR ELSE {0}->>'$' END AS {0}"
)
NESTED = "holds a record or a list; select of the mapping reaches what is in it"
ALONE = re.compile("\r(?!\n)")  # a carriage return that ends no line
UNCLOSED = (
    "this record cannot be read and goes on over a line break, so a quote may hide good lines, "
    "which max_rejected would leave out uncounted; mend the line"
)
STEP = "double a quote inside a value, name what escapes it (escape), or let quote be null"
FAULTS = {  # what the engine says of a record, and what is told of it and of its line
    r"Expected Number of Columns: (\d+) Found: (\d+)": r"Expected \1 columns, got \2: {}; mend the "
    "line, or delimiter and quote in the mapping",
    "Maximum line size": "64 MB from here on are one record, as where a quote opens a value and "
    f"none closes it: {{}}; end the line sooner, or {STEP}",
    "unterminated quote": "a quote opens a value here and none closes it, or the value goes on "
    f"after its closing quote: {{}}; {STEP}",
    "Invalid unicode": "it is not UTF-8; say the file's encoding in the mapping, as encoding: "
    "latin-1",
}
SEVERAL = (
    "SELECT min(line) FROM reject_errors "
    "WHERE contains(trim(csv_line, chr(13) || chr(10)), chr(10))"
)
REJECTED = "SELECT DISTINCT line FROM reject_errors ORDER BY line"


def too_many(rejected: int, mapping: Mapping) -> str:
    """How many records cannot be read, as the end of a sentence; empty where none may be."""
    most = mapping.max_rejected
    return f"; so {rejected:,} cannot be read, max_rejected allows {most:,}" if most else ""


class LogFile:
    """A file of CSV, of one JSON object a line, or of Parquet.

    Args:
        path: of the file.
        mapping: says how it is written.

    Attributes:
        row: how many of its rows were worked on so far.
        rejected: how many records could not be read so far, where the mapping allows some.

    Raises:
        DataError: the file is missing, or is not of the mapping's kind.
    """

    def __init__(self, path: Path, mapping: Mapping) -> None:
        self.path, self._mapping = path, mapping
        self.row = self.rejected = self._read = 0  # bytes
        self._unparted: list[int] = []  # records, from 1, with header and empty lines
        with text_files.reading(path), path.open():
            self._size = path.stat().st_size
        if mapping.kind != "parquet":
            text_files.refuse_no_text(path, mapping.encoding)

    def worked(
        self, work: Callable[[pa.Table], Item], report: Report, rows: int = 0
    ) -> Generator[Item, None, None]:
        """What `work` makes of the rows, block by block.

        A record that cannot be read, or that `work` refuses, is left out and counted.

        Args:
            work: refuses some rows, by a DataError or an Arrow error, exactly where it refuses one.
            report: called with the bytes of the file that were read since the last call.
            rows: of a block; 0: ROWS.

        Raises:
            DataError: more records are left out than the mapping allows.
        """
        reported = 0
        with closing(prefetched(self.blocks(rows), AHEAD)) as blocks:
            for block in blocks:
                yield from self._accepted(block, work)
                report((read := self._read) - reported)
                reported = read
        if self._unparted:
            self._reject(f"record {self._unparted[0]} cannot be read", len(self._unparted))
        report(self._size - reported)

    def _accepted(
        self, rows: pa.Table, work: Callable[[pa.Table], Item]
    ) -> Generator[Item, None, None]:
        """What `work` makes of rows: of all together, or of either half where it refuses some."""
        try:
            made = work(rows)
        except (DataError, pa.ArrowException) as error:
            if (half := len(rows) // 2) == 0:
                fault = str(error).splitlines()[0]
                self._reject(f"{self._place_of(self.row + 1)}: {fault}", 1)
                self.row += 1
                return
            yield from self._accepted(rows.slice(0, half), work)
            yield from self._accepted(rows.slice(half), work)
        else:
            self.row += len(rows)
            yield made

    def _reject(self, sentence: str, records: int) -> None:
        self.rejected += records
        if self.rejected > self._mapping.max_rejected:
            raise DataError(f"{self.path}, {sentence}{too_many(self.rejected, self._mapping)}")

    def count(self) -> int:
        """How many rows there are.

        Raises:
            DataError: as `blocks`.
        """
        with self._rows() as (_, rows):
            return rows.count("*").fetchall()[0][0]

    def blocks(self, rows: int = 0) -> Generator[pa.Table, None, None]:
        """The rows in the order of the file, of the columns that the mapping reads, those of text
        files as text.

        Args:
            rows: about so many at a time; 0: ROWS.

        Raises:
            DataError: a record is not what the mapping says; its line is named.
        """
        with self._rows() as (database, found):
            for batch in found.to_arrow_reader(rows or ROWS):
                if self._mapping.kind == "parquet":
                    self._see(int(self._size * max(database.query_progress(), 0) / 100))
                yield pa.Table.from_batches([batch])
            if self._mapping.kind == "csv" and self._mapping.max_rejected:
                self._unparted = [int(line) for (line,) in database.execute(REJECTED).fetchall()]
                ((several,),) = database.execute(SEVERAL).fetchall()
                if several is not None:
                    line = text_files.line_of(self.path, self._mapping, record=several)
                    raise DataError(f"{self.path}, line {line}: {UNCLOSED}")

    def _see(self, read: int) -> None:
        self._read = max(self._read, read)

    def _place_of(self, row: int) -> str:
        """Where a row is, in words: "line 7"."""
        if self._mapping.select:
            return f"row {row} of select"
        if self._mapping.kind == "csv":
            return f"line {text_files.line_of(self.path, self._mapping, row=row)}"
        return f"row {row}"

    @contextmanager
    def _rows(self) -> Iterator[tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyRelation]]:
        """The columns that the mapping reads."""
        whole = "SELECT * FROM read_parquet({})".format
        query = {"csv": self._csv, "json": self._json, "parquet": whole}
        read: AbstractContextManager[Path] = nullcontext(self.path)
        if self._mapping.kind != "parquet":
            read = text_files.piped(text_files.chunks(self.path, self._mapping, self._see))
        try:
            with read as place, engine() as database:
                # of the place nothing is a pattern, and no folder a column
                literal = f"{text(escape(str(place)))}, hive_partitioning = false"
                rows = database.sql(query[self._mapping.kind](literal))
                if self._mapping.select:
                    refuse_no_select(database, self._mapping.select)
                    shut(database, place)
                    if self._mapping.kind == "parquet":
                        once = _once(pq.read_schema(self.path).names)
                        shown = (name(rows.columns[place]) for place in once)
                        rows.project(", ".join(shown)).create_view("log")
                    else:  # it may be asked for twice
                        rows.create("log")
                    rows = database.sql(self._mapping.select)
                yield database, rows.project(", ".join(self._chosen(rows.columns)))
        except (duckdb.Error, OSError) as error:  # the latter from blocks after the first
            raise DataError(f"{self.path}{self._fault(str(error))}") from None

    def _chosen(self, columns: list[str]) -> Iterator[str]:
        """The columns that the mapping reads of those of the engine, in SQL."""
        names = columns
        if self._mapping.kind == "parquet" and not self._mapping.select:
            schema = pq.read_schema(self.path)  # the engine renames those that are there twice,
            names = schema.names  # and takes spans of time for whole numbers
            spans = {column.name for column in schema if pa.types.is_duration(column.type)}
            for column in spans & {*self._mapping.source_types}:
                raise DataError(f"{self.path}, column {column}: type duration; write numbers")
        for column in self._mapping.source_types:
            if fault := text_files.column_fault(column, names):
                raise DataError(f"{self.path}: {fault}; the file has {names}")
            yield f"{name(columns[names.index(column)])} AS {name(column)}"

    def _csv(self, literal: str) -> str:
        mapping = self._mapping
        names, skipped = text_files.header_of(self.path, mapping)
        given = [names[n] for n in _once(names)] if mapping.select else mapping.source_types
        quote = mapping.quote or ""
        columns = ", ".join(f"'c{place}': 'VARCHAR'" for place in range(len(names)))
        wanted = ", ".join(f"c{names.index(n)} AS {name(n)}" for n in given)
        return (
            f"SELECT {wanted} FROM read_csv({literal}, columns = {{{columns}}}, "
            f"auto_detect = false, header = false, skip = {skipped}, strict_mode = true, "
            f"delim = {text(mapping.delimiter)}, quote = {text(quote)}, "
            f"escape = {text(mapping.escape or quote if quote else '')}, "
            f"nullstr = {text(NO_NULL)}, max_line_size = {text_files.LONGEST_LINE}, "
            f"buffer_size = {text_files.LONGEST_LINE}, store_rejects = {mapping.max_rejected > 0})"
        )

    def _json(self, literal: str) -> str:
        if self._mapping.select:
            largest = f"maximum_object_size = {text_files.LONGEST_LINE}"
            return f"SELECT json FROM read_ndjson_objects({literal}, {largest})"
        columns = ", ".join(f"{text(column)}: 'JSON'" for column in self._mapping.source_types)
        cells = ", ".join(
            WHOLE.format(name(column), text(f"column {column} {NESTED}"))
            for column in self._mapping.source_types
        )
        return (
            f"SELECT {cells} FROM read_json({literal}, columns = {{{columns}}}, "
            f"auto_detect = false, format = 'newline_delimited', records = 'true', "
            f"maximum_object_size = {text_files.LONGEST_LINE})"
        )

    def _fault(self, said: str) -> str:
        """What the engine refuses, after the name of the file."""
        first = (said.partition("Error: ")[2] or said).splitlines()[0]
        if "valid UTF8" in said:
            return (
                f": a text is not in UTF-8: {first}; write the file again, in UTF-8 or with such "
                "columns as bytes"
            )
        of_file = said.startswith("IO Error") or "/dev/fd/" in said  # the pipe
        if self._mapping.select and not of_file:
            return f": select of the mapping: {first}; correct it, or the file"
        if self._mapping.kind == "parquet":
            return (
                f" is no whole Parquet file: {first}; fetch or write it again, or say kind: csv in "
                "the mapping where it is text"
            )
        if said.startswith("IO Error"):
            return text_files.unread(said)
        if self._mapping.kind == "json":
            return self._fault_of_json(first)
        return self._fault_of_text(said)

    def _fault_of_json(self, first: str) -> str:
        if NESTED in first:
            line = text_files.line_where(self.path, self._mapping, self._is_nested)
            return f", line {line}: {first.removeprefix('Invalid Input Error: ')}"
        place = re.sub(r'^.*? in file ".*?",? ?', "", first).partition(". Try")[0]
        if line := text_files.line_where(self.path, self._mapping, _is_no_object):
            place = re.sub(r"line \d+", f"line {line}", place)  # the engine counts one a block more
        return (
            f": {place}; each line is to be one JSON object, as jq -c . FILE writes them, and "
            "jq -c '.[]' FILE those of an array"
        )

    def _is_nested(self, line: str) -> bool:
        record = json.loads(line) if line.strip() else {}
        return any(isinstance(record.get(n), dict | list) for n in self._mapping.source_types)

    def _fault_of_text(self, said: str) -> str:
        record = said.partition("CSV Error on Line: ")[2].partition("\n")[0]
        if record:
            line = text_files.line_of(self.path, self._mapping, record=int(record))
            return f", line {line}: {_fault_of_record(said)}"
        if "invalid state" in said:
            line = text_files.line_where(self.path, self._mapping, _OtherEnd(self._mapping))
            return (
                f", line {line}: a carriage return ends no line, or ends some "
                "lines alone; end all lines by \\n or all by \\r\\n, and quote others"
            )
        return f": {said.splitlines()[0]}"


def _once(names: list[str]) -> list[int]:
    """The places of the names that SQL tells apart: it knows no upper and lower case, nor ""."""
    lower = [name.lower() for name in names]
    return [place for place, name in enumerate(lower) if name and lower.count(name) == 1]


def _is_no_object(line: str) -> bool:
    try:
        record = json.loads(line) if line.strip() else {}
        json.dumps(record, ensure_ascii=False).encode()  # half a character is none
        return not isinstance(record, dict)
    except ValueError:
        return True


class _OtherEnd:
    """Whether a line has a carriage return in it, or does not end as the first one does; a line
    break in quotes ends none.
    """

    def __init__(self, mapping: Mapping) -> None:
        self._quote, self._quotes, self._first = mapping.quote, 0, ""

    def __call__(self, line: str) -> bool:
        self._quotes += line.count(self._quote) if self._quote else 0
        end = line[len(line.rstrip("\r\n")) :] if self._quotes % 2 == 0 else ""
        self._first = self._first or end
        return bool(ALONE.search(line)) or end not in ("", self._first)


def _fault_of_record(said: str) -> str:
    """What the engine says of a record, with the next step."""
    line = said.partition("Original Line: ")[2].partition("\n")[0].strip()[:100]
    for pattern, fault in FAULTS.items():
        if found := re.search(pattern, said):
            return found.expand(fault).format(line)
    return f"{said.splitlines()[2]}: {line}"
