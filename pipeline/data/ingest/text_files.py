"""Text files of a log: opened as their names say, their header, and the line a record begins in."""

import csv
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from io import TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, TypeAlias
from unicodedata import normalize

import pyarrow as pa
from isal import igzip, igzip_lib

from pipeline.core.errors import DataError
from pipeline.core.work import prefetched
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
    b"\xff\xfe\0\0": ".utf32",  # before UTF-16, whose mark it begins with
    b"\0\0\xfe\xff": ".utf32",
    b"\xff\xfe": ".utf16",
    b"\xfe\xff": ".utf16",
}
Records: TypeAlias = Any  # a reader of the module csv, whose class has no public name
LONGEST_SHOWN = 300  # characters of a header
CHUNK = 1 << 20  # bytes or characters read at a time
AHEAD = 64  # chunks that wait for the engine, which takes as many at a time


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
    except (OSError, EOFError, igzip_lib.IsalError) as error:  # type: ignore[misc] # its stub
        raise DataError(f"{path}{unread(str(error))}") from None


def unread(reason: str) -> str:
    """What is wrong with a file that ends too early, after its name."""
    return (
        f" cannot be read to its end: {reason.splitlines()[0]}; where it is cut short or damaged, "
        "fetch or write it again, and where it is plain text, let its name say so"
    )


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, decompressed as the end of its name says; raises as `reading`."""
    with reading(path), path.open("rb") as file, _decompressed(file, path) as stream:
        yield stream


def _decompressed(file: IO[bytes], path: Path) -> IO[bytes]:
    codec = CODECS.get(path.suffix.lower())
    if codec == "gzip":  # at half the cost of zlib
        return igzip.open(file)
    return pa.input_stream(file, compression=codec) if codec else file


def refuse_no_text(path: Path, encoding: str) -> None:
    """Refuse a file that begins like one of another kind; its name or the mapping has to say it.

    Raises:
        DataError: it does, or it cannot be read.
    """
    with open_bytes(path) as stream:
        start = stream.read(4)
    ending = next((ending for mark, ending in BEGINNINGS.items() if start.startswith(mark)), "")
    if ending and not encoding.replace("-", "").startswith(ending[1:]):
        remedy = "make it text in UTF-8"
        if ending in CODECS:
            remedy = f"let its name end in {ending}"
        elif ending.startswith(".utf"):
            remedy = f"say encoding: utf-{ending[4:]} in the mapping"
        raise DataError(f"{path} is no text: it begins like a {ending} file; {remedy}")
    if b"\0" in start[:2] and encoding == "utf-8":
        bits = 32 if start.count(0) > 2 else 16
        raise DataError(f"{path} is no text in UTF-8; say encoding: utf-{bits}-le or utf-{bits}-be")


def chunks(
    path: Path, mapping: Mapping, report: Callable[[int], object] = id
) -> Generator[bytes, None, None]:
    """The text of a file, decompressed and in UTF-8, some at a time.

    Args:
        report: called with how many of the file's own bytes were read so far.

    Raises:
        DataError: the file cannot be read to its end, or is not in the mapping's encoding.
    """
    with reading(path), path.open("rb") as file, _decompressed(file, path) as stream:
        if mapping.encoding == "utf-8":
            while chunk := stream.read(CHUNK):
                report(file.tell())
                yield chunk
            return
        text = TextIOWrapper(stream, mapping.encoding, newline="")
        try:
            mark = text.read(1).removeprefix("\ufeff")
            while characters := mark + text.read(CHUNK):
                mark = ""
                report(file.tell())
                yield characters.encode()
        except UnicodeError as error:
            place = ""  # the error counts bytes from where a block began
            if isinstance(error, UnicodeDecodeError):  # else it lacks the mark of its byte order
                line = line_where(path, mapping, re.compile("\ufffd").search)
                place = f", line {line}"
            raise DataError(
                f"{path}{place} is not in {mapping.encoding}: {error.args[-1]}; correct encoding "
                "in the mapping"
            ) from None


@contextmanager
def piped(text: Generator[bytes, None, None]) -> Iterator[Path]:
    """The path of a pipe, to be read once, through which a text comes; threads make and write it.

    The engine knows few codecs and encodings, and takes a .zst that was cut short for whole.

    Raises:
        DataError: as `text`, whatever its reader made of what had come until then.
    """
    read_end, write_end = os.pipe()
    with ThreadPoolExecutor(1) as pool:
        try:
            written = pool.submit(_write, text, write_end)
            yield Path(f"/dev/fd/{read_end}")
        finally:
            os.close(read_end)
            if isinstance(sys.exception(), Exception | None):
                written.result()


def _write(text: Generator[bytes, None, None], write_end: int) -> None:
    ahead = closing(prefetched(text, AHEAD))
    with suppress(BrokenPipeError), open(write_end, "wb") as pipe, ahead as found:
        for chunk in found:  # until nobody reads on
            pipe.write(chunk)


def header_of(path: Path, mapping: Mapping) -> tuple[list[str], int]:
    """The names of the columns of a file, without white space around them, and how many lines,
    empty ones with it, end with the header.

    Raises:
        DataError: the file is empty, the header no UTF-8, or a column that the mapping names is
            missing or there twice; the line is named.
    """
    if mapping.positions is not None:
        return list(mapping.positions), mapping.skip
    with closing(chunks(path, mapping)) as found:
        for line, header in enumerate(_lines(found), 1):
            if line > mapping.skip and header.strip(b"\r"):
                break
        else:
            raise DataError(f"{path} is empty: it has no header; leave it out, or fetch it again")
    try:
        names = names_in(header.decode().rstrip("\r"), mapping)
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


def _lines(text: Iterator[bytes]) -> Iterator[bytes]:
    """The first lines of a text, without the mark of its encoding; together no longer than one
    line may be.
    """
    rest = next(text, b"").removeprefix(b"\xef\xbb\xbf")
    for chunk in chain(islice(text, LONGEST_LINE // CHUNK), (b"\n",)):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines


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
    with open_bytes(path) as stream:
        lines = TextIOWrapper(stream, mapping.encoding, "replace", newline="\n")
        if row is not None:
            deque(islice(lines, mapping.skip), 0)
        records = _records(lines, mapping)
        if row is None:
            deque(islice(records, record - 1), 0)
            return records.line_num + 1
        left, before = row + (mapping.positions is None), 0  # with the header
        for cells in records:
            left -= bool(cells)
            if not left:
                break
            before = records.line_num
        return mapping.skip + before + 1


def line_where(path: Path, mapping: Mapping, is_odd: Callable[[str], object]) -> int:
    """The first line, from 1, that is odd; 0 where there is none."""
    with open_bytes(path) as stream:
        lines = enumerate(TextIOWrapper(stream, mapping.encoding, "replace", newline="\n"), 1)
        return next((number for number, line in lines if is_odd(line)), 0)
