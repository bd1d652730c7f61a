"""The generic reader: files and a mapping become landed days, in bounded memory."""

import re
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import date
from itertools import takewhile
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pyarrow as pa

from pipeline.core.errors import DataError
from pipeline.core.files import sha256_of
from pipeline.core.work import prefetched
from pipeline.data.ingest.mapping import Mapping
from pipeline.data.ingest.records import opened, worked
from pipeline.data.ingest.transform import LogRows, transform, typed
from pipeline.data.log_store import landing
from pipeline.data.log_store.day_writer import DayWriter, Part
from pipeline.data.log_store.landing import DEFAULTS, Landed, LandingOptions, Over, one_by_one
from pipeline.encoding.values import as_numbers
from pipeline.formats.days import EPOCH, day_name, day_number

REJECTED = "cannot be read"


def land_files(
    folder: Path,
    mapping: Mapping,
    sources: Sequence[Path],
    options: LandingOptions = DEFAULTS,
    over: Over = one_by_one,
) -> Landed:
    """Land the days of `sources` in `folder`; see `DayMerge` for days that have landed.

    Args:
        folder: the log's folder.
        mapping: how the files are read.
        sources: files, read in this order.
        options: see `land_parts`. Where an event id is named a file may come twice.
        over: reads files, and then makes days of their rows: here, or in processes, which report
            themselves. The same bytes.

    Raises:
        DataError: a file is not what the mapping says; it is named, with line or row. Or two files
            with rows are equal byte for byte, and no event id distinguishes their rows.
    """
    if over is not one_by_one:
        options = replace(options, report=DEFAULTS.report)  # what reports cannot travel
    kind = mapping.log_kind()
    if landing.is_other_kind(folder, kind):  # a typo is to be told first
        next(read_rows(mapping, sources[0], replace(options, report=DEFAULTS.report)), None)

    def parts(place: Path) -> Iterator[tuple[str, Part]]:
        return _parts_of(sources, mapping, options, place=place.absolute(), over=over)

    return landing.land_parts(folder, kind, parts, options, over)


def _parts_of(
    sources: Sequence[Path], mapping: Mapping, options: LandingOptions, *, place: Path, over: Over
) -> Iterator[tuple[str, Part]]:
    """What files bring of each day: here all of them together, else each whoever reads it."""
    here = Path().absolute()  # where those that read may not be
    first, newest, dayless = dict[str, Path](), day_name(0), Counter[str]()
    before, total = _rows_before(mapping, sources) if mapping.row_blocks else ({}, 1)

    def read(paths: Sequence[Path]) -> tuple[dict[str, Part], list[tuple[Path, str, Counter[str]]]]:
        own = Path(mkdtemp(dir=place))  # another one where the work begins again elsewhere
        writer, files = DayWriter(own, mapping.schema), []
        for path in paths:
            without, sha256 = Counter[str](), ""
            found = read_rows(mapping, path, options, here, (before.get(path, 0), total))
            with closing(prefetched(found)) as ahead:
                for rows in ahead:
                    writer.add(rows.table, rows.days, rows.source)
                    for rule, days in rows.dropped.items():
                        writer.drop(rule, days)
                    without.update(rows.dayless)
                    sha256 = rows.source[1]
            files.append((path, sha256, without))
        return dict(writer.parts()), files

    together = [sources] if over is one_by_one else [[path] for path in sources]
    for _, (parts, files) in over(read, together, "read", "files"):
        for path, sha256, without in files:
            if sha256 and not options.event_id:
                _refuse_again(path, first.get(sha256))
                first[sha256] = path
            dayless.update(without)
            if dayless[REJECTED] > mapping.max_rejected:
                raise DataError(f"{path}{_too_many(dayless[REJECTED], mapping)}")
        newest = max([newest, *parts])
        yield from parts.items()
    last = DayWriter(Path(mkdtemp(dir=place)), mapping.schema)
    for rule, count in dayless.items():
        last.drop(rule, np.full(count, day_number(newest)))
    yield from last.parts()


def _rows_before(mapping: Mapping, sources: Sequence[Path]) -> tuple[dict[Path, int], int]:
    """How many rows come before those of each file, and how many there are in all."""
    before, total = dict[Path, int](), 0
    for path in sources:
        before.setdefault(path, total)
        with opened(path, mapping) as file:
            total += file.count()
    return before, total


def read_rows(
    mapping: Mapping,
    path: Path,
    options: LandingOptions = DEFAULTS,
    folder: Path = Path(),
    place: tuple[int, int] = (0, 1),
) -> Generator[LogRows, None, None]:
    """The rows of a file, block by block, and how many could not be read.

    The label, where it counts no impressions, must be 0, 1 or null.

    Args:
        mapping: how the file is read.
        path: of the file.
        options: see `land_files`.
        folder: where the file lies, if its path is relative.
        place: for equal blocks of rows, how many come before this file's, and how many are in all.

    Raises:
        DataError: as `land_files`.
    """
    days, label = _Days(mapping, path, *place), options.label if not options.impressions else None
    file = folder / path
    source = _name_of(path), sha256_of(file) if file.is_file() else ""

    def work(table: pa.Table) -> LogRows:
        rows = transform(mapping, typed(table, mapping), days.of_next(len(table)), label)
        if label in rows.table.column_names:
            _refuse_no_response(rows.table[label], str(label))
        return rows

    for rows in worked(file, mapping, work, options.report, reject=days.reject):
        days.row += rows.came
        yield replace(rows, source=source)
    if days.rejected:
        empty, none = mapping.schema.empty_table(), np.zeros(0, np.int32)
        yield LogRows(empty, none, {}, {REJECTED: days.rejected}, source)


def _refuse_again(path: Path, first: Path | None) -> None:
    """Refuse a file whose rows have come with another one."""
    if first:
        raise DataError(
            f"{path} holds the same bytes as {first}: every row would count twice; name one of "
            "them alone, or log.event_id in params.yaml, by which duplicates are dropped"
        )


def _name_of(path: Path) -> str:
    """A file's name, after the folders key=value that it lies in."""
    folders = takewhile(lambda name: "=" in name, reversed(path.parts[:-1]))
    return "/".join([*reversed(list(folders)), path.name])


def _refuse_no_response(column: pa.ChunkedArray, label: str) -> None:
    values = as_numbers(column)
    wrong = values[~np.isnan(values) & (values != 0) & (values != 1)]
    if len(wrong):
        raise DataError(
            f"column {label} is {wrong[0]:g}: the response of a row, log.label of params.yaml, is "
            "0 or 1; repair it, leave such rows out by keep of the mapping, or name log.impressions"
        )


class _Days:
    """The days of rows that carry none, those of their file's name or of equal blocks of rows; and
    how many rows were rejected.
    """

    def __init__(self, mapping: Mapping, path: Path, row: int, total: int) -> None:
        self._mapping, self.row, self._total = mapping, row, total
        self._file_day = _day_in_name(mapping.file_day, path) if mapping.file_day else None
        self.rejected = 0

    def of_next(self, rows: int) -> np.ndarray | None:
        """The days of the next `rows` rows, int32 [n]; None where the rows carry them."""
        if self._file_day is not None:
            return np.full(rows, self._file_day, np.int32)
        if self._mapping.row_blocks is None:
            return None
        numbers = np.arange(self.row, self.row + rows) * self._mapping.row_blocks
        return (numbers // self._total).astype(np.int32)

    def reject(self, sentence: str, records: int = 1) -> None:
        """Leave out records that cannot be read.

        Raises:
            DataError: the mapping does not allow so many.
        """
        self.rejected += records
        self.row += records
        if self.rejected > self._mapping.max_rejected:
            raise DataError(f"{sentence}{_too_many(self.rejected, self._mapping)}")


def _day_in_name(pattern: str, path: Path) -> int:
    """The day that a file's name, or else its path, holds, in days since 1970-01-01.

    Raises:
        DataError: it holds none.
    """
    found = re.search(pattern, path.name) or re.search(pattern, path.as_posix())
    if found is None:
        raise DataError(f"{path}: the name does not match file_day {pattern!r}")
    text = found.group(1)
    try:
        numbered = text.isdigit() and len(text) != len("20240401")
        return int(text) if numbered else (date.fromisoformat(text) - EPOCH).days
    except ValueError:
        raise DataError(
            f"{path}: file_day finds {text!r} in the name, which is no day's number and no date "
            "like 2024-04-01 or 20240401"
        ) from None


def _too_many(rejected: int, mapping: Mapping) -> str:
    most = mapping.max_rejected
    return f"; so {rejected:,} cannot be read, max_rejected allows {most:,}" if most else ""
