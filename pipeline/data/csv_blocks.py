"""CSV files as tables, a block of whole lines at a time; faults are named by file and line."""

import csv as plain_csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from pipeline.data.mapping import Mapping
from pipeline.errors import DataError

BLOCK = 8 << 20  # bytes of text, plus one line
LONGEST_LINE = 64 << 20  # bytes
CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
BEGINNINGS = {  # of files that are no text, and what the names of such files end in
    b"\x1f\x8b": ".gz",
    b"BZh": ".bz2",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"PK\x03\x04": ".zip",
    b"PAR1": ".parquet",
    b"\xff\xfe": ".utf16",
    b"\xfe\xff": ".utf16",
}
MARK = b"\xef\xbb\xbf"  # with which some programs begin a text in UTF-8
Result = TypeVar("Result")


@dataclass(frozen=True)
class Block:
    """Whole lines of a file.

    Attributes:
        path: of the file.
        line: number of the first of them, from 1.
        text: the lines.
        position: bytes of the file, as it lies on the disk, read so far.
    """

    path: Path
    line: int
    text: bytes
    position: int


def read_blocks(path: Path, size: int = BLOCK) -> Iterator[Block]:
    """The lines of a file: plain, .gz, .bz2 or .zst by its name; a byte order mark is passed over.

    Raises:
        DataError: the file is missing, no text, its compressed stream is damaged or cut short, or
            no line ends for long.
    """
    try:
        with pa.OSFile(str(path)) as raw, _decompressed(raw, path) as stream:
            yield from _lines(stream, raw, path, size)
    except OSError as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path} cannot be read to its end: {reason}") from None


def _decompressed(raw: pa.NativeFile, path: Path) -> pa.NativeFile:
    codec = CODECS.get(path.suffix.lower())
    return pa.CompressedInputStream(raw, codec) if codec else raw


def _refuse_no_text(start: bytes, path: Path) -> None:
    for beginning, ending in BEGINNINGS.items():
        if start.startswith(beginning):
            remedy = (
                f"let its name end in {ending}" if ending in CODECS else "make it text in UTF-8"
            )
            raise DataError(f"{path} is no text: it begins like a {ending} file; {remedy}")


def _lines(stream: pa.NativeFile, raw: pa.NativeFile, path: Path, size: int) -> Iterator[Block]:
    line, rest, at_start = 1, b"", True
    while chunk := stream.read(size):
        if at_start:
            _refuse_no_text(chunk, path)
            chunk, at_start = chunk.removeprefix(MARK), False
        end = chunk.rfind(b"\n") + 1
        if not end:
            rest += chunk
            if len(rest) > LONGEST_LINE:
                raise DataError(f"{path}, line {line}: no line ends within {len(rest):,} bytes")
            continue
        text, rest = rest + chunk[:end], chunk[end:]
        yield Block(path, line, text, raw.tell())
        line += text.count(b"\n")
    if rest:
        yield Block(path, line, rest, raw.tell())


def header_of(block: Block, mapping: Mapping) -> tuple[list[str], Block]:
    """The names of the columns, without white space around them, and the block without them.

    Raises:
        DataError: a column that the mapping names is missing or there twice.
    """
    if mapping.positions is not None:
        return list(mapping.positions), block
    first, _, text = block.text.partition(b"\n")
    parsed = plain_csv.reader(
        [first.decode("utf-8", "replace").rstrip("\r")],
        delimiter=mapping.delimiter,
        quotechar=mapping.quote or '"',
        quoting=plain_csv.QUOTE_MINIMAL if mapping.quote else plain_csv.QUOTE_NONE,
    )
    names = [name.strip() for name in next(parsed, [])]
    for name in mapping.source_types:
        if names.count(name) != 1:
            fault = "is there twice" if name in names else "is missing"
            raise DataError(f"{block.path}, line 1: column {name} {fault}; the header is {names}")
    return names, Block(block.path, block.line + 1, text, block.position)


def count_rows(path: Path, mapping: Mapping) -> int:
    """How many rows a file has, its header not counted.

    Raises:
        DataError: as `read_blocks`.
    """
    blocks = read_blocks(path)
    lines = sum(1 for block in blocks for line in block.text.split(b"\n") if line.strip(b"\r"))
    return lines - (mapping.positions is None)


def parse(text: bytes, names: Sequence[str], mapping: Mapping) -> pa.Table:
    """The columns that the mapping reads, with its types.

    Args:
        text: whole lines; empty lines are passed over.
        names: of every column in the text; a name may be there twice where it is not read.

    Raises:
        pa.ArrowInvalid: a line has another number of columns, a value is not of its type or is
            not UTF-8.
        DataError: a value holds a line break or half of one.
    """
    quote = (mapping.quote or "").encode()
    if quote and quote in text and any(line.count(quote) % 2 for line in text.split(b"\n")):
        raise DataError("a quoted value holds a line break, or its quote is never closed")
    if b"\r" in text and text.count(b"\r") != text.count(b"\r\n") + text.endswith(b"\r"):
        raise DataError("a carriage return ends no line; write line ends as \\n or \\r\\n")
    types = mapping.source_types
    if not text.strip(b"\r\n"):
        return pa.table({name: pa.array([], kind) for name, kind in types.items()})
    unique = [n if n in types else f"\x00{i}" for i, n in enumerate(names)]
    table = csv.read_csv(
        pa.BufferReader(text),
        read_options=csv.ReadOptions(column_names=unique, block_size=1 << 21),
        parse_options=csv.ParseOptions(
            delimiter=mapping.delimiter,
            quote_char=mapping.quote or False,
        ),
        convert_options=csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=list(mapping.number_nulls),
            strings_can_be_null=mapping.nulls == mapping.number_nulls,
        ),
    )
    if mapping.nulls == mapping.number_nulls or not mapping.nulls:
        return table
    return _text_nulls(table, pa.array(mapping.nulls, pa.string()))


def _text_nulls(table: pa.Table, spellings: pa.Array) -> pa.Table:
    for index, field in enumerate(table.schema):
        if field.type == pa.string():
            column = table.column(index)
            missing = pc.is_in(column, value_set=spellings)
            table = table.set_column(
                index, field, pc.if_else(missing, pa.scalar(None, pa.string()), column)
            )
    return table


def by_line(block: Block, work: Callable[[bytes], Result]) -> Result:
    """`work` of the block's lines; where it refuses them, the first line it refuses is named.

    Args:
        work: refuses some lines exactly where it refuses one of them.

    Raises:
        DataError: `work` raised it or pa.ArrowInvalid.
    """
    try:
        return work(block.text)
    except (DataError, pa.ArrowInvalid):
        pass
    lines = block.text.split(b"\n")
    low, high = 0, len(lines)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            work(b"\n".join(lines[low:middle]))
            low = middle
        except (DataError, pa.ArrowInvalid):
            high = middle
    try:
        work(lines[low])
    except (DataError, pa.ArrowInvalid) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{block.path}, line {block.line + low}: {reason}") from None
    raise DataError(f"{block.path}, lines from {block.line} on cannot be read together")
