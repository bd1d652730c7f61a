"""The ids of a column's or a field's values: which are known, counted from the days of a log."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.errors import DataError
from pipeline.encoding.hashing import hashes, shares
from pipeline.encoding.values import MARK, NULL_NAME, POOLED_NAME, Column, as_text

TAIL = 10  # values of a tail that are known, for each value with an id of its own


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
