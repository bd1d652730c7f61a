"""The ids of a column's or a field's values: which are known, counted from the days of a log."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.errors import DataError
from pipeline.encoding.values import MARK, NULL_NAME, POOLED_NAME, Column, as_text


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

    More ids may follow those of the values: one of null, then one that all pooled values share.
    They differ from what nobody has seen, which is out of vocabulary (OOV) and has the id 0.

    Attributes:
        values: text, strictly ascending by code point. The id 0 belongs to every value that is
            neither among them nor pooled, and to null where it has no id of its own.
        null: whether null is a value of its own.
        pooled: text, ascending: values that share one id.
    """

    values: tuple[str, ...]
    null: bool = False
    pooled: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for values in (self.values, self.pooled):
            if any(a >= b for a, b in pairwise(values)):
                raise DataError("a vocabulary's values must be strictly ascending; build it again")

    @classmethod
    def of(cls, counts: ValueCounts, max_size: int | None = None) -> "Vocabulary":
        """The `max_size` most frequent values (None: all), ties by name; null is never one."""
        return cls(_ascending(counts.by_frequency().slice(0, max_size)))

    @classmethod
    def of_field(cls, counts: ValueCounts, max_size: int | None = None) -> "Vocabulary":
        """Every value: the `max_size` most frequent have ids of their own (all: None).

        Null is a value of its own where there is one, beside the `max_size`; the other values
        share an id.

        Args:
            counts: of the values.
            max_size: number of values with an id of their own.
        """
        values = counts.by_frequency()
        own = len(values) if max_size is None else max_size
        return cls(
            _ascending(values.slice(0, own)), counts.nulls > 0, _ascending(values.slice(own))
        )

    @classmethod
    def of_names(cls, names: Sequence[str | None], pooled: Sequence[str] = ()) -> "Vocabulary":
        """The vocabulary that has these `names` and pools these values.

        Raises:
            DataError: pooled values have no id, or several, as hashed embeddings once had.
        """
        if [*names].count(POOLED_NAME) != bool(pooled):
            raise DataError(
                f"a vocabulary has {len(pooled)} pooled values for {[*names].count(POOLED_NAME)} "
                "ids, and they share one; build it again (a published model.onnx needs none of it)"
            )
        own = [name for name in names[1:] if name is not None and not name.startswith(MARK)]
        return cls(tuple(own), NULL_NAME in names, tuple(pooled))

    def ids(self, keys: Column) -> np.ndarray:
        """The id of every key: int32 [n] in [0, len(self)], 0 where unknown."""
        keys = as_text(keys)
        places = pc.index_in(keys, value_set=self._value_set).fill_null(len(self._value_set))
        ids = self._id_at[places.to_numpy(zero_copy_only=False)]
        if self.null and keys.null_count:
            ids[keys.is_null().to_numpy(zero_copy_only=False)] = self.null_id
        return ids

    def is_pooled(self, ids: np.ndarray) -> np.ndarray:
        """Whether each of the `ids` [n] is the one that pooled values share: bool [n]."""
        return (ids == self.pooled_id) & bool(self.pooled)

    @property
    def null_id(self) -> int:
        """The id of null."""
        return len(self.values) + 1 if self.null else 0

    @property
    def pooled_id(self) -> int:
        """The id that pooled values share, the last one."""
        return len(self)

    @property
    def names(self) -> list[str | None]:
        """The value of every id: None for the id 0, NULL_NAME, POOLED_NAME."""
        marked = [NULL_NAME] * self.null + [POOLED_NAME] * bool(self.pooled)
        return [None, *self.values, *marked]

    def __len__(self) -> int:
        return len(self.values) + self.null + bool(self.pooled)

    @cached_property
    def _value_set(self) -> pa.StringArray:
        return pa.array([*self.values, *self.pooled], pa.string())

    @cached_property
    def _id_at(self) -> np.ndarray:
        """The ids of `_value_set`, in its order, and of what is not in it: int32."""
        own = np.arange(1, len(self.values) + 1, dtype=np.int32)
        return np.concatenate(
            [own, np.full(len(self.pooled), self.pooled_id, np.int32), [0]], dtype=np.int32
        )


def _ascending(values: pa.ChunkedArray) -> tuple[str, ...]:
    return tuple(values.sort().to_pylist()) if len(values) else ()
