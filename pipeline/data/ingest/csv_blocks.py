"""Lines of CSV as tables: where records end, what values are, and faults by file and line."""

import csv as plain_csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from pipeline.core.errors import DataError
from pipeline.data.ingest.mapping import TYPES, Mapping
from pipeline.data.ingest.text_blocks import OWN_NAME, Block, read_blocks

LONGEST_RECORD = 1 << 20  # bytes of a record with line breaks inside


def whole_records(blocks: Iterable[Block], mapping: Mapping) -> Iterator[Block]:
    """The same lines in blocks that end where a record ends: a quoted value may hold line breaks.

    Raises:
        DataError: a quote that opens a value is not closed in LONGEST_RECORD bytes, or never.
    """
    quote, delimiter = (mapping.quote or "").encode(), mapping.delimiter.encode()
    rest = b""
    for block in blocks:
        text, line = rest + block.text, block.line - rest.count(b"\n")
        odd = odd_lines(text, quote)
        rest = _open_record(text, odd, quote, delimiter)
        whole = text[: len(text) - len(rest)]
        if len(rest) > LONGEST_RECORD:
            _refuse_open(block.path, line + whole.count(b"\n"))
        if whole:
            yield Block(block.path, line, whole, block.position, odd_quotes=bool(len(odd)))
    if rest:
        _refuse_open(block.path, line + whole.count(b"\n"))


def _refuse_open(path: Path, line: int) -> NoReturn:
    raise DataError(
        f"{path}, line {line}: a quote opens a value here and none closes it within "
        f"{LONGEST_RECORD:,} bytes; close it, or let quote be null in the mapping"
    )


def _open_record(text: bytes, odd: np.ndarray, quote: bytes, delimiter: bytes) -> bytes:
    """The end of `text` from the line on whose quoted value goes on after it; empty where none."""
    if not len(odd):
        return b""
    lines = text.split(b"\n")
    start: int | None = None
    for number in odd:
        if start is not None:
            start = None
        elif _stays_open(lines[number], quote, delimiter):
            start = int(number)
    return b"" if start is None else b"\n".join(lines[start:])


def odd_lines(text: bytes, quote: bytes) -> np.ndarray:
    """Lines, from 0, with an odd number of quotes: at such a line a value with line breaks begins
    or ends, or a quote stands alone inside a value that is not quoted.
    """
    others = bytes(byte for byte in range(256) if byte not in quote + b"\n")
    if not quote or quote not in text.translate(None, others).replace(2 * quote, b""):
        return np.empty(0, np.int64)
    spelled = np.frombuffer(text, np.uint8)
    starts = np.concatenate([[0], np.flatnonzero(spelled == ord("\n")) + 1])
    starts = starts[starts < len(text)]
    return np.flatnonzero(np.add.reduceat((spelled == ord(quote)).view(np.uint8), starts) & 1)


def _stays_open(line: bytes, quote: bytes, delimiter: bytes) -> bool:
    """Whether the last quoted value of a line, which begins a record, is not closed in it."""
    return any(end < 0 for end in _ends_of_quoted(line, quote, delimiter))


def _goes_on(record: bytes, quote: bytes, delimiter: bytes) -> bool:
    """Whether a quoted value of a record has text after its closing quote."""
    ends = _ends_of_quoted(record, quote, delimiter)
    return any(record[end : end + 1] not in (delimiter, b"\r", b"") for end in ends if end >= 0)


def _ends_of_quoted(line: bytes, quote: bytes, delimiter: bytes) -> Iterator[int]:
    """The place after each value that begins with a quote; -1 where none closes it."""
    place = 0
    while place < len(line):
        if line[place : place + 1] == quote:
            place = _closed(line, place + 1, quote)
            yield place
            if place < 0:
                return
        place = line.find(delimiter, place) + 1
        if not place:
            return


def _closed(line: bytes, place: int, quote: bytes) -> int:
    """The place after the quote that closes a value from `place` on; -1 where none does."""
    while (place := line.find(quote, place)) >= 0:
        if line[place + 1 : place + 2] != quote:
            return place + 1
        place += 2  # a doubled quote stands for one
    return -1


def records_of(text: bytes, quote: bytes, delimiter: bytes) -> list[bytes]:
    """The records of `text`, most of them lines."""
    lines = text.split(b"\n")
    if not quote or quote not in text:
        return lines
    records: list[bytes] = []
    opened = b""
    for line in lines:
        whole = opened + b"\n" + line if opened else line
        odd = line.count(quote) % 2
        if odd and not opened and _stays_open(line, quote, delimiter):
            opened = line
        elif odd or not opened:
            records.append(whole)
            opened = b""
        else:
            opened = whole
    return [*records, opened] if opened else records


def values_hold_breaks(text: bytes, mapping: Mapping, *, odd_quotes: bool) -> bool:
    """Whether quoted values hold line breaks or carriage returns.

    Args:
        odd_quotes: whether a line may have an odd number of quotes.

    Raises:
        DataError: a carriage return stands in no quoted value, or such a value goes on after the
            quote that closes it.
    """
    quote, delimiter = (mapping.quote or "").encode(), mapping.delimiter.encode()
    bare = b"\r" in text and text.count(b"\r") != text.count(b"\r\n") + text.endswith(b"\r")
    if bare and not (quote and quote in text):
        raise DataError("a carriage return ends no line; end lines by \\n or \\r\\n, quote others")
    if not odd_quotes or not len(odd_lines(text, quote)):
        return bare
    for record in records_of(text, quote, delimiter):
        if record.count(quote) % 2 and _goes_on(record, quote, delimiter):
            raise DataError(
                "a value goes on after its closing quote; double a quote inside a value"
            )
    return True


CHUNK = 1 << 21  # bytes that pyarrow parses at a time
LONGEST_SHOWN = 300  # characters of a header
NOT_OF_TYPE = re.compile(r"In CSV column #(\d+): CSV conversion error to .*: invalid value '(.*)'")
Result = TypeVar("Result")


def header_of(block: Block, mapping: Mapping) -> tuple[list[str], Block]:
    """The names of the columns, without white space around them, and the block without them.

    Raises:
        DataError: a column that the mapping names is missing or there twice.
    """
    if mapping.positions is not None:
        return list(mapping.positions), block
    text = block.text.lstrip(b"\r\n")
    line = block.line + block.text[: len(block.text) - len(text)].count(b"\n")
    first, _, text = text.partition(b"\n")
    try:
        names = _names(first.decode().rstrip("\r"), mapping)
    except UnicodeDecodeError:
        raise DataError(
            f"{block.path}, line {line}: the header is not UTF-8; convert the file, for example "
            "with iconv -f latin1 -t utf-8"
        ) from None
    for name in mapping.source_types:
        if names.count(name) != 1:
            fault = "is there twice" if name in names else "is missing"
            raise DataError(
                f"{block.path}, line {line}: column {name} {fault}; the header is "
                f"{str(names)[:LONGEST_SHOWN]}"
                + (f" with the delimiter {mapping.delimiter!r}" if len(names) == 1 else "")
            )
    return names, replace(block, line=line + 1, text=text)


def _names(line: str, mapping: Mapping) -> list[str]:
    parsed = plain_csv.reader(
        [line],
        delimiter=mapping.delimiter,
        quotechar=mapping.quote or '"',
        quoting=plain_csv.QUOTE_MINIMAL if mapping.quote else plain_csv.QUOTE_NONE,
    )
    try:
        return [name.strip() for name in next(parsed, [])]
    except plain_csv.Error:  # a carriage return inside, or a name of megabytes
        return [line]


def count_rows(path: Path, mapping: Mapping, report: Callable[[int], None]) -> int:
    """How many rows a file has, its header not counted.

    Args:
        report: called with half of the bytes that were read since the last call: the file will be
            read again.

    Raises:
        DataError: as `read_blocks`.
    """
    quote, delimiter = (mapping.quote or "").encode(), mapping.delimiter.encode()
    rows = position = 0
    for block in whole_records(read_blocks(path), mapping):
        records = records_of(block.text, quote, delimiter)
        rows += sum(1 for record in records if record.strip(b"\r"))
        report(block.position // 2 - position // 2)
        position = block.position
    return rows - (mapping.positions is None)


def parse(
    text: bytes, names: Sequence[str], mapping: Mapping, *, odd_quotes: bool = True
) -> pa.Table:
    """The columns that the mapping reads, with its types.

    Args:
        text: whole records; empty lines are passed over.
        names: of every column in the text; a name may be there twice where it is not read.
        odd_quotes: whether a line may have an odd number of quotes.

    Raises:
        pa.ArrowInvalid: a value is not UTF-8.
        DataError: a line has another number of columns, a value is not of its type, one that is
            not quoted holds a carriage return, or a quoted one goes on.
    """
    broken = values_hold_breaks(text, mapping, odd_quotes=odd_quotes)
    types = mapping.source_types
    if not text.strip(b"\r\n"):
        return pa.table({name: pa.array([], kind) for name, kind in types.items()})
    try:
        table = _read(text, names, mapping, broken, CHUNK)
    except pa.ArrowInvalid as error:
        if found := NOT_OF_TYPE.search(str(error)):
            raise DataError(_not_of_type(names[int(found[1])], found[2], mapping)) from None
        if ": Expected" in str(error):
            fault = str(error).splitlines()[0]
            step = "mend the line, or delimiter and quote in the mapping"
            raise DataError(f"{fault}; {step}") from None
        if "straddling" not in str(error):
            raise
        table = _read(text, names, mapping, broken, len(text) + 1)  # a line longer than CHUNK
    if mapping.nulls == mapping.number_nulls or not mapping.nulls:
        return table
    return _text_nulls(table, pa.array(mapping.nulls, pa.string()))


def _not_of_type(name: str, value: str, mapping: Mapping) -> str:
    if value.strip() == name:
        return f"column {name} is {value!r}, {OWN_NAME}"
    kind = next(word for word, kind in TYPES.items() if kind == mapping.source_types[name])
    sentence = f"column {name} is {value!r}, which is no {kind}"
    if re.fullmatch(r"[+-]?\d+,\d+", value):
        return f"{sentence}; where a comma is the decimal sign, say decimal: ',' in the mapping"
    if re.search(r"\d", value):
        return f"{sentence}; correct the value, or the column's type in the mapping"
    return (
        f"{sentence}; in the mapping number_nulls lists spellings of a missing number, and a made "
        "column by the rule equals is 1 where a text is one of its values"
    )


def _read(
    text: bytes, names: Sequence[str], mapping: Mapping, broken: bool, chunk: int
) -> pa.Table:
    types = mapping.source_types
    unique = [n if n in types else f"\x00{i}" for i, n in enumerate(names)]
    return csv.read_csv(
        pa.BufferReader(text),
        read_options=csv.ReadOptions(column_names=unique, block_size=chunk),
        parse_options=csv.ParseOptions(
            delimiter=mapping.delimiter,
            quote_char=mapping.quote or False,
            newlines_in_values=broken,
        ),
        convert_options=csv.ConvertOptions(
            column_types=types,
            decimal_point=mapping.decimal,
            include_columns=list(types),
            null_values=list(mapping.number_nulls),
            strings_can_be_null=mapping.nulls == mapping.number_nulls,
        ),
    )


def _text_nulls(table: pa.Table, spellings: pa.Array) -> pa.Table:
    for index, field in enumerate(table.schema):
        if field.type == pa.string():
            column = table.column(index)
            missing = pc.is_in(column, value_set=spellings)
            table = table.set_column(
                index, field, pc.if_else(missing, pa.scalar(None, pa.string()), column)
            )
    return table


def by_line(
    block: Block, work: Callable[[bytes], Result], mapping: Mapping | None = None
) -> Result:
    """`work` of the block's lines; where it refuses them, the first line it refuses is named.

    Args:
        work: refuses some records exactly where it refuses one of them.
        mapping: says how values are quoted, so that a record may be several lines; None: a record
            is a line.

    Raises:
        DataError: `work` raised it or an Arrow error.
    """
    try:
        return work(block.text)
    except (DataError, pa.ArrowException):
        pass
    quote = (mapping.quote or "").encode() if mapping else b""
    delimiter = mapping.delimiter.encode() if mapping else b","
    records = records_of(block.text, quote, delimiter)
    low, high = 0, len(records)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            work(b"\n".join(records[low:middle]))
            low = middle
        except (DataError, pa.ArrowException):
            high = middle
    line = block.line + sum(record.count(b"\n") + 1 for record in records[:low])
    try:
        work(records[low])
    except (DataError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{block.path}, line {line}: {reason}") from None
    raise DataError(f"{block.path}, lines from {block.line} on cannot be read together")
