"""The generic reader: files and a mapping become landed days, in bounded memory."""

import re
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from collections.abc import Mapping as Names
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import date
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import numpy as np
import pyarrow as pa

from pipeline.core.errors import DataError
from pipeline.core.files import sha256_of
from pipeline.data.ingest.mapping import Mapping
from pipeline.data.ingest.records import LogFile, RowBlock, opened
from pipeline.data.ingest.transform import LogRows, transform
from pipeline.data.ingest.typed_rows import RowError, by_row, typed
from pipeline.data.log_store.day_writer import DayWriter
from pipeline.data.log_store.landing import (
    DEFAULTS,
    Landed,
    LandingOptions,
    LogKind,
    is_other_kind,
    land_days,
)
from pipeline.encoding.values import as_numbers
from pipeline.formats.days import EPOCH

Item = TypeVar("Item")
Report = Callable[[int], None]
REJECTED = "cannot be read"
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
    """Land the days of `sources` in `folder`; see `DayMerge` for days that have landed.

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
    label = options.label if options.impressions is None else None
    if is_other_kind(folder, mapping.log_kind()):
        next(read_rows(mapping, sources[:1], label=label), None)  # a typo is to be told first
    rows = prefetched(read_rows(mapping, sources, report, twice, label))
    return land_rows(folder, mapping.log_kind(), rows, limit_days, options)


def prefetched(items: Generator[Item, None, None]) -> Generator[Item, None, None]:
    """The same items in the same order, the next one made in a thread while one is looked at."""
    with closing(items), ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item


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
        dayless: Counter[str] = Counter()
        with closing(parts):
            for rows in parts:
                wanted = _wanted(rows, met, limit_days)
                if limit_days and in_order and not wanted.any() and len(rows.days):
                    return
                table = rows.table if wanted.all() else rows.table.filter(wanted)
                writer.add(table, rows.days[wanted], rows.source)
                for rule, days in rows.dropped.items():
                    writer.drop(rule, days[np.isin(days, met)] if limit_days else days)
                dayless.update(rows.dayless)
        for rule, count in dayless.items():
            writer.drop(rule, np.full(count, max(writer.numbers, default=0)))

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
    label: str | None = None,
) -> Generator[LogRows, None, None]:
    """The rows of `sources`, block by block; every file's header is read.

    Args:
        twice: `equal_files` that must not hold rows.
        label: column of the log that must be 0, 1 or null; None: none is known.

    Raises:
        DataError: as `land_files`.
    """
    numbering = _Numbering(mapping, sources)
    for position, path in enumerate(sources):
        numbering.enter(path)
        source = _name_of(path), sha256_of(path) if path.is_file() else ""
        for rows in _rows_of(path, mapping, numbering, report, label):
            if position in twice and rows.came:
                raise DataError(
                    f"{path} holds the same bytes as {twice[position]}: every row would count "
                    f"twice; name one of them alone, or log.event_id in params.yaml, by which "
                    f"duplicates are dropped"
                )
            yield replace(rows, source=source)


def _name_of(path: Path) -> str:
    """A file's name, after the folders key=value that it lies in."""
    folders = takewhile(lambda name: "=" in name, reversed(path.parts[:-1]))
    return "/".join([*reversed(list(folders)), path.name])


def _rows_of(
    path: Path, mapping: Mapping, numbering: "_Numbering", report: Report, label: str | None
) -> Iterator[LogRows]:
    def work(table: pa.Table) -> LogRows:
        rows = transform(mapping, typed(table, mapping), numbering.days(len(table)))
        if label in rows.table.column_names:
            _refuse_no_response(rows.table[label], str(label))
        return rows

    size = path.stat().st_size if path.is_file() else 0
    reported = 0
    with opened(path, mapping) as file, closing(prefetched(file.blocks())) as blocks:
        for block in blocks:
            for rows in _accepted(block, work, file, numbering):
                numbering.advance(rows)
                yield rows
            report(int(size * block.read) - reported)
            reported = max(reported, int(size * block.read))
        if file.rejected:
            records = len(file.rejected)
            numbering.reject(f"{path}, record {file.rejected[0]} cannot be read", records)
            none = np.zeros(0, np.int32)
            yield LogRows(mapping.schema.empty_table(), none, {}, {REJECTED: records})
    report(size - reported)


def _accepted(
    block: RowBlock,
    work: Callable[[pa.Table], LogRows],
    file: LogFile,
    numbering: "_Numbering",
) -> Iterator[LogRows]:
    """The rows of a block, without those that do not fit, as far as the mapping allows it."""
    while True:
        try:
            rows = by_row(block, work, file.place_of)
        except RowError as error:
            numbering.reject(str(error), 1)
            place = error.row - block.row
            rows = work(block.table.slice(0, place))
            yield replace(rows, dayless={**rows.dayless, REJECTED: 1})
            block = replace(block, row=error.row + 1, table=block.table.slice(place + 1))
        else:
            yield rows
            return


def _refuse_no_response(column: pa.ChunkedArray, label: str) -> None:
    values = as_numbers(column)
    wrong = values[~np.isnan(values) & (values != 0) & (values != 1)]
    if len(wrong):
        raise DataError(
            f"column {label} is {wrong[0]:g}: the response of a row, log.label of params.yaml, is "
            "0 or 1; repair it, leave such rows out by keep of the mapping, or name log.impressions"
        )


class _Numbering:
    """How many rows came, and were rejected; the days of rows that carry none: those of their
    file's name, or of equal blocks of rows.
    """

    def __init__(self, mapping: Mapping, sources: Sequence[Path]) -> None:
        self._mapping, self._row = mapping, 0
        self._file_day: int | None = None
        self._rejected = 0
        self._total = sum(map(self._count, sources)) if mapping.row_blocks else 0

    def _count(self, path: Path) -> int:
        with opened(path, self._mapping) as file:
            return file.count()

    def enter(self, path: Path) -> None:
        """The next rows are of `path`.

        Raises:
            DataError: its name holds no day.
        """
        if self._mapping.file_day is None:
            return
        pattern = self._mapping.file_day
        found = re.search(pattern, path.name) or re.search(pattern, path.as_posix())
        if found is None:
            raise DataError(f"{path}: the name does not match file_day {pattern!r}")
        try:
            self._file_day = _day_in_name(found.group(1))
        except ValueError:
            raise DataError(
                f"{path}: file_day finds {found.group(1)!r} in the name, which is no day's number "
                "and no date like 2024-04-01 or 20240401"
            ) from None

    def days(self, rows: int) -> np.ndarray | None:
        """The days of the next `rows` rows, int32 [n]; None where the rows carry them."""
        if self._file_day is not None:
            return np.full(rows, self._file_day, np.int32)
        if self._mapping.row_blocks is None:
            return None
        numbers = np.arange(self._row, self._row + rows) * self._mapping.row_blocks
        return (numbers // self._total).astype(np.int32)

    def reject(self, sentence: str, records: int) -> None:
        """Records cannot be read.

        Raises:
            DataError: the mapping does not allow so many.
        """
        self._rejected += records
        most = self._mapping.max_rejected
        if self._rejected > most:
            more = f"; so {self._rejected:,} cannot be read, max_rejected allows {most:,}"
            raise DataError(f"{sentence}{more if most else ''}")

    def advance(self, rows: LogRows) -> None:
        """`rows` are done."""
        self._row += rows.came


def _day_in_name(text: str) -> int:
    if text.isdigit() and len(text) != len("20240401"):
        return int(text)
    return (date.fromisoformat(text) - EPOCH).days
