"""Rows of a source as rows of the log: types, days, dropped rows and made columns."""

from collections.abc import Mapping as Names
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.errors import DataError
from pipeline.data.ingest.mapping import DateRule, Mapping
from pipeline.data.log_store.day_rows import local_days
from pipeline.encoding.stamps import not_of_form, time_stamps
from pipeline.encoding.values import as_text
from pipeline.formats.days import day_number


@dataclass(frozen=True)
class LogRows:
    """Rows of the log.

    Attributes:
        table: columns of the mapping's schema, [n] rows.
        days: int32 [n], days since 1970-01-01.
        dropped: rule → the days of the rows it left out, int32.
        dayless: rule → how many rows it left out that have no day.
        source: name and sha256 of the file that they are from; "" where it is not known.
    """

    table: pa.Table
    days: np.ndarray
    dropped: Names[str, np.ndarray]
    dayless: Names[str, int] = field(default_factory=dict)
    source: tuple[str, str] = ("", "")

    @property
    def came(self) -> int:
        """How many rows there were, with those that were left out."""
        left_out = sum(map(len, self.dropped.values())) + sum(self.dayless.values())
        return len(self.days) + left_out


def transform(mapping: Mapping, source: pa.Table, days: np.ndarray | None = None) -> LogRows:
    """`source` as rows of the log.

    Rules that leave out rows come first: such a row needs no day.

    Args:
        source: columns of `mapping.source_types`, [n] rows.
        days: int32 [n], where the mapping has no time and no date column.

    Raises:
        DataError: a time stamp or day is null or is not spelled as the mapping says.
    """
    rules = _rules(mapping, source)
    rule_of = _first_broken(rules, len(source))
    stays = rule_of < 0
    kept = source if stays.all() else source.filter(pa.array(stays))
    stamps, known = _days_of(mapping, kept, None if days is None else days[stays])
    columns = {name: kept[rule.source] for name, rule in mapping.columns.items()}
    for name in mapping.made:
        columns[name] = mapping.reading.make(name, kept, stamps)
    table = pa.table(columns, schema=mapping.schema)
    dropped, dayless = {}, {}
    for place, rule in enumerate(rules):
        left = rule_of == place
        if not left.any():
            continue
        try:
            rows = source.filter(pa.array(left))
            dropped[rule] = _days_of(mapping, rows, None if days is None else days[left])[1]
        except (DataError, pa.ArrowException):
            dayless[rule] = int(left.sum())
    return LogRows(table, known, dropped, dayless)


def _days_of(
    mapping: Mapping, source: pa.Table, days: np.ndarray | None
) -> tuple[pa.ChunkedArray | None, np.ndarray]:
    """The instants of rows, None where the mapping has no time, and their days."""
    if mapping.time:
        stamps = time_stamps(source[mapping.time.column], mapping.time.rule)
        return stamps, _days_of_stamps(stamps, mapping)
    if mapping.date:
        return None, _days_of_dates(source[mapping.date.column], mapping.date)
    assert days is not None
    return None, days


def _days_of_stamps(stamps: pa.ChunkedArray, mapping: Mapping) -> np.ndarray:
    assert mapping.time is not None
    if stamps.null_count:
        raise DataError(
            f"column {mapping.time.column} has no time stamp, so the row has no day; fill it "
            "in, or remove the row"
        )
    try:
        return local_days(stamps, mapping.time_zone)
    except OverflowError:
        raise DataError(
            f"column {mapping.time.column} holds a time stamp too near the end of the calendar"
        ) from None


def _days_of_dates(column: pa.ChunkedArray, rule: DateRule) -> np.ndarray:
    """The days that texts name: int32 [n]."""
    coded = column.combine_chunks().dictionary_encode()
    if coded.null_count:
        raise DataError(
            f"column {rule.column} has no date, so the row has no day; fill it in, or remove "
            "the row"
        )
    days = [day_number(_date(text, rule)) for text in coded.dictionary.to_pylist()]
    return np.array(days, np.int32)[coded.indices.to_numpy()]


def _date(text: str, rule: DateRule) -> str:
    try:
        return datetime.strptime(text, rule.format).date().isoformat()
    except ValueError:
        raise DataError(not_of_form(text, rule.column, rule.format, "date")) from None


def _rules(mapping: Mapping, source: pa.Table) -> dict[str, pa.ChunkedArray]:
    """Rule → which rows keep it, bool [n]."""
    rules = {f"{name} is null": source[name].is_valid() for name in mapping.drop_null}
    for name, values in mapping.keep.items():
        accepted = pc.is_in(as_text(source[name]), value_set=pa.array(values, pa.string()))
        rules[f"{name} is not {' or '.join(values)}"] = accepted
    for name, limit in mapping.at_most.items():
        larger = pc.greater(source[name], source[limit]).fill_null(False)
        rules[f"{name} > {limit}"] = pc.invert(larger)
    return rules


def _first_broken(rules: Names[str, pa.ChunkedArray], rows: int) -> np.ndarray:
    """The position of the first rule that a row breaks, -1 where it breaks none: int [rows]."""
    first = np.full(rows, -1)
    for place, kept in reversed(list(enumerate(rules.values()))):
        first[~kept.to_numpy(zero_copy_only=False).astype(bool)] = place
    return first
