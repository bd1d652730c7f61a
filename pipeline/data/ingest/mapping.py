"""A mapping: which columns a log's files have, what they mean, and which day a row belongs to.

A mapping is a YAML file, not code: of the user, or one of `mappings/` that ship with the package.
docs/data.md says what each key means.
"""

import re
from codecs import lookup
from collections.abc import Iterable
from dataclasses import asdict, fields
from datetime import UTC, datetime
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import AfterValidator, Field, field_validator, model_validator

from pipeline.core.errors import DataError
from pipeline.core.typed_yaml import Section, Zone, read_typed
from pipeline.data.log_store.landing import LogKind
from pipeline.encoding.reading import Reading
from pipeline.encoding.stamps import EPOCHS, StampRule

SHIPPED = Path(__file__).parent / "mappings"
MISSING = ("", "NA", "N/A", "n/a", "na", "null", "NULL", "None", "nan", "NaN", "\\N", "-", "--")
"""How files spell that there is no value."""
NUMBERS = ("bool", "int8", "int16", "int32", "int64", "float32", "float64")
TYPES = {"text": pa.string(), **{name: pa.type_for_alias(name) for name in NUMBERS}}


def _known_encoding(name: str) -> str:
    try:
        TextIOWrapper(BytesIO(), encoding=name)  # refuses codecs that are of no text, as rot13
    except LookupError:
        raise ValueError(f"there is no encoding {name!r}; use a name like latin-1") from None
    return lookup(name).name


Encoding = Annotated[str, AfterValidator(_known_encoding)]


class ColumnRule(Section):
    """Where a column of the log comes from, and its type."""

    source: str
    type: Literal["text", "bool", "int8", "int16", "int32", "int64", "float32", "float64"]


class DateRule(Section):
    """A column with the row's day; `format` is a strptime format such as %Y%m%d."""

    column: str
    format: str

    @field_validator("format")
    @classmethod
    def _says_the_day(cls, form: str) -> str:
        named = ["iso8601", *(EPOCHS if cls is TimeRule else [])]
        day = datetime(2024, 11, 23, tzinfo=UTC)
        if form not in named and datetime.strptime(f"{day:{form}}", form).date() != day.date():
            raise ValueError(f"{form!r} is none of {named} and spells no day with month and year")
        return form

    @property
    def rule(self) -> StampRule:
        """The same for whoever reads stamps: dates are those of a clock in UTC, at midnight or what
        the format says.
        """
        return StampRule(**{"zone": "UTC", **self.model_dump()})


class TimeRule(DateRule):
    """A column with time stamps; the row's day is theirs in the log's time zone.

    Attributes:
        format: iso8601, epoch_s, _ms, _us, _ns, or a strptime format such as %y%m%d%H.
        zone: where the clock hung that wrote stamps without an offset; null: they carry one.
    """

    zone: Zone | None = None


class MadeRule(Section):
    """A column that is made of others.

    Attributes:
        rule: hour (0 to 23) and weekday (1 = Monday) are those of the row's time in the log's
            time zone; above: 1 where `of` > limit; equals: 1 where `of` is one of `values`, null
            where it has no value; marked: the same, and 0 where it has none; within: 1 where the
            time stamp `of` is there and at most `seconds` after the row's time.
        of: a source column.
    """

    rule: Literal["hour", "weekday", "above", "equals", "marked", "within"]
    of: str | None = None
    limit: float | None = None
    values: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    seconds: Annotated[int, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _complete(self) -> "MadeRule":
        known = {"above": ["of", "limit"], "within": ["of", "seconds"]}
        needed = known.get(self.rule, ["of", "values"] if self.rule in ("equals", "marked") else [])
        given = [n for n in ("of", "limit", "values", "seconds") if getattr(self, n) is not None]
        if given != needed:
            raise ValueError(f"the rule {self.rule} takes {needed or 'nothing else'}")
        return self


class Mapping(Section):
    """See docs/data.md.

    Attributes:
        format: name of the log's format; params.yaml repeats it.
        kind: of the files; json has one object a line.
        time_zone: days begin at midnight there.
        select: one SELECT over the relation `log`, the columns of a file (of JSON the one column
            `json`); the columns that it gives take the place of the file's. None: the file's own.
        columns: of the log, in this order, without those of `made`.
        positions: names of the source's columns where the files have no header.
        skip: lines before the header, or before the first row where there is none.
        escape: the character before a quote inside a quoted value; null: the quote itself.
        encoding: of the text, by any of the names that Python knows.
        decimal, thousands: the signs in numbers that are text.
        nulls: spellings of a missing value in text columns; every other text is a value.
        number_nulls: the same for numbers and time stamps.
        max_rejected: so many records of a landing may be unreadable; they are dropped and counted.
        time, date, file_day, row_blocks: exactly one says which day a row belongs to. `file_day`
            is a regular expression whose one group holds a date, or a day's number, in the file's
            name or its folders', `row_blocks` a number of equal blocks; numbers count from
            1970-01-01.
        keep: source column → the texts it may have; other rows are dropped and counted.
        drop_null: source columns; rows without a value there are dropped and counted.
        at_most: source column → another; rows where it is larger are dropped and counted.
        made: columns of the log that are made of others, int8.
    """

    format: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
    kind: Literal["csv", "parquet", "json"]
    time_zone: Zone
    columns: Annotated[dict[str, ColumnRule], Field(min_length=1)]
    select: str | None = None
    positions: tuple[str, ...] | None = None
    skip: Annotated[int, Field(ge=0)] = 0
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    quote: Annotated[str, Field(min_length=1, max_length=1)] | None = '"'
    escape: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    encoding: Encoding = "utf-8"
    decimal: Literal[".", ","] = "."
    thousands: Literal[".", ",", " ", "'"] | None = None
    nulls: tuple[str, ...] = ("",)
    number_nulls: tuple[str, ...] = ("",)
    max_rejected: Annotated[int, Field(ge=0)] = 0
    time: TimeRule | None = None
    date: DateRule | None = None
    file_day: re.Pattern[str] | None = None
    row_blocks: Annotated[int, Field(ge=1)] | None = None
    keep: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    drop_null: tuple[str, ...] = ()
    at_most: dict[str, str] = Field(default_factory=dict)
    made: dict[str, MadeRule] = Field(default_factory=dict)

    @field_validator("columns", mode="before")
    @classmethod
    def _short(cls, columns: Any) -> Any:
        """`click: int8` is short for `click: {source: click, type: int8}`."""
        if not isinstance(columns, dict):
            return columns
        return {
            name: {"source": name, "type": rule} if isinstance(rule, str) else rule
            for name, rule in columns.items()
        }

    @field_validator("delimiter", "quote", "escape")
    @classmethod
    def _one_byte(cls, character: str | None) -> str | None:
        if character is not None and (not character.isascii() or character in "\r\n"):
            raise ValueError(f"{character!r} is no ASCII character within a line")
        return character

    @field_validator("file_day")
    @classmethod
    def _one_group(cls, pattern: re.Pattern[str] | None) -> re.Pattern[str] | None:
        if pattern and pattern.groups != 1:
            raise ValueError(f"it has {pattern.groups} groups; the one group holds the day")
        return pattern

    @model_validator(mode="after")
    def _consistent(self) -> "Mapping":
        rules = [self.time, self.date, self.file_day, self.row_blocks]
        if sum(rule is not None for rule in rules) != 1:
            raise ValueError("exactly one of time, date, file_day and row_blocks is needed")
        if self.thousands == self.decimal:
            raise ValueError(f"thousands and decimal are both {self.decimal!r}")
        timed = [n for n, rule in self.made.items() if rule.rule in ("hour", "weekday", "within")]
        if timed and self.time is None:
            raise ValueError(f"made columns {timed} need the key time")
        names = [name.lower() for name in (*self.columns, *self.made)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(
                f"{twice} are there twice in columns and in made, where upper and lower case are "
                "one; call one otherwise, as shop_2: {source: Shop, type: text}"
            )
        if self.positions is not None and len(set(self.positions)) < len(self.positions):
            raise ValueError("positions names a column twice")
        unknown = sorted(set(self.source_types) - set(self.positions or self.source_types))
        if unknown and not self.select:
            raise ValueError(f"{unknown} are not among positions")
        compared, no_numbers = {*self.at_most, *self.at_most.values()}, (pa.string(), pa.bool_())
        compared |= {rule.of for rule in self.made.values() if rule.of and rule.rule == "above"}
        words = sorted(name for name in compared if self.source_types[name] in no_numbers)
        if words:
            raise ValueError(
                f"at_most or above compares {words}, which columns do not read as numbers"
            )
        return self

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the landed columns."""
        made = {name: pa.int8() for name in self.made}
        return pa.schema({n: TYPES[rule.type] for n, rule in self.columns.items()} | made)

    @property
    def source_types(self) -> dict[str, pa.DataType]:
        """Source columns that are read, and the one type each is read as."""
        given = [(rule.source, TYPES[rule.type]) for rule in self.columns.values()]
        given += [(rule.column, rule.rule.type) for rule in (self.time, self.date) if rule]
        types: dict[str, pa.DataType] = {}
        for source, kind in given:
            if types.setdefault(source, kind) != kind:
                raise ValueError(
                    f"source column {source} is read as {types[source]} and as {kind}: one type"
                )
        of_made = [self.reading.raw(name) for name in reversed(self.made)]  # the first one decides
        raw = {column: kind for each in of_made for column, (kind, _) in each.items()}
        counts = dict.fromkeys([*self.at_most, *self.at_most.values()], pa.float64())
        return dict.fromkeys([*self.keep, *self.drop_null], pa.string()) | counts | raw | types

    @property
    def reading(self) -> Reading:
        """What of this travels with a model, see `pipeline.encoding.reading`."""
        return Reading.of(self.model_dump(include={field.name for field in fields(Reading)}))

    def log_kind(self) -> LogKind:
        """What all days of the log have in common; no command alone can bring it again."""
        return LogKind(self.format, self.time_zone, self.schema, {}, asdict(self.reading))


def shipped() -> list[str]:
    """Names of the mappings that ship with the package."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def fetched_mapping(name: str) -> Mapping:
    """The mapping of the files of a log that is fetched."""
    return read_typed(SHIPPED / "fetched" / f"{name}.yaml", Mapping, DataError)


def read_mapping(name: str, others: Iterable[str] = ()) -> Mapping:
    """The mapping that ships as `name`, or that of the file `name`.

    Args:
        others: names that need no mapping, listed where there is none of this name.

    Raises:
        DataError: there is none, or a key is unknown, missing, mistyped or contradicts another;
            the sentence names file and key.
    """
    path = SHIPPED / f"{name}.yaml" if name in shipped() else Path(name)
    try:
        return read_typed(path, Mapping, DataError)
    except FileNotFoundError:
        raise DataError(
            f"no mapping {name!r}: it is neither a file nor one of {sorted([*shipped(), *others])}"
        ) from None
