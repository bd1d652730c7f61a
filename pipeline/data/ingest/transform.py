"""Rows of a source as rows of the log: types, days, dropped rows and made columns."""

import re
from collections.abc import Iterable
from collections.abc import Mapping as Names
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.errors import DataError
from pipeline.data.ingest.mapping import MISSING, TYPES, Mapping
from pipeline.data.log_store.day_rows import local_days
from pipeline.encoding.stamps import OWN_NAME, time_stamps
from pipeline.encoding.values import Column, as_text


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


def transform(
    mapping: Mapping, source: pa.Table, days: np.ndarray | None = None, label: str | None = None
) -> LogRows:
    """`source` as rows of the log.

    Rules that leave out rows come first: such a row needs no day.

    Args:
        source: columns of `mapping.source_types`, [n] rows.
        days: int32 [n], where the mapping has no time and no date column.
        label: the column with responses, in which nothing may be a no that is missing.

    Raises:
        DataError: a time stamp or day is null or is not spelled as the mapping says, or a text that
            the label is made of says that it is missing.
    """
    stays, dropped, dayless = np.ones(len(source), bool), {}, {}
    for rule, keeps in _rules(mapping, source).items():
        left = stays & ~np.asarray(keeps, bool)
        stays &= ~left
        if left.any():
            rows = source.filter(pa.array(left))
            try:
                dropped[rule] = _days_of(mapping, rows, None if days is None else days[left])[1]
            except (DataError, pa.ArrowException):
                dayless[rule] = len(rows)
    kept = source if stays.all() else source.filter(pa.array(stays))
    stamps, known = _days_of(mapping, kept, None if days is None else days[stays])
    columns = {name: kept[rule.source] for name, rule in mapping.columns.items()}
    for name, made in mapping.made.items():
        if name == label and made.rule == "equals" and made.of not in mapping.keep:
            _refuse_missing(kept[made.of], str(made.of), made.values or ())
        columns[name] = mapping.reading.make(name, kept, stamps)
    table = pa.table(columns, schema=mapping.schema)
    return LogRows(table, known, dropped, dayless)


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
    try:
        return stamps, local_days(stamps, mapping.time_zone if mapping.time else "UTC")
    except OverflowError:
        raise DataError(
            f"column {rule.column} holds a time too near the end of the calendar"
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


def typed(table: pa.Table, mapping: Mapping) -> pa.Table:
    """The columns with the types that the mapping declares; text by the rule of `as_text`.

    Raises:
        DataError: a value does not fit its type.
    """
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
    value = None if len(column) != 1 or kind == pa.string() else column[0].as_py()
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
