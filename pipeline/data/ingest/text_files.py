"""Text files of a log: opened as their names say, their header, and the line a record begins in."""

import csv
import re
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from shutil import copyfileobj
from typing import IO, Any, TypeAlias
from unicodedata import normalize

import pyarrow as pa

from pipeline.core.errors import DataError
from pipeline.core.files import scratch_folder
from pipeline.data.ingest.mapping import Mapping

LONGEST_LINE = 64 << 20  # bytes
CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
BEGINNINGS = {  # of files that are no text in UTF-8, and what the names of such files end in
    b"\x1f\x8b": ".gz",
    b"BZh": ".bz2",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"PK\x03\x04": ".zip",
    b"\xfd7zX": ".xz",
    b"PAR1": ".parquet",
    b"\xff\xfe": ".utf16",
    b"\xfe\xff": ".utf16",
}
Records: TypeAlias = Any  # a reader of the module csv, whose class has no public name
LONGEST_SHOWN = 300  # characters of a header
CHUNK = 1 << 20  # bytes read at a time


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Whatever the disk or a compressed stream refuses is told in one sentence.

    Raises:
        DataError: the file is missing, a folder, or cannot be read to its end.
    """
    if path.is_dir():
        raise DataError(f"{path} is a folder; name the files in it")
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; name a file of the log") from None
    except OSError as error:
        raise DataError(f"{path}{unread(str(error))}") from None


def unread(reason: str) -> str:
    """What is wrong with a file that ends too early, after its name."""
    return (
        f" cannot be read to its end: {reason.splitlines()[0]}; where it is cut short or damaged, "
        "fetch or write it again, and where it is plain text, let its name say so"
    )


def open_bytes(path: Path) -> IO[bytes]:
    """The bytes of a file, decompressed as the end of its name says."""
    return pa.input_stream(str(path), compression=CODECS.get(path.suffix.lower()))


def _refuse_no_text(path: Path, encoding: str) -> None:
    """Refuse a file that begins like one of another kind; its name or the mapping has to say it."""
    with reading(path), open_bytes(path) as stream:
        start = stream.read(4)
    if b"\0" in start[:2] and encoding == "utf-8":
        raise DataError(f"{path} is no text in UTF-8; say encoding: utf-16-le or utf-16-be")
    for beginning, ending in BEGINNINGS.items():
        if start.startswith(beginning) and not encoding.replace("-", "").startswith(ending[1:]):
            remedy = "make it text in UTF-8"
            if ending in CODECS:
                remedy = f"let its name end in {ending}"
            elif ending == ".utf16":
                remedy = "say encoding: utf-16 in the mapping"
            raise DataError(f"{path} is no text: it begins like a {ending} file; {remedy}")


@contextmanager
def plain_text(path: Path, mapping: Mapping) -> Iterator[Path]:
    """A file of text as the engine reads it: itself, or a copy, decompressed and in UTF-8.

    The engine has no .bz2, takes a .zst that was cut short for whole, and knows few encodings.

    Raises:
        DataError: the file begins like one of another kind, cannot be read to its end, or is not
            in the mapping's encoding.
    """
    _refuse_no_text(path, mapping.encoding)
    if path.suffix.lower() not in (".bz2", ".zst") and mapping.encoding == "utf-8":
        yield path
        return
    with scratch_folder() as place:
        copy = place / "log.txt"
        _copy_as_text(path, mapping, copy)
        yield copy


def _copy_as_text(path: Path, mapping: Mapping, copy: Path) -> None:
    with reading(path), open_bytes(path) as stream, copy.open("wb") as target:
        if mapping.encoding == "utf-8":
            copyfileobj(stream, target, CHUNK)
            return
        text = TextIOWrapper(stream, mapping.encoding, newline="")
        try:
            while chunk := text.read(CHUNK):
                target.write(chunk.removeprefix("\ufeff").encode())
        except UnicodeError as error:
            raise DataError(
                f"{path} is not in {mapping.encoding}: {error}; correct encoding in the mapping"
            ) from None


def header_of(path: Path, mapping: Mapping, place: Path) -> tuple[list[str], int]:
    """The names of the columns of a file, without white space around them, and how many lines,
    empty ones with it, end with the header.

    Args:
        path: its name in messages.
        place: where its text lies, in UTF-8.

    Raises:
        DataError: the file is empty, the header no UTF-8, or a column that the mapping names is
            missing or there twice; the line is named.
    """
    if mapping.positions is not None:
        return list(mapping.positions), mapping.skip
    with reading(path), open_bytes(place) as stream:
        text = stream.read(CHUNK)
    lines = dict(enumerate(text.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1))
    there = (number for number, content in lines.items() if content.strip(b"\r"))
    line = next((number for number in there if number > mapping.skip), 0)
    if not line:
        raise DataError(f"{path} is empty: it has no header; leave it out, or fetch it again")
    try:
        names = names_in(lines[line].decode().rstrip("\r"), mapping)
    except UnicodeDecodeError:
        raise DataError(
            f"{path}, line {line}: the header is not UTF-8; name its encoding in the mapping"
        ) from None
    for name in () if mapping.select else mapping.source_types:
        if fault := column_fault(name, names):
            delimiter = f" with the delimiter {mapping.delimiter!r}" if len(names) == 1 else ""
            raise DataError(
                f"{path}, line {line}: {fault}; the header is "
                f"{str(names)[:LONGEST_SHOWN]}{delimiter}"
            )
    return names, line


def names_in(line: str, mapping: Mapping) -> list[str]:
    """The names in a header, without white space around them."""
    try:
        return [name.strip() for name in next(_records([line], mapping), [])]
    except csv.Error:  # a carriage return inside
        return [line]


def column_fault(name: str, names: list[str]) -> str:
    """Why a column cannot be read from a file that has `names`; empty where it can."""
    if names.count(name) == 1:
        return ""
    alike = [other for other in names if normalize("NFKC", other) == normalize("NFKC", name)]
    if alike and name not in names:
        return f"column {name} is there in other Unicode, {alike[0]!a}; copy it into the mapping"
    if name not in names and (record := name.partition(".")[0]) in names:
        return f"column {name} is missing; select of the mapping reaches what is in {record}"
    return f"column {name} is {'there twice' if name in names else 'missing'}"


def _records(lines: Iterator[str] | list[str], mapping: Mapping) -> Records:
    """As the engine parts them."""
    csv.field_size_limit(LONGEST_LINE)
    escape = mapping.escape if mapping.quote else None
    return csv.reader(
        lines,
        delimiter=mapping.delimiter,
        quotechar=mapping.quote or '"',
        quoting=csv.QUOTE_MINIMAL if mapping.quote else csv.QUOTE_NONE,
        escapechar=escape,
        doublequote=escape is None,
    )


def line_of(path: Path, mapping: Mapping, *, row: int | None = None, record: int = 0) -> int:
    """The line, from 1, in which something begins.

    Args:
        path: a file that can be parted into records up to there.
        row: of the log's rows, from 1; a header and empty lines are none.
        record: where no row is given: of all records, from 1, empty lines and header with them.
    """
    with reading(path), open_bytes(path) as stream:
        lines = TextIOWrapper(stream, "utf-8", "replace", newline="\n")
        if row is not None:
            deque(islice(lines, mapping.skip), 0)
        records = _records(lines, mapping)
        if row is None:
            deque(islice(records, record - 1), 0)
            return records.line_num + 1
        header = mapping.positions is None
        count = row - 1 + header
        while count:
            count -= bool(next(records))
        before = records.line_num
        while not next(records):
            before = records.line_num
        return mapping.skip + before + 1


def carriage_return(path: Path) -> int:
    """The first line, from 1, with a carriage return inside; 0 where there is none."""
    with reading(path), open_bytes(path) as stream:
        lines = enumerate(TextIOWrapper(stream, "latin-1", newline="\n"), 1)
        return next((number for number, line in lines if re.search("\r(?!\n)", line)), 0)
