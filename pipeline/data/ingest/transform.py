"""Rows of a source as rows of the log: types, days, dropped rows and made columns."""

from collections.abc import Mapping as Names
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.errors import DataError
from pipeline.data.ingest.mapping import EPOCHS, OWN_NAME, DateRule, MadeRule, Mapping, TimeRule
from pipeline.data.log_store.day_rows import leap_seconds_as_59, local_days, refuse_other_epoch_unit
from pipeline.encoding.values import as_numbers, as_text
from pipeline.formats.days import day_number


@dataclass(frozen=True)
class LogRows:
    """Rows of the log.

    Attributes:
        table: columns of the mapping's schema, [n] rows.
        days: int32 [n], days since 1970-01-01.
        dropped: rule → the days of the rows it left out, int32.
        source: name and sha256 of the file that they are from; "" where it is not known.
    """

    table: pa.Table
    days: np.ndarray
    dropped: Names[str, np.ndarray]
    source: tuple[str, str] = ("", "")


def transform(mapping: Mapping, source: pa.Table, days: np.ndarray | None = None) -> LogRows:
    """`source` as rows of the log.

    Args:
        source: columns of `mapping.source_types`, [n] rows.
        days: int32 [n], where the mapping has no time and no date column.

    Raises:
        DataError: a time stamp or day is null or is not spelled as the mapping says.
    """
    stamps = None
    if mapping.time:
        stamps = time_stamps(source[mapping.time.column], mapping.time)
        if mapping.time.format in EPOCHS:
            refuse_other_epoch_unit(stamps.cast(pa.int64()), stamps.type.unit)
        days = _days_of_stamps(stamps, mapping)
    elif mapping.date:
        days = _days_of_dates(source[mapping.date.column], mapping.date)
    assert days is not None
    kept, dropped = _kept(mapping, source, days)
    columns = {name: source[rule.source] for name, rule in mapping.columns.items()}
    for name, made in mapping.made.items():
        columns[name] = _made(mapping, made, source, stamps).cast(pa.int8())
    table = pa.table(columns, schema=mapping.schema)
    if kept is None:
        return LogRows(table, days, dropped)
    return LogRows(table.filter(pa.array(kept)), days[kept], dropped)


def time_stamps(column: pa.ChunkedArray, rule: TimeRule) -> pa.ChunkedArray:
    """The instants of a time column, in UTC, in the unit they were written; null stays null.

    Raises:
        DataError: a text is not spelled as the rule says.
    """
    if pa.types.is_timestamp(column.type):
        return column
    if rule.format in EPOCHS:
        return column.cast(pa.timestamp(EPOCHS[rule.format], "UTC"))
    zone = None if rule.zone else "UTC"
    if rule.format == "iso8601":
        try:
            return leap_seconds_as_59(column).cast(pa.timestamp("us", zone))
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
        return local_days(stamps, mapping.time_zone, mapping.time.zone)
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


def _kept(
    mapping: Mapping, source: pa.Table, days: np.ndarray
) -> tuple[np.ndarray | None, dict[str, np.ndarray]]:
    """Which rows stay, bool [n] (None: all), and the days of the others by rule."""
    kept, dropped = np.ones(len(days), bool), {}
    rules = {f"{name} is null": source[name].is_valid() for name in mapping.drop_null}
    for name, values in mapping.keep.items():
        accepted = pc.is_in(as_text(source[name]), value_set=pa.array(values, pa.string()))
        rules[f"{name} is not {' or '.join(values)}"] = accepted
    for name, limit in mapping.at_most.items():
        larger = pc.greater(source[name], source[limit]).fill_null(False)
        rules[f"{name} > {limit}"] = pc.invert(larger)
    for rule, stays in rules.items():
        wrong = kept & ~stays.to_numpy(zero_copy_only=False).astype(bool)
        if wrong.any():
            dropped[rule] = days[wrong]
            kept &= ~wrong
    return (kept if dropped else None), dropped


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
    assert mapping.time is not None
    if stamps.type.tz is None:
        if mapping.time.zone == mapping.time_zone:
            return stamps
        stamps = pc.assume_timezone(
            stamps, mapping.time.zone, ambiguous="earliest", nonexistent="earliest"
        )
    zoned = stamps.cast(pa.timestamp(stamps.type.unit, mapping.time_zone))
    return pc.local_timestamp(zoned)
