"""The generic reader: files and a mapping become landed days, in bounded memory."""

import re
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from collections.abc import Mapping as Names
from contextlib import closing
from pathlib import Path
from types import MappingProxyType

import numpy as np

from pipeline.core.errors import DataError
from pipeline.core.files import sha256_of
from pipeline.data.ingest.csv_blocks import by_line, count_rows, header_of, parse, whole_records
from pipeline.data.ingest.mapping import Mapping
from pipeline.data.ingest.parquet_blocks import by_row, count_stored, read_row_blocks, typed
from pipeline.data.ingest.text_blocks import prefetched, read_blocks
from pipeline.data.ingest.transform import LogRows, transform
from pipeline.data.log_store.day_writer import DayWriter
from pipeline.data.log_store.landing import (
    DEFAULTS,
    Landed,
    LandingOptions,
    LogKind,
    land_days,
)

Report = Callable[[int], None]
NONE_TWICE: Names[int, Path] = MappingProxyType({})


def land_files(
    folder: Path,
    mapping: Mapping,
    sources: Sequence[Path],
    limit_days: int | None = None,
    report: Report = lambda _: None,
    *,
    options: LandingOptions = DEFAULTS,
) -> Landed:
    """Land the days of `sources` in `folder`.

    Every day of the sources takes the place of the whole day that was there: all files with rows
    of a day belong into one call.

    Args:
        folder: the log's folder.
        sources: files, read in this order.
        limit_days: only the first so many days met are landed, and reading ends at the first
            block that holds none of them; None: all.
        report: called with the bytes of the files that were read since the last call.
        options: see `land_days`. Where an event id is named a file may come twice.

    Raises:
        DataError: a file is not what the mapping says; it is named, with line or row. Or two files
            with rows are equal byte for byte, and no event id distinguishes their rows.
    """
    twice = {} if options.event_id else equal_files(sources)
    rows = prefetched(read_rows(mapping, sources, report, twice))
    return land_rows(folder, mapping.log_kind(), rows, limit_days, options)


def land_rows(
    folder: Path,
    kind: LogKind,
    parts: Generator[LogRows, None, None],
    limit_days: int | None,
    options: LandingOptions = DEFAULTS,
    *,
    in_order: bool = True,
) -> Landed:
    """Land the days of `parts`, rows of a log of this kind; see `land_files`.

    Args:
        in_order: whether no row of the first `limit_days` days comes after a part without any.
    """

    def fill(writer: DayWriter) -> None:
        met: list[int] = []
        with closing(parts):
            for rows in parts:
                wanted = _wanted(rows, met, limit_days)
                if limit_days and in_order and not wanted.any() and len(rows.days):
                    return
                table = rows.table if wanted.all() else rows.table.filter(wanted)
                writer.add(table, rows.days[wanted])
                for rule, days in rows.dropped.items():
                    writer.drop(rule, days[np.isin(days, met)] if limit_days else days)

    return land_days(folder, kind, fill, options)


def _wanted(rows: LogRows, met: list[int], limit_days: int | None) -> np.ndarray:
    """Rows of the first `limit_days` days, bool [n]; new days are added to `met`."""
    if limit_days is None:
        return np.ones(len(rows.days), bool)
    days, first = np.unique(rows.days, return_index=True)
    for day in days[np.argsort(first)]:
        if len(met) < limit_days and day not in met:
            met.append(int(day))
    return np.isin(rows.days, met)


def equal_files(sources: Sequence[Path]) -> dict[int, Path]:
    """Positions of files that are equal, byte for byte, to an earlier one: position → that one."""
    sizes = Counter(path.stat().st_size for path in sources if path.is_file())
    first: dict[str, Path] = {}
    equal = {}
    for position, path in enumerate(sources):
        if path.is_file() and sizes[path.stat().st_size] > 1:
            sha256 = sha256_of(path)
            if sha256 in first:
                equal[position] = first[sha256]
            first.setdefault(sha256, path)
    return equal


def read_rows(
    mapping: Mapping,
    sources: Sequence[Path],
    report: Report = lambda _: None,
    twice: Names[int, Path] = NONE_TWICE,
) -> Iterator[LogRows]:
    """The rows of `sources`, block by block; every file's header is read.

    Args:
        twice: `equal_files` that must not hold rows.

    Raises:
        DataError: as `land_files`.
    """
    numbering = _Numbering(mapping, sources, report)
    read = _csv_rows if mapping.kind == "csv" else _parquet_rows
    for position, path in enumerate(sources):
        numbering.enter(path)
        for rows in read(path, mapping, numbering, report):
            if position in twice and (len(rows.days) or rows.dropped):
                raise DataError(
                    f"{path} holds the same bytes as {twice[position]}: every row would count "
                    f"twice; name one of them alone, or log.event_id in params.yaml, by which "
                    f"duplicates are dropped"
                )
            yield rows


def _csv_rows(
    path: Path, mapping: Mapping, numbering: "_Numbering", report: Report
) -> Iterator[LogRows]:
    names: list[str] | None = None
    position, passes = 0, 2 if mapping.row_blocks else 1

    def work(text: bytes) -> LogRows:
        table = parse(text, names or [], mapping, odd_quotes=block.odd_quotes)
        return transform(mapping, table, numbering.days(len(table)))

    with closing(prefetched(whole_records(read_blocks(path), mapping))) as blocks:
        for block in blocks:
            report(block.position // passes - position // passes)
            position = block.position
            if names is None:
                names, block = header_of(block, mapping)  # noqa: PLW2901
            rows = by_line(block, work, mapping)
            numbering.advance(rows)
            yield rows
    if names is None and mapping.positions is None:
        raise DataError(f"{path} is empty: it has no header; leave it out, or fetch it again")


def _parquet_rows(
    path: Path, mapping: Mapping, numbering: "_Numbering", report: Report
) -> Iterator[LogRows]:
    total, size = count_stored(path), path.stat().st_size
    for block in read_row_blocks(path, mapping):
        rows = by_row(
            block,
            lambda table: transform(mapping, typed(table, mapping), numbering.days(len(table))),
        )
        report(size * len(block.table) // total)
        numbering.advance(rows)
        yield rows


class _Numbering:
    """The days of rows that carry none: those of their file's name, or of equal blocks of rows."""

    def __init__(self, mapping: Mapping, sources: Sequence[Path], report: Report) -> None:
        self._mapping, self._row = mapping, 0
        self._file_day: int | None = None
        self._total = 0
        if mapping.row_blocks and mapping.kind == "csv":
            self._total = sum(count_rows(path, mapping, report) for path in sources)
        elif mapping.row_blocks:
            self._total = sum(map(count_stored, sources))

    def enter(self, path: Path) -> None:
        """The next rows are of `path`.

        Raises:
            DataError: its name holds no day.
        """
        if self._mapping.file_day is None:
            return
        found = re.search(self._mapping.file_day, path.name)
        if found is None:
            raise DataError(f"{path}: the name does not match file_day {self._mapping.file_day!r}")
        try:
            self._file_day = int(found.group(1))
        except ValueError:
            raise DataError(
                f"{path}: file_day finds {found.group(1)!r} in the name, which is no number"
            ) from None

    def days(self, rows: int) -> np.ndarray | None:
        """The days of the next `rows` rows, int32 [n]; None where the rows carry them."""
        if self._file_day is not None:
            return np.full(rows, self._file_day, np.int32)
        if self._mapping.row_blocks is None:
            return None
        numbers = np.arange(self._row, self._row + rows) * self._mapping.row_blocks
        return (numbers // self._total).astype(np.int32)

    def advance(self, rows: LogRows) -> None:
        """`rows` are done."""
        self._row += len(rows.days) + sum(map(len, rows.dropped.values()))
