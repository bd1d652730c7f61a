"""Quoted values of CSV that hold line breaks: where records end, and what is no quoting at all."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np

from pipeline.core.errors import DataError
from pipeline.data.ingest.mapping import Mapping
from pipeline.data.ingest.text_blocks import Block

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
