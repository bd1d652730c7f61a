"""The generic reader: by a mapping rows of files become rows of the log, and these landed days."""

import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from collections.abc import Mapping as Names
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from itertools import takewhile
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.errors import DataError
from pipeline.core.files import sha256_of
from pipeline.core.work import prefetched
from pipeline.data.ingest.mapping import MISSING, TYPES, Mapping
from pipeline.data.ingest.records import AHEAD, LogFile, too_many
from pipeline.data.ingest.text_files import reading
from pipeline.data.log_store import landing
from pipeline.data.log_store.day_rows import local_days
from pipeline.data.log_store.day_writer import DayWriter, Part
from pipeline.data.log_store.landing import DEFAULTS, Landed, LandingOptions, Over, one_by_one
from pipeline.encoding.stamps import OWN_NAME, time_stamps
from pipeline.encoding.values import Column, as_text, numbers_of
from pipeline.formats.days import EPOCH, day_name, day_number

REJECTED = "cannot be read"
TELLING = re.compile(r".*=.*|[\d_:.-]*\d[\d_:.TZ-]*")  # folders that tell files of one name apart


@dataclass(frozen=True)
class LogRows:
    """Rows of the log.

    Attributes:
        table: columns of the mapping's schema, [n] rows.
        days: int32 [n], days since 1970-01-01.
        dropped: rule → the days of the rows it left out, int32.
        dayless: rule → how many rows it left out that have no day.
    """

    table: pa.Table
    days: np.ndarray
    dropped: Names[str, np.ndarray]
    dayless: Names[str, int]


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
    kind, quiet = mapping.log_kind(), replace(options, report=DEFAULTS.report)
    if landing.is_other_kind(folder, kind):  # a typo is to be told first
        next(read_rows(mapping, sources[0], quiet), None)
    read_by = options if over is one_by_one else quiet  # what reports cannot travel
    bring = partial(_parts_of, sources, mapping, read_by, over)
    return landing.land_parts(folder, kind, bring, options, over)


def _parts_of(
    sources: Sequence[Path], mapping: Mapping, options: LandingOptions, over: Over, folder: Path
) -> Iterator[tuple[str, Part]]:
    """What files bring of each day: here all of them together, else each whoever reads it."""
    place = folder.absolute()
    here = Path().absolute()  # where those that read may not be
    first, newest, dayless = dict[str, Path](), day_name(0), Counter[str]()
    before, total = _rows_before(mapping, sources) if mapping.row_blocks else ({}, 1)

    def read(paths: Sequence[Path]) -> tuple[dict[str, Part], list[tuple[Path, str, Counter[str]]]]:
        own = Path(mkdtemp(dir=place))  # another one where the work begins again elsewhere
        writer, files = DayWriter(own, mapping.schema), []
        for path in paths:
            without, came = Counter[str](), False
            with reading(path):
                sha256 = sha256_of(here / path) if (here / path).is_file() else ""
            found = read_rows(mapping, path, options, here, (before.get(path, 0), total))
            with closing(prefetched(found, AHEAD)) as ahead:
                for rows in ahead:
                    writer.add(rows.table, rows.days, (_name_of(path), sha256))
                    for rule, days in rows.dropped.items():
                        writer.drop(rule, days)
                    without.update(rows.dayless)
                    came = True
            files.append((path, sha256 if came else "", without))
        return dict(writer.parts()), files

    together = [sources] if over is one_by_one else [[path] for path in sources]
    for _, (parts, files) in over(read, together, "read", "files"):
        for path, sha256, without in files:
            if sha256 and not options.event_id:
                refuse_equal(path, sha256, first)
            dayless.update(without)
            if dayless[REJECTED] > mapping.max_rejected:
                raise DataError(f"{path}{too_many(dayless[REJECTED], mapping)}")
        newest = max([newest, *parts])
        yield from parts.items()
    last = DayWriter(Path(mkdtemp(dir=place)), mapping.schema)
    for rule, count in dayless.items():
        last.drop(rule, np.full(count, day_number(newest)))
    yield from last.parts()


def refuse_equal(path: Path, sha256: str, first: dict[str, Path]) -> None:
    """Refuse a file whose bytes are those of one before it; `first` has those, by their sha256."""
    if sha256 in first:
        raise DataError(
            f"{path} holds the same bytes as {first[sha256]}: every row would count twice; name "
            "one of them alone, or log.event_id in params.yaml, by which duplicates are dropped"
        )
    first[sha256] = path


def _rows_before(mapping: Mapping, sources: Sequence[Path]) -> tuple[dict[Path, int], int]:
    """How many rows come before those of each file, and how many there are in all."""
    before, total = dict[Path, int](), 0
    for path in sources:
        before.setdefault(path, total)
        total += LogFile(path, mapping).count()
    return before, total


def read_rows(
    mapping: Mapping,
    path: Path,
    options: LandingOptions = DEFAULTS,
    folder: Path = Path(),
    place: tuple[int, int] = (0, 1),
) -> Generator[LogRows, None, None]:
    """The rows of a file, block by block, and how many could not be read.

    The label is looked at where it counts no impressions.

    Args:
        mapping: how the file is read.
        path: of the file.
        options: see `land_files`.
        folder: where the file lies, if its path is relative.
        place: for equal blocks of rows, how many come before this file's, and how many are in all.

    Raises:
        DataError: as `land_files`.
    """
    file, label = folder / path, options.label if not options.impressions else None
    file_day = _day_in_name(mapping.file_day, path) if mapping.file_day else None
    before, total = place

    def work(table: pa.Table) -> LogRows:
        days = None  # the rows carry them
        if file_day is not None:
            days = np.full(len(table), file_day, np.int32)
        if mapping.row_blocks:
            numbers = np.arange(len(table)) + before + log.row
            days = (numbers * mapping.row_blocks // total).astype(np.int32)
        return transform(mapping, table, days, label)

    log = LogFile(file, mapping)
    yield from log.worked(work, options.report)
    if log.rejected:
        empty, none = mapping.schema.empty_table(), np.zeros(0, np.int32)
        yield LogRows(empty, none, {}, {REJECTED: log.rejected})


def _name_of(path: Path) -> str:
    """A file's name, after the folders that it lies in whose names are key=value, days or hours."""
    folders = takewhile(TELLING.fullmatch, reversed(path.parts[:-1]))
    return "/".join([*reversed(list(folders)), path.name])


def _refuse_no_response(rows: pa.Table, label: str) -> None:
    values = numbers_of(rows, label)
    wrong = values[~np.isnan(values) & (values != 0) & (values != 1)]
    if len(wrong):
        raise DataError(
            f"column {label} is {wrong[0]:g}: the response of a row, log.label of params.yaml, is "
            "0 or 1; repair it, leave such rows out by keep of the mapping, or name log.impressions"
        )


def _day_in_name(pattern: re.Pattern[str], path: Path) -> int:
    """The day that a file's name, or else its path, holds, in days since 1970-01-01.

    Raises:
        DataError: it holds none.
    """
    found = pattern.search(path.name) or pattern.search(path.as_posix())
    if found is None:
        raise DataError(f"{path}: the name does not match file_day {pattern.pattern!r}")
    text = found.group(1)
    try:
        numbered = text.isdigit() and len(text) != len("20240401")
        return int(text) if numbered else (date.fromisoformat(text) - EPOCH).days
    except ValueError:
        raise DataError(
            f"{path}: file_day finds {text!r}, no day's number nor like 2024-04-01 or 20240401"
        ) from None


def transform(
    mapping: Mapping, table: pa.Table, days: np.ndarray | None, label: str | None
) -> LogRows:
    """Rows of a file as rows of the log.

    Rules that leave out rows come first: such a row needs no day.

    Args:
        table: columns of `mapping.source_types`, [n] rows; of text files as text.
        days: int32 [n], where the mapping has no time and no date column.
        label: the column with responses, in which nothing may be a no that is missing.

    Raises:
        DataError: a value does not fit its type, a time stamp or day is null or is not spelled as
            the mapping says, a label is neither 0, 1 nor null, or a text that it is made of says
            that it is missing.
    """
    source = _typed(table, mapping)
    stays, dropped, dayless = np.ones(len(source), bool), {}, {}
    for rule, keeps in _rules(mapping, source).items():
        left = stays & ~np.asarray(keeps, bool)
        stays &= ~left
        if left.any():
            gone = source.filter(pa.array(left))
            try:
                dropped[rule] = _days_of(mapping, gone, None if days is None else days[left])[1]
            except (DataError, pa.ArrowException):
                dayless[rule] = len(gone)
    kept = source if stays.all() else source.filter(pa.array(stays))
    stamps, known = _days_of(mapping, kept, None if days is None else days[stays])
    columns = {name: kept[rule.source] for name, rule in mapping.columns.items()}
    for name, made in mapping.made.items():
        if name == label and made.values and made.of not in mapping.keep:
            _refuse_missing(kept[made.of], str(made.of), made.values)
        columns[name] = mapping.reading.make(name, kept, stamps)
    rows = pa.table(columns, schema=mapping.schema)
    if label in columns:
        _refuse_no_response(rows, str(label))
    return LogRows(rows, known, dropped, dayless)


def _refuse_missing(column: pa.ChunkedArray, name: str, values: Iterable[str]) -> None:
    missing = {*pc.unique(column).to_pylist()} & ({*MISSING} - {*values})
    if missing:
        raise DataError(
            f"column {name} is {min(missing)!r}, which would count as no response; list it "
            "in nulls where it is missing, or in keep, beside all other texts, where it means no"
        )


def _days_of(
    mapping: Mapping, source: pa.Table, days: np.ndarray | None
) -> tuple[pa.ChunkedArray | None, np.ndarray]:
    """The instants of rows, None where the mapping has no time or date, and their days."""
    rule = mapping.time or mapping.date
    if rule is None:
        assert days is not None
        return None, days
    stamps = time_stamps(source[rule.column], rule.rule)
    if stamps.null_count:
        raise DataError(
            f"column {rule.column} has no {'time stamp' if mapping.time else 'date'}, so the row "
            "has no day; fill it in, or remove the row"
        )
    is_instant = mapping.time or getattr(source[rule.column].type, "tz", None)
    try:
        return stamps, local_days(stamps, mapping.time_zone if is_instant else "UTC")
    except (OverflowError, DataError, pa.ArrowInvalid):
        written = source[rule.column].cast(pa.string())
        raise DataError(
            f"column {rule.column} is {written[0]}, outside the calendar or at its ends; correct it"
        ) from None


def _rules(mapping: Mapping, source: pa.Table) -> dict[str, Column]:
    """Rule → which rows keep it, bool [n]."""
    rules = {f"{name} is null": source[name].is_valid() for name in mapping.drop_null}
    for name, values in mapping.keep.items():
        accepted = pc.is_in(as_text(source[name]), value_set=pa.array(values, pa.string()))
        rules[f"{name} is not {' or '.join(values)}"] = accepted
    for name, limit in mapping.at_most.items():
        larger = pc.greater(source[name], source[limit]).fill_null(False)
        rules[f"{name} > {limit}"] = pc.invert(larger)
    return rules


def _typed(table: pa.Table, mapping: Mapping) -> pa.Table:
    """The columns with the types that the mapping declares; text by the rule of `as_text`."""
    columns, stamps = {}, {rule.column for rule in (mapping.time, mapping.date) if rule}
    stamps |= {made.of for made in mapping.made.values() if made.of and made.rule == "within"}
    for name, kind in mapping.source_types.items():
        try:
            columns[name] = mapping.reading.typed(table[name], kind, is_stamp=name in stamps)
        except (DataError, pa.ArrowException) as error:
            raise DataError(_fault(name, table[name], kind, mapping, str(error))) from None
    return pa.table(columns)


def _fault(
    name: str, column: pa.ChunkedArray, kind: pa.DataType, mapping: Mapping, said: str
) -> str:
    """What is wrong with a column of one row; with more rows nobody reads it."""
    value = None if kind == pa.string() else column[0].as_py()
    if not isinstance(value, str):
        return f"column {name}: {said.splitlines()[0]}"
    if value.strip() == name:
        return f"column {name} is {value!r}, {OWN_NAME}"
    word = next(word for word, declared in TYPES.items() if declared == kind)
    return f"column {name} is {value!r}, which is no {word}{_step(value, mapping)}"


def _step(value: str, mapping: Mapping) -> str:
    if re.fullmatch(r"[+-]?\d{1,3}([,.]\d{3})+", value):
        sign = "," if "," in value else "."
        return (
            f"; where {sign} parts thousands, say thousands: '{sign}' in the mapping, and where it "
            f"is the decimal sign, decimal: '{sign}'"
        )
    if re.fullmatch(r"[+-]?\d+,\d+", value) and mapping.decimal == ".":
        return "; where a comma is the decimal sign, say decimal: ',' in the mapping"
    if re.search(r"\d", value):
        return "; correct the value, or the column's type in the mapping"
    return (
        "; in the mapping number_nulls lists spellings of a missing number, and a made column by "
        "the rule equals is 1 where a text is one of its values"
    )
