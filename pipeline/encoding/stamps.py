"""Time stamps as logs spell them, as instants; one rule for landing and for serving."""

from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.errors import DataError
from pipeline.encoding.values import Column
from pipeline.formats.days import day_name

OWN_NAME = "which is the column's own name, as in a second header; remove that line"
EPOCHS = {"epoch_s": "s", "epoch_ms": "ms", "epoch_us": "us", "epoch_ns": "ns"}
SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
EARLIEST, LATEST = -62_135_596_800_000_000, 253_402_300_799_999_999  # years 1 to 9999, in µs
USUAL_YEARS = (631_152_000, 4_102_444_800)  # 1990 and 2100 as seconds since 1970


@dataclass(frozen=True)
class StampRule:
    """A column with time stamps.

    Attributes:
        format: iso8601, epoch_s, _ms, _us, _ns, or a strptime format such as %y%m%d%H.
        zone: where the clock hung that wrote stamps without an offset; None: they carry one.
    """

    column: str
    format: str
    zone: str | None = None

    @property
    def type(self) -> pa.DataType:
        """What the column is read as where it is text."""
        return pa.int64() if self.format in EPOCHS else pa.string()


def time_stamps(column: pa.ChunkedArray, rule: StampRule) -> pa.ChunkedArray:
    """The instants of a time column, in UTC, no finer than microseconds; null stays null.

    Raises:
        DataError: a text is not spelled as the rule says, or stamps have no zone and the rule
            names none.
    """
    stamps = _spelled(column, rule)
    if rule.format in EPOCHS:
        refuse_other_epoch_unit(stamps.cast(pa.int64()), stamps.type.unit)
    if stamps.type.unit == "ns":
        whole = pc.floor_temporal(stamps, unit="microsecond")
        stamps = whole.cast(pa.timestamp("us", stamps.type.tz))
    return stamps if stamps.type.tz else wall_instants(stamps, rule.zone)


def _spelled(column: pa.ChunkedArray, rule: StampRule) -> pa.ChunkedArray:
    """The stamps of a column as they are spelled, with a zone or without."""
    if pa.types.is_timestamp(column.type):
        return column
    if rule.format in EPOCHS:
        return column.cast(pa.timestamp(EPOCHS[rule.format], "UTC"))
    zone = None if rule.zone else "UTC"
    if rule.format == "iso8601":
        try:
            texts = pc.replace_substring_regex(column, r" ?(?:UTC|GMT)$", "Z")
            texts = pc.replace_substring_regex(texts, r"(:\d\d)[.,](\d{1,6})\d*", r"\1.\2")
            return texts.cast(pa.timestamp("us", zone))  # what is finer was cut off
        except pa.ArrowInvalid as error:
            raise DataError(_no_iso_stamp(rule, str(error))) from None
    coded = column.combine_chunks().dictionary_encode()
    parsed = [_parsed(text, rule) for text in coded.dictionary.to_pylist()]
    return pa.chunked_array([pa.array(parsed, pa.timestamp("us", zone)).take(coded.indices)])


def _no_iso_stamp(rule: StampRule, fault: str) -> str:
    """What is wrong with a stamp that Arrow refused: its offset, or all of it."""
    text = fault.partition("'")[2].rpartition("' as")[0]
    if text == rule.column:
        return f"column {rule.column} is {text!r}, {OWN_NAME}"
    sentence = f"column {rule.column} is {text!r}, no ISO 8601 time stamp"
    try:
        has_offset = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        has_offset = None
    if has_offset and rule.zone:
        return f"{sentence} without offset; leave time.zone out of the mapping"
    if has_offset is False and not rule.zone:
        where = "say where its clock hung, time: {…, zone: Europe/Berlin}"
        return f"{sentence} with an offset; {where}"
    step = "correct it, or where all are spelled so, time.format takes a pattern, %d.%m.%Y %H:%M"
    return f"{sentence} of the calendar; {step}"


def _parsed(text: str, rule: StampRule) -> datetime:
    try:
        stamp = datetime.strptime(text, rule.format)
    except ValueError:
        if text == rule.column:
            raise DataError(f"column {rule.column} is {text!r}, {OWN_NAME}") from None
        raise DataError(
            f"column {rule.column} is {text!r}, in no calendar or not of the form {rule.format}; "
            "correct the value, or the column's format in the mapping"
        ) from None
    if (stamp.tzinfo is None) == (rule.zone is None):
        fault = "carry an offset, so time.zone must be null"
        if rule.zone is None:
            fault = "carry no offset; say where their clock hung, time: {…, zone: Europe/Berlin}"
        raise DataError(f"column {rule.column}: stamps of the form {rule.format} {fault}")
    return stamp


def wall_instants(stamps: Column, time_zone: str | None) -> pa.ChunkedArray:
    """Wall-clock times of `time_zone` as instants, in microseconds in UTC; null stays null.

    The first of two where clocks go back; where they skip a time, the first one after.

    Raises:
        DataError: no zone is given, or a time is outside the years 1 to 9999.
    """
    if time_zone is None:
        raise DataError(
            "time stamps without a zone belong to no day for certain; say where their clock hung, "
            "time: {…, zone: Europe/Berlin} in the mapping"
        )
    wall = stamps.cast(pa.timestamp("us"))
    ends = pc.min_max(wall.cast(pa.int64())).as_py()
    if not EARLIEST <= (ends["min"] or 0) <= (ends["max"] or 0) <= LATEST:
        raise DataError("a time stamp is in no calendar year, 1 to 9999; correct it")
    found = pc.assume_timezone(wall, time_zone, ambiguous="earliest", nonexistent="latest")
    return found.cast(pa.timestamp("us", "UTC"))


def refuse_other_epoch_unit(numbers: Column, unit: str) -> None:
    """Refuse a number that is a time of 1990 to 2100 in another unit than `unit`, and not in it.

    Units differ by a thousand and those years by less, so at most one unit fits. Small numbers,
    as of a log that counts from 0, fit none.

    Args:
        numbers: [n] whole numbers since 1970-01-01T00:00Z, or null.
        unit: s, ms, us or ns.

    Raises:
        DataError: there is one; the unit that fits is named.
    """
    values = numbers.drop_null().to_numpy().astype(np.float64)
    for other, per_second in SECOND.items():
        seconds = values / per_second
        fits = (seconds >= USUAL_YEARS[0]) & (seconds < USUAL_YEARS[1])
        if other != unit and fits.any():
            value = int(values[fits][0])
            day = day_name(int(seconds[fits][0]) // 86400)
            raise DataError(
                f"{value} is read as {unit} since 1970, which is no time of our years, but as "
                f"{other} it is on {day}; correct the format of the time stamps: epoch_{other}"
            )
