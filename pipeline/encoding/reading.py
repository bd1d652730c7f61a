"""How a log's files were read: what is null, how numbers and stamps are spelled, what is made of
columns. It travels with a model, so that rows that are scored are read as the log was.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.errors import DataError
from pipeline.encoding.stamps import StampRule, time_stamps
from pipeline.encoding.values import Column, as_numbers, as_text, placed, without_nan

TIMED = ("hour", "weekday", "within")  # rules that need a row's time


@dataclass(frozen=True)
class Making:
    """How a column is made of others; see docs/data.md for the rules.

    Attributes:
        rule: hour, weekday, above, equals, marked or within.
        of: a column of the files; None: the rule needs the time alone.
        limit, values, seconds: what they compare with.
    """

    rule: str
    of: str | None = None
    limit: float | None = None
    values: Sequence[str] | None = None
    seconds: int | None = None


@dataclass(frozen=True)
class Reading:
    """See the head of this module.

    Attributes:
        time_zone: of the log.
        nulls: spellings of a missing value in text.
        number_nulls: the same for numbers and time stamps.
        decimal, thousands: the signs in numbers that are text.
        time: where a row's time stands; None: rows have none.
        made: column of the log → how it is made.
        delimiter, quote: of CSV; None: quotes are characters like any other.
    """

    time_zone: str = "UTC"
    nulls: Sequence[str] = ("",)
    number_nulls: Sequence[str] = ("",)
    decimal: str = "."
    thousands: str | None = None
    time: StampRule | None = None
    made: Mapping[str, Making] = field(default_factory=dict)
    delimiter: str = ","
    quote: str | None = '"'

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Reading":
        """The reading of which `document` is `dataclasses.asdict`."""
        time = StampRule(**document["time"]) if document["time"] else None
        made = {name: Making(**rule) for name, rule in document["made"].items()}
        return cls(**{**document, "time": time, "made": made})

    def typed(self, column: Column, kind: pa.DataType, *, is_stamp: bool = False) -> Column:
        """A column of a file as values of a type; stamps and dates that it has as such stay.

        Args:
            column: [n], of any type.
            kind: text, a boolean or a number; of stamps that are text, what they are read as.
            is_stamp: whether the column holds time stamps or dates.

        Raises:
            DataError or pa.ArrowException: a value does not fit the type.
        """
        if is_stamp and pa.types.is_timestamp(column.type):
            return column
        if is_stamp and pa.types.is_date(column.type):
            return column.cast(pa.string())
        if kind == pa.string():
            return _without(as_text(column), self.nulls)
        if is_text(column):
            return self._numbers(_without(as_text(column), self.number_nulls), kind, is_stamp)
        if pa.types.is_floating(column.type) and not pa.types.is_floating(kind):
            column = pc.floor(without_nan(column)) if is_stamp else without_nan(column)
        return _finite(column, column.cast(kind))

    def names(self, texts: Iterable[str | None], kind: str) -> dict[str, str | None]:
        """What texts of a column to be scored are in the log, where that is another text or null.

        Args:
            texts: values of the column.
            kind: its type in the log. Of numbers and booleans every spelling that the log could
                have is the one value; what could not be in the log stays what it is.
        """
        if kind == "string":
            return dict.fromkeys(self.nulls)
        usual = re.compile("true|false" if kind == "bool" else r"0|-?[1-9]\d*")
        odd = [text for text in {*texts} if text is not None and not usual.fullmatch(text)]
        return dict(zip(odd, self._named(odd, pa.type_for_alias(kind)), strict=True))

    def _named(self, texts: list[str], kind: pa.DataType) -> list[str | None]:
        try:
            return as_text(self.typed(pa.array(texts, pa.string()), kind)).to_pylist()
        except (DataError, pa.ArrowException):
            several = texts if len(texts) > 1 else []
            return [name for text in several for name in self._named([text], kind)] or [*texts]

    def _numbers(self, text: pa.StringArray, kind: pa.DataType, is_stamp: bool) -> pa.Array:
        """Spelled numbers, white space around them passed over; of stamps the whole part."""
        decimal, thousands = self.decimal, self.thousands
        if thousands == " ":
            text = pc.replace_substring_regex(text, "[\u00a0\u202f]", " ")
        if thousands:
            sign, point = re.escape(thousands), re.escape(decimal)
            grouped = rf"^[+-]?\d{{1,3}}({sign}\d{{3}})+({point}\d*)?$"
            whole = pc.replace_substring(text, thousands, "")
            text = pc.if_else(pc.match_substring_regex(text, grouped), whole, text)
        for sign in "xX." if decimal == "," else "xX":  # Arrow takes 0x1f for a whole number
            if pc.any(odd := pc.match_substring(text, sign)).as_py():
                said = pc.binary_join_element_wise(text, "no number", " is ")
                text = pc.if_else(odd, said, text)
        if decimal == ",":
            text = pc.replace_substring(text, ",", ".")
        try:
            return _finite(text, text.cast(kind))
        except pa.ArrowInvalid:
            text = pc.utf8_trim(text, " \t")
            if is_stamp:
                text = pc.replace_substring_regex(text, r"^(\d+)\.\d+$", r"\1")
            return _finite(text, text.cast(kind))

    def raw(self, name: str) -> dict[str, tuple[pa.DataType, bool]]:
        """The columns of the files of which the column `name` is made: their type where they are
        text, and whether they hold stamps.
        """
        rule, columns = self.made[name], {}
        if self.time and rule.rule in TIMED:
            columns[self.time.column] = self.time.type, True
        if rule.of:
            plain = pa.float64() if rule.rule == "above" else pa.string()
            stamp = columns.get(self.time.column) if self.time else None
            columns[rule.of] = stamp or (plain, False)
        return columns

    def served(self, name: str, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """The column `name` of rows as they were before landing: int8 [n].

        Args:
            rows: the columns that `raw` names, in any spelling.

        Raises:
            DataError: a value does not fit; the column is named.
        """
        typed, timed = {}, self.time if self.made[name].rule in TIMED else None
        try:
            for column, (kind, is_stamp) in self.raw(name).items():
                with placed(f"column {column}: "):
                    typed[column] = self.typed(rows.column(column), kind, is_stamp=is_stamp)
            source = pa.table(typed)
            stamps = time_stamps(source[timed.column], timed) if timed else None
            return self.make(name, source, stamps)
        except pa.ArrowException as error:
            raise DataError(f"column {column}: {str(error).splitlines()[0]}") from None

    def make(self, name: str, source: pa.Table, stamps: Column | None) -> pa.Array:
        """The column `name`, made of typed columns: int8 [n].

        Args:
            source: the column that the rule is of, if it is of any.
            stamps: the rows' instants; None where rows have no time.
        """
        rule = self.made[name]
        return self._made(rule, source, stamps).cast(pa.int8())

    def _made(self, rule: Making, source: pa.Table, stamps: Column | None) -> pa.Array:
        if rule.rule == "above":
            return pc.greater(source[rule.of], pa.scalar(rule.limit).cast(source[rule.of].type))
        if rule.values is not None:
            text = as_text(source[rule.of])
            found = pc.is_in(text, value_set=pa.array(rule.values, pa.string()))
            said = text.is_valid() if rule.rule == "equals" else pa.scalar(True)
            return pc.if_else(said, found, pa.scalar(None, pa.bool_()))
        assert stamps is not None
        assert self.time is not None
        if rule.rule == "within":
            later = time_stamps(source[rule.of], replace(self.time, column=str(rule.of)))
            seconds = (_microseconds(later) - _microseconds(stamps)) / 1e6
            return pa.array((seconds >= 0) & (seconds <= rule.seconds))
        zoned = stamps.cast(pa.timestamp(stamps.type.unit, self.time_zone))
        local = pc.local_timestamp(zoned)  # wall-clock times in the log's zone
        if rule.rule == "hour":
            return pc.hour(local)
        return pc.day_of_week(local, count_from_zero=False, week_start=1)


def is_text(column: Column) -> bool:
    """Whether a column holds texts, in any of Arrow's types for them."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def _finite(written: Column, numbers: Column) -> Column:
    """The numbers, of which none is infinite that was not written so."""
    if pa.types.is_floating(numbers.type) and pc.any(odd := pc.is_inf(numbers)).as_py():
        words = written.filter(odd).cast(pa.string())
        if pc.any(pc.match_substring_regex(words, r"\d")).as_py():
            raise DataError(f"a number is too large for {numbers.type}")
    return numbers


def _microseconds(stamps: Column) -> Any:
    return as_numbers(stamps.cast(pa.timestamp("us", stamps.type.tz)).cast(pa.int64()))


def _without(text: pa.StringArray, nulls: Sequence[str]) -> pa.StringArray:
    """`text` with the spellings `nulls` as null."""
    if not nulls:
        return text
    missing = reduce(pc.or_, (pc.equal(text, null) for null in nulls))
    if not pc.any(missing).as_py():
        return text
    return pc.if_else(missing, pa.scalar(None, pa.string()), text)
