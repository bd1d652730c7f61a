"""Rows of a source as rows of the log: types, days, dropped rows and made columns."""

from collections.abc import Mapping as Names
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.errors import DataError
from pipeline.data.ingest.mapping import EPOCHS, OWN_NAME, DateRule, MadeRule, Mapping, TimeRule
from pipeline.data.log_store.day_rows import (
    iso_stamps,
    leap_seconds_as_59,
    local_days,
    refuse_other_epoch_unit,
    wall_instants,
)
from pipeline.encoding.values import as_numbers, as_text
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
    for name, made in mapping.made.items():
        columns[name] = _made(mapping, made, kept, stamps).cast(pa.int8())
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
        stamps = time_stamps(source[mapping.time.column], mapping.time)
        if mapping.time.format in EPOCHS:
            refuse_other_epoch_unit(stamps.cast(pa.int64()), stamps.type.unit)
        return stamps, _days_of_stamps(stamps, mapping)
    if mapping.date:
        return None, _days_of_dates(source[mapping.date.column], mapping.date)
    assert days is not None
    return None, days


def time_stamps(column: pa.ChunkedArray, rule: TimeRule) -> pa.ChunkedArray:
    """The instants of a time column, in UTC, no finer than microseconds; null stays null.

    Raises:
        DataError: a text is not spelled as the rule says, or stamps have no zone and the rule
            names none.
    """
    stamps = _spelled(column, rule)
    if stamps.type.unit == "ns":
        whole = pc.floor_temporal(stamps, unit="microsecond")
        stamps = whole.cast(pa.timestamp("us", stamps.type.tz))
    return stamps if stamps.type.tz else wall_instants(stamps, rule.zone)


def _spelled(column: pa.ChunkedArray, rule: TimeRule) -> pa.ChunkedArray:
    """The stamps of a column as they are spelled, with a zone or without."""
    if pa.types.is_timestamp(column.type):
        return column
    if rule.format in EPOCHS:
        return column.cast(pa.timestamp(EPOCHS[rule.format], "UTC"))
    zone = None if rule.zone else "UTC"
    if rule.format == "iso8601":
        try:
            return iso_stamps(column).cast(pa.timestamp("us", zone))
        except pa.ArrowInvalid as error:
            raise DataError(_no_iso_stamp(rule, str(error))) from None
    coded = column.combine_chunks().dictionary_encode()
    parsed = [_parsed(text, rule) for text in coded.dictionary.to_pylist()]
    return pa.chunked_array([pa.array(parsed, pa.timestamp("us", zone)).take(coded.indices)])


def _no_iso_stamp(rule: TimeRule, fault: str) -> str:
    """What is wrong with a stamp that Arrow refused: its offset, or all of it."""
    text = fault.partition("'")[2].rpartition("' as")[0]
    if text == rule.column:
        return f"column {rule.column} is {text!r}, {OWN_NAME}"
    sentence = f"column {rule.column} is {text!r}, no ISO 8601 time stamp"
    try:
        has_offset = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return f"{sentence}; where all are spelled so, time.format takes a pattern, %d.%m.%Y %H:%M"
    if has_offset:
        return f"{sentence} without offset; leave time.zone out of the mapping"
    return f"{sentence} with an offset; say where its clock hung, time: {{…, zone: Europe/Berlin}}"


def _parsed(text: str, rule: TimeRule) -> datetime:
    try:
        stamp = datetime.strptime(leap_seconds_as_59(pa.array([text]))[0].as_py(), rule.format)
    except ValueError:
        raise DataError(_not_of_form(text, rule)) from None
    if (stamp.tzinfo is None) == (rule.zone is None):
        raise DataError(
            f"column {rule.column}: stamps of the form {rule.format} "
            + (
                "carry an offset, so time.zone must be null"
                if rule.zone
                else "carry no offset; say where their clock hung, time: {…, zone: Europe/Berlin}"
            )
        )
    return stamp


def _not_of_form(text: str, rule: TimeRule | DateRule) -> str:
    if text == rule.column:
        return f"column {rule.column} is {text!r}, {OWN_NAME}"
    key = "date" if isinstance(rule, DateRule) else "time"
    return (
        f"column {rule.column} is {text!r}, in no calendar or not of the form {rule.format}; "
        f"correct the value, or {key}.format of the mapping"
    )


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
        raise DataError(_not_of_form(text, rule)) from None


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


def _made(
    mapping: Mapping, made: MadeRule, source: pa.Table, stamps: pa.ChunkedArray | None
) -> pa.Array:
    if made.rule == "above":
        return pc.greater(source[made.of], pa.scalar(made.limit).cast(source[made.of].type))
    if made.rule == "equals":
        text = as_text(source[made.of])
        found = pc.is_in(text, value_set=pa.array(made.values, pa.string()))
        return pc.if_else(text.is_valid(), found, pa.scalar(None, pa.bool_()))
    assert mapping.time is not None
    assert stamps is not None
    if made.rule == "within":
        later = time_stamps(source[made.of], mapping.time)
        seconds = (
            as_numbers(later.cast(pa.timestamp("us", later.type.tz)).cast(pa.int64()))
            - as_numbers(stamps.cast(pa.timestamp("us", stamps.type.tz)).cast(pa.int64()))
        ) / 1e6
        return pa.array((seconds >= 0) & (seconds <= made.seconds))
    local = _local(stamps, mapping)
    if made.rule == "hour":
        return pc.hour(local)
    return pc.day_of_week(local, count_from_zero=False, week_start=1)


def _local(stamps: pa.ChunkedArray, mapping: Mapping) -> pa.ChunkedArray:
    """Wall-clock times in the log's zone."""
    return pc.local_timestamp(stamps.cast(pa.timestamp(stamps.type.unit, mapping.time_zone)))
