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
from pipeline.data.log_store.landing import DEFAULTS, Landed, LandingOptions, LogKind, Over
from pipeline.encoding.values import as_numbers
from pipeline.formats.days import EPOCH, day_name, day_number

REJECTED = "cannot be read"
Parts = Generator[LogRows, None, None]


def land_files(
    folder: Path,
    mapping: Mapping,
    sources: Sequence[Path],
    options: LandingOptions = DEFAULTS,
    over: Over | None = None,
) -> Landed:
    """Land the days of `sources` in `folder`; see `DayMerge` for days that have landed.

    Args:
        folder: the log's folder.
        mapping: how the files are read.
        sources: files, read in this order.
        options: see `land_days`. Where an event id is named a file may come twice.
        over: has processes read files, and then make days of their rows, several at a time, and
            reports itself; not where the place of a row among all rows says its day, nor with
            `limit_days`. The same bytes.

    Raises:
        DataError: a file is not what the mapping says; it is named, with line or row. Or two files
            with rows are equal byte for byte, and no event id distinguishes their rows.
    """
    kind = mapping.log_kind()
    if landing.is_other_kind(folder, kind):  # a typo is to be told first
        next(read_rows(mapping, sources[:1], replace(options, report=DEFAULTS.report)), None)
    if over is None or len(sources) == 1 or mapping.row_blocks or options.limit_days:
        return land_rows(folder, kind, read_rows(mapping, sources, options), options)

    def parts(place: Path) -> Iterator[tuple[str, Part]]:
        return _parts_of(sources, mapping, options, place=place.absolute(), over=over)

    return landing.land_parts(folder, kind, parts, options, over)


def _parts_of(
    sources: Sequence[Path], mapping: Mapping, options: LandingOptions, *, place: Path, over: Over
) -> Iterator[tuple[str, Part]]:
    """What files bring of each day, file after file, each read by whoever `over` has read it."""
    quiet = replace(options, report=DEFAULTS.report)  # what reports cannot travel
    here = Path().absolute()  # where those that read may not be
    first, newest, dayless = dict[str, Path](), day_name(0), Counter[str]()

    def read(path: Path) -> tuple[dict[str, Part], Counter[str], str]:
        own = Path(mkdtemp(dir=place))  # another one where the work begins again elsewhere
        writer, without, sha256 = DayWriter(own, mapping.schema), Counter[str](), ""
        for rows in read_rows(mapping, [path], quiet, here):
            _add(writer, rows, without)
            sha256 = rows.source[1]
        return dict(writer.parts()), without, sha256

    for path, (parts, without, sha256) in over(read, sources, "read", "files"):
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


def _add(writer: DayWriter, rows: LogRows, dayless: Counter[str]) -> None:
    writer.add(rows.table, rows.days, rows.source)
    for rule, days in rows.dropped.items():
        writer.drop(rule, days)
    dayless.update(rows.dayless)


def land_rows(
    folder: Path, kind: LogKind, parts: Parts, options: LandingOptions, *, in_order: bool = True
) -> Landed:
    """Land the days of `parts`, rows of a log of this kind; see `land_files`.

    Args:
        in_order: whether no row of the first `limit_days` days comes after a part without any.
    """

    limit_days = options.limit_days

    def fill(writer: DayWriter) -> None:
        met: list[int] = []
        dayless: Counter[str] = Counter()
        with closing(prefetched(parts)) as ahead:
            for rows in ahead:
                wanted = _wanted(rows, met, limit_days) if limit_days else rows
                if limit_days and in_order and len(rows.days) and not len(wanted.days):
                    return
                _add(writer, wanted, dayless)
        for rule, count in dayless.items():
            writer.drop(rule, np.full(count, writer.newest))

    return landing.land_days(folder, kind, fill, options)


def _wanted(rows: LogRows, met: list[int], limit_days: int) -> LogRows:
    """Rows of the first `limit_days` days; new days are added to `met`."""
    for day in dict.fromkeys(rows.days.tolist()):
        if len(met) < limit_days and day not in met:
            met.append(day)
    wanted = np.isin(rows.days, met)
    dropped = {rule: days[np.isin(days, met)] for rule, days in rows.dropped.items()}
    return replace(rows, table=rows.table.filter(wanted), days=rows.days[wanted], dropped=dropped)


def refuse_equal(sources: Sequence[Path]) -> None:
    """Refuse files that are equal byte for byte.

    Raises:
        DataError: two are.
    """
    sizes = Counter(path.stat().st_size for path in sources if path.is_file())
    first: dict[str, Path] = {}
    for path in sources:
        if path.is_file() and sizes[path.stat().st_size] > 1:
            sha256 = sha256_of(path)
            if sha256 in first:
                raise DataError(f"{path} holds the same bytes as {first[sha256]}; name one of them")
            first[sha256] = path


def read_rows(
    mapping: Mapping,
    sources: Sequence[Path],
    options: LandingOptions = DEFAULTS,
    folder: Path = Path(),
) -> Parts:
    """The rows of `sources`, block by block; every file's header is read.

    The label, where it counts no impressions, must be 0, 1 or null. Files that are equal must not
    hold rows, unless events have ids.

    Args:
        mapping: how the files are read.
        sources: files.
        options: see `land_files`.
        folder: where relative ones lie.

    Raises:
        DataError: as `land_files`.
    """
    days, first = _Days(mapping, sources), dict[str, Path]()
    label = options.label if options.impressions is None else None

    def work(table: pa.Table) -> LogRows:
        rows = transform(mapping, typed(table, mapping), days.of_next(len(table)), label)
        if label in rows.table.column_names:
            _refuse_no_response(rows.table[label], str(label))
        return rows

    for path in sources:
        days.enter(path)
        place = folder / path
        sha256 = sha256_of(place) if place.is_file() else ""
        rejected = days.rejected
        for rows in worked(place, mapping, work, options.report, reject=days.reject):
            days.row += rows.came
            if not options.event_id and rows.came:
                _refuse_again(path, first.get(sha256))
            yield replace(rows, source=(_name_of(path), sha256))
        first.setdefault(sha256, path)
        if left_out := days.rejected - rejected:
            empty, none = mapping.schema.empty_table(), np.zeros(0, np.int32)
            yield LogRows(empty, none, {}, {REJECTED: left_out}, (_name_of(path), sha256))


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
    how many rows came, and were rejected.
    """

    def __init__(self, mapping: Mapping, sources: Sequence[Path]) -> None:
        self._mapping, self.row, self.rejected = mapping, 0, 0
        self._file_day: int | None = None
        self._total = 0
        for path in sources if mapping.row_blocks else ():
            with opened(path, mapping) as file:
                self._total += file.count()

    def enter(self, path: Path) -> None:
        """The next rows are of `path`.

        Raises:
            DataError: its name holds no day.
        """
        pattern = self._mapping.file_day
        if pattern is None:
            return
        found = re.search(pattern, path.name) or re.search(pattern, path.as_posix())
        if found is None:
            raise DataError(f"{path}: the name does not match file_day {pattern!r}")
        text = found.group(1)
        try:
            numbered = text.isdigit() and len(text) != len("20240401")
            self._file_day = int(text) if numbered else (date.fromisoformat(text) - EPOCH).days
        except ValueError:
            raise DataError(
                f"{path}: file_day finds {text!r} in the name, which is no day's number and no "
                "date like 2024-04-01 or 20240401"
            ) from None

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


def _too_many(rejected: int, mapping: Mapping) -> str:
    most = mapping.max_rejected
    return f"; so {rejected:,} cannot be read, max_rejected allows {most:,}" if most else ""
