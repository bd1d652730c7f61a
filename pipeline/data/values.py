"""Field values and categories are text: one spelling for every reader, table, artifact and request.

The spelling never depends on how a file happened to store a column, so the id 7 is "7" on a day
that holds integers, on a day that holds text, and in a serving request.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.data.hashing import hashes, shares
from pipeline.errors import DataError

SEPARATOR = "\x1f"
MARK = "\x1e"  # begins a name that is no text of a log
NULL_NAME = f"{MARK}(null)"
POOLED_NAME = f"{MARK}(other)"
LARGEST_EXACT = 2**53  # from here on neighbouring whole numbers share one float64
TAIL = 10  # values of a tail that are known, for each value with an id of its own

Column: TypeAlias = pa.Array | pa.ChunkedArray
NUMBER_TYPES = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_decimal,
)
BINARY_TYPES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
LIST_TYPES = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
TEXT_TYPES = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_null,
)


def _plain(column: Column) -> pa.Array:
    """`column` as one array without dictionary encoding."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        return _plain(column.dictionary_decode())
    return column


def _whole(numbers: pa.Array) -> pa.Array:
    """Float `numbers` as int64, NaN as null."""
    numbers = numbers.cast(pa.float64())
    numbers = pc.if_else(pc.is_nan(numbers), pa.scalar(None, numbers.type), numbers)
    wrong = pc.or_(
        pc.not_equal(numbers, pc.trunc(numbers)), pc.greater_equal(pc.abs(numbers), LARGEST_EXACT)
    )
    row = pc.index(wrong, True).as_py()
    if row >= 0:
        raise DataError(
            f"a float column names values only by whole numbers below 2**53, row {row} has "
            f"{numbers[row].as_py()!r}; write the column as text or integers"
        )
    return numbers.cast(pa.int64())


def _whole_decimals(numbers: pa.Array) -> pa.Array:
    """Decimal `numbers` without their places after the point."""
    widest = pa.decimal256(76) if pa.types.is_decimal256(numbers.type) else pa.decimal128(38)
    try:
        return numbers.cast(widest)
    except pa.ArrowInvalid:
        raise DataError(
            "a decimal column names values only by whole numbers; write the column as text"
        ) from None


def _utf8(column: pa.Array) -> pa.Array:
    """Bytes as text, which is how some Parquet writers store it."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        raise DataError("a column of bytes names values only in UTF-8") from None


def _refuse_lists(column: pa.Array) -> None:
    if any(is_type(column.type) for is_type in LIST_TYPES):
        raise DataError(
            "a column of lists is neither field nor feature, as a row holds several values; name a "
            "column with one value a row"
        )


def as_text(column: Column) -> pa.StringArray:
    """The values of `column` as text; null stays null.

    Text stays as it is ("001", "NA", "null", "TRUE", "" are values like any other). Integers are
    spelled in decimal, every digit of a 64-bit id kept. Booleans are "true" and "false". Floats,
    which is what integers with gaps turn into in many tools, are accepted where every value is a
    whole number below 2**53, and spelled as integers: "7", never "7.0"; NaN is null there. The
    rule looks at values alone, so it does not matter how a log is cut into files. Decimals are
    accepted where they are whole, bytes where they are UTF-8.

    Args:
        column: [n] array, chunked or not, dictionary-encoded or not.

    Raises:
        DataError: a float is not whole or may have lost digits, or the type has no spelling.
    """
    column = _plain(column)
    _refuse_lists(column)
    if pa.types.is_floating(column.type):
        column = _whole(column)
    if pa.types.is_decimal(column.type):
        return _whole_decimals(column).cast(pa.string())
    if any(is_type(column.type) for is_type in BINARY_TYPES):
        return _utf8(column)
    if not any(is_type(column.type) for is_type in TEXT_TYPES):
        raise DataError(f"type {column.type} cannot name values; write the column as text")
    return column.cast(pa.string())


def as_numbers(column: Column) -> np.ndarray:
    """The values of a number column as float64 [n], null as NaN.

    Raises:
        DataError: the column holds text or anything else that is not a number.
    """
    column = _plain(column)
    _refuse_lists(column)
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if not any(is_type(column.type) for is_type in NUMBER_TYPES):
        raise DataError(f"type {column.type} is not a number; write the column as numbers")
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def field_keys(table: pa.Table, columns: Sequence[str]) -> pa.StringArray:
    """The joint value of `columns` in every row: text [n], null where any part is null.

    Several columns are joined by the unit separator "\\x1f".

    Raises:
        DataError: a column is missing, cannot name values, a part of a joint value holds the
            separator itself (two different values could then share a key), or a value begins with
            the mark "\\x1e" of the names that stand for null and for pooled values.
    """
    parts = []
    for name in columns:
        if name not in table.column_names:
            raise DataError(f"column {name} is missing; the table has {table.column_names}")
        try:
            parts.append(as_text(table.column(name)))
        except DataError as error:
            raise DataError(f"column {name}: {error}") from None
        _refuse_row(name, pc.starts_with(parts[-1], MARK), "begins with the reserved mark \\x1e")
    if len(parts) == 1:
        return parts[0]
    for name, part in zip(columns, parts, strict=True):
        _refuse_row(name, pc.match_substring(part, SEPARATOR), "holds the separator \\x1f")
    return pc.binary_join_element_wise(*parts, SEPARATOR, null_handling="emit_null")


def _refuse_row(column: str, wrong: pa.BooleanArray, what: str) -> None:
    row = pc.index(wrong, True).as_py()
    if row >= 0:
        raise DataError(f"column {column} {what} in row {row}; remove it")


class ValueCounts:
    """How often each value of one column or field came, counted a day at a time.

    Attributes:
        nulls: number of nulls.
    """

    def __init__(self, *days: Column) -> None:
        self.nulls = 0
        self._counts = pa.table({"values": pa.array([], pa.string()), "counts": pa.array([], "i8")})
        for keys in days:
            self.add(keys)

    def add(self, keys: Column) -> None:
        """Count the keys of more rows, text [n]."""
        self.nulls += keys.null_count
        more = pa.Table.from_struct_array(pc.value_counts(as_text(keys).drop_null()))
        both = pa.concat_tables([self._counts, more]).group_by("values")
        added = both.aggregate([("counts", "sum")]).rename_columns({"counts_sum": "counts"})
        self._counts = added.select(["values", "counts"])

    def by_frequency(self) -> pa.ChunkedArray:
        """The values, the most frequent first, equals by name."""
        order = [("counts", "descending"), ("values", "ascending")]
        return self._counts.sort_by(order)["values"]


@dataclass(frozen=True)
class Vocabulary:
    """Known values of one column or field, in ascending order; id = position + 1.

    More ids may follow those of the values: one of null, then those that pooled values share, each
    of which is found by a hash of its text: the share of `shared_ids` equal ones in which the first
    half of `hashing.hashes` lies, so it depends on no other value and on no machine. They are told
    from what nobody has seen, which has the id 0.

    Attributes:
        values: text, strictly ascending by code point. The id 0 belongs to every value that is
            neither among them nor pooled, and to null where it has no id of its own.
        null: whether null is a value of its own.
        pooled: text, ascending: values that share ids.
        shared_ids: number of ids that they share; 0 where none is pooled.
    """

    values: tuple[str, ...]
    null: bool = False
    pooled: tuple[str, ...] = ()
    shared_ids: int = 0

    def __post_init__(self) -> None:
        for values in (self.values, self.pooled):
            if any(a >= b for a, b in pairwise(values)):
                raise DataError("a vocabulary's values must be strictly ascending; build it again")
        if bool(self.pooled) != bool(self.shared_ids):
            raise DataError(
                f"a vocabulary has {len(self.pooled)} pooled values for {self.shared_ids} ids that "
                "they share; build it again"
            )

    @classmethod
    def of(
        cls, counts: ValueCounts, max_size: int | None = None, tail_rows: int = 0
    ) -> "Vocabulary":
        """The most frequent values, ties kept by name; null is never one of them.

        The `max_size` first have ids of their own. The TAIL times as many after them are the tail,
        which is pooled; all the others are unknown, so that what is kept has a bound.

        Args:
            counts: of the values.
            max_size: number of values with an id of their own; None: all.
            tail_rows: number of ids that the tail shares, but no more than it has values; 0: its
                values are unknown too.
        """
        own, others = _parted(counts, max_size)
        tail = others.slice(0, TAIL * len(own) if tail_rows else 0)
        shared_ids = min(tail_rows, len(tail))
        return cls(_ascending(own), pooled=_ascending(tail), shared_ids=shared_ids)

    @classmethod
    def of_field(cls, counts: ValueCounts, max_size: int | None = None) -> "Vocabulary":
        """Every value: the `max_size` most frequent have ids of their own (all: None).

        Null is a value of its own where there is one, beside the `max_size`; the other values
        share an id.

        Args:
            counts: of the values.
            max_size: number of values with an id of their own.
        """
        own, others = _parted(counts, max_size)
        return cls(_ascending(own), counts.nulls > 0, _ascending(others), min(1, len(others)))

    @classmethod
    def of_names(cls, names: Sequence[str | None], pooled: Sequence[str] = ()) -> "Vocabulary":
        """The vocabulary that has these `names` and pools these values."""
        own = [name for name in names[1:] if name is not None and not name.startswith(MARK)]
        return cls(tuple(own), NULL_NAME in names, tuple(pooled), [*names].count(POOLED_NAME))

    def ids(self, keys: Column) -> np.ndarray:
        """The id of every key: int32 [n] in [0, len(self)], 0 where unknown."""
        keys = as_text(keys)
        places = pc.index_in(keys, value_set=self._value_set).fill_null(len(self._value_set))
        ids = self._id_at[places.to_numpy(zero_copy_only=False)]
        if self.null and keys.null_count:
            ids[keys.is_null().to_numpy(zero_copy_only=False)] = self.null_id
        return ids

    def is_pooled(self, ids: np.ndarray) -> np.ndarray:
        """Whether each of the `ids` [n] is one that pooled values share: bool [n]."""
        return ids > len(self) - self.shared_ids

    @property
    def null_id(self) -> int:
        """The id of null."""
        return len(self.values) + 1 if self.null else 0

    @cached_property
    def pooled_ids(self) -> np.ndarray:
        """The id of every pooled value: int32 [number of pooled values]."""
        first = len(self) - self.shared_ids + 1
        half = hashes(pa.array(self.pooled, pa.string()))[:, 0]
        return (first + shares(half, self.shared_ids)).astype(np.int32)

    @property
    def names(self) -> list[str | None]:
        """The value of every id: None for the id 0, NULL_NAME, POOLED_NAME."""
        marked = [NULL_NAME] * self.null + [POOLED_NAME] * self.shared_ids
        return [None, *self.values, *marked]

    def __len__(self) -> int:
        return len(self.values) + self.null + self.shared_ids

    @cached_property
    def _value_set(self) -> pa.StringArray:
        return pa.array([*self.values, *self.pooled], pa.string())

    @cached_property
    def _id_at(self) -> np.ndarray:
        """The ids of `_value_set`, in its order, and of what is not in it: int32."""
        own = np.arange(1, len(self.values) + 1, dtype=np.int32)
        return np.concatenate([own, self.pooled_ids, np.zeros(1, np.int32)])


def _parted(counts: ValueCounts, first: int | None) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """The `first` most frequent values (all where None), and the others, in that order too."""
    values = counts.by_frequency()
    first = len(values) if first is None else first
    return values.slice(0, first), values.slice(first)


def _ascending(values: pa.ChunkedArray) -> tuple[str, ...]:
    return tuple(values.sort().to_pylist()) if len(values) else ()
