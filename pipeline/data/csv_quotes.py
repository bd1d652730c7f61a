"""Quoted values of CSV that hold line breaks: where records end, and what is no quoting at all."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from pipeline.data.mapping import Mapping
from pipeline.data.text_blocks import Block
from pipeline.errors import DataError

LONGEST_RECORD = 1 << 20  # bytes of a record with line breaks inside


def whole_records(blocks: Iterable[Block], mapping: Mapping) -> Iterator[Block]:
    """The same lines in blocks that end where a record ends: a quoted value may hold line breaks.

    Raises:
        DataError: a quote that opens a value is not closed in LONGEST_RECORD bytes, or never.
    """
    quote, rest = (mapping.quote or "").encode(), b""
    for block in blocks:
        text, line = rest + block.text, block.line - rest.count(b"\n")
        rest = _open_record(text, quote, mapping.delimiter.encode())
        whole = text[: len(text) - len(rest)]
        if len(rest) > LONGEST_RECORD:
            _refuse_open(block.path, line + whole.count(b"\n"))
        if whole:
            yield Block(block.path, line, whole, block.position)
    if rest:
        _refuse_open(block.path, line + whole.count(b"\n"))


def _refuse_open(path: Path, line: int) -> NoReturn:
    raise DataError(
        f"{path}, line {line}: a quote opens a value here and none closes it within "
        f"{LONGEST_RECORD:,} bytes; close it, or let quote be null in the mapping"
    )


def _open_record(text: bytes, quote: bytes, delimiter: bytes) -> bytes:
    """The end of `text` from the line on whose quoted value goes on after it; empty where none."""
    if not quote or quote not in text:
        return b""
    lines = text.split(b"\n")
    start: int | None = None
    for number in _odd_lines(lines, quote):
        if start is not None:
            start = None
        elif _stays_open(lines[number], quote, delimiter):
            start = number
    return b"" if start is None else b"\n".join(lines[start:])


def _odd_lines(lines: Sequence[bytes], quote: bytes) -> list[int]:
    """Lines with an odd number of quotes: at such a line a value with line breaks begins or ends,
    or a quote stands alone inside a value that is not quoted."""
    return [number for number, line in enumerate(lines) if line.count(quote) % 2]


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


def values_hold_breaks(text: bytes, mapping: Mapping) -> bool:
    """Whether quoted values hold line breaks or carriage returns."""
    quote, delimiter = (mapping.quote or "").encode(), mapping.delimiter.encode()
    quoted = bool(quote) and quote in text
    bare = b"\r" in text and text.count(b"\r") != text.count(b"\r\n") + text.endswith(b"\r")
    if bare and not quoted:
        raise DataError("a carriage return ends no line; end lines by \\n or \\r\\n, quote others")
    if not quoted or not _odd_lines(text.split(b"\n"), quote):
        return bare
    for record in records_of(text, quote, delimiter):
        if record.count(quote) % 2 and _goes_on(record, quote, delimiter):
            raise DataError(
                "a value goes on after its closing quote; double a quote inside a value"
            )
    return True
