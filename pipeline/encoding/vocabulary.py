"""The ids of a column's or a field's values: which are known, counted from the days of a log."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.errors import DataError
from pipeline.encoding.values import (
    NULL_NAME,
    PAIR,
    PARENT,
    POOLED_NAME,
    SEPARATOR,
    Column,
    as_text,
)


class ValueCounts:
    """How often each value of one column or field came, counted a day at a time.

    Attributes:
        nulls: number of nulls.
        counts: `values` (text, each once) and `counts` (int64); names of parents among them.
    """

    def __init__(self, *days: Column) -> None:
        self.nulls = 0
        self.counts = pa.table({"values": pa.array([], pa.string()), "counts": pa.array([], "i8")})
        for keys in days:
            self.add(keys)

    def add(self, keys: Column) -> None:
        """Count the keys of more rows, text [n]."""
        self.add_counts(pa.Table.from_struct_array(pc.value_counts(as_text(keys))))

    def add_counts(self, counts: pa.Table) -> None:
        """Add what was counted elsewhere: `values` (text, null among them) and `counts`."""
        known = counts.select(["values", "counts"]).filter(pc.is_valid(counts["values"]))
        self.nulls += pc.sum(counts.filter(pc.is_null(counts["values"]))["counts"]).as_py() or 0
        both = pa.concat_tables([self.counts, known]).group_by("values")
        added = both.aggregate([("counts", "sum")]).rename_columns({"counts_sum": "counts"})
        self.counts = added.select(["values", "counts"])

    def by_frequency(self, without: Sequence[str] = ()) -> pa.ChunkedArray:
        """The values that are not among some, the most frequent first, equals by name."""
        known = pc.is_in(self.counts["values"], value_set=pa.array(without, pa.string()))
        order = [("counts", "descending"), ("values", "ascending")]
        return self.counts.filter(pc.invert(known)).sort_by(order)["values"]


@dataclass(frozen=True)
class Vocabulary:
    """Known values of one column or field; id = position + 1.

    Two ids may be of no single value: that of null (NULL_NAME) and one that all pooled values share
    (POOLED_NAME). They differ from what nobody has seen, which is out of vocabulary (OOV) and has
    the id 0. Where values have parents these have ids, too, which are those of the values that have
    none of their own, and so have pairs of a value and its parents; nothing is pooled then.

    Attributes:
        own: the name of every id from 1 on: values, each once, those two where they are, and names
            of pairs and parents.
        pooled: text: values that share one id.
    """

    own: tuple[str, ...]
    pooled: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        everything = (*self.own, *self.pooled)
        one_id = self.own.count(POOLED_NAME) == bool(self.pooled)
        if len(set(everything)) < len(everything) or not one_id:
            raise DataError(
                "a vocabulary has each value once, and one id for pooled ones; build it again"
            )

    @classmethod
    def of(cls, counts: ValueCounts, max_size: int | None = None) -> "Vocabulary":
        """The `max_size` most frequent values (None: all), ascending, ties by name; never null."""
        return cls(_ascending(counts.by_frequency().slice(0, max_size)))

    def extended(self, counts: ValueCounts, max_size: int | None = None) -> "Vocabulary":
        """Every value of more rows beside the known ones, whose ids stay.

        As long as there are fewer than `max_size` values with ids of their own (None: ever), the
        most frequent new ones get some, in ascending order; the others share one. Null is a value
        of its own where there is one, beside the `max_size`.

        Args:
            counts: of the values.
            max_size: number of values with an id of their own.
        """
        names = counts.by_frequency(without=(*self.own, *self.pooled))
        of_parents = pc.starts_with(names, PARENT)
        new, parents = names.filter(pc.invert(of_parents)), names.filter(of_parents)
        most = len(self.own) + len(names) if max_size is None else max_size
        taken = len(self.values) + len(self.pairs)
        room, above = max(most - taken, 0), max(most - len(self.parents), 0)
        pooled = () if len(parents) or self.parents else _ascending(new.slice(room))
        null = (NULL_NAME,) if counts.nulls and NULL_NAME not in self.own else ()
        mark = (POOLED_NAME,) if pooled and not self.pooled else ()
        first = _ascending(new.slice(0, room))
        own = (*self.own, *first, *null, *mark, *_ascending(parents.slice(0, above)))
        if len(own) + len(pooled) == len(self.own):
            return self
        return Vocabulary(own, (*self.pooled, *pooled))

    @classmethod
    def of_names(cls, names: Sequence[str | None], pooled: Sequence[str] = ()) -> "Vocabulary":
        """The vocabulary that has these `names`, None first, and pools these values.

        Raises:
            DataError: pooled values have no id, or several, as hashed embeddings once had.
        """
        return cls(tuple(name for name in names[1:] if name is not None), tuple(pooled))

    def ids(
        self, keys: Column, above: Callable[[pa.Array], Iterable[Column]] | None = None
    ) -> np.ndarray:
        """The id of every pair, or else of its key, or of its first known parent: int32 [n] in
        [0, len(self)].

        0 where none is known; null has its own id where it has one and nothing above is known.

        Args:
            keys: text [n].
            above: of some rows the names of pairs and of parents, from near to far, text each.
        """
        keys = as_text(keys)
        ids = self.named(keys)
        rows = np.flatnonzero(self.may_be_pairs[ids]) if above else ids[:0]
        for place, names in enumerate(above(pa.array(rows)) if above and len(rows) else ()):
            named, so_far = self.named(names), ids[rows]
            first, then = (so_far, named) if place else (named, so_far)
            ids[rows] = np.where(first, first, then)
        if self.null_id and keys.null_count:
            ids[keys.is_null().to_numpy(zero_copy_only=False) & (ids == 0)] = self.null_id
        return ids

    def named(self, names: Column) -> np.ndarray:
        """The id that has each of some names [n], pooled values among them: int32, 0 where there is
        none.
        """
        places = pc.index_in(names, value_set=self._all_names).fill_null(-1)
        ids = places.to_numpy(zero_copy_only=False).astype(np.int32) + 1
        return np.where(ids > len(self), np.int32(self.pooled_id), ids)

    def is_pooled(self, ids: np.ndarray) -> np.ndarray:
        """Whether each of the `ids` [n] is the one that pooled values share: bool [n]."""
        return (ids == self.pooled_id) & bool(self.pooled)

    @cached_property
    def values(self) -> tuple[str, ...]:
        """The values with ids of their own, in the order of these."""
        return tuple(self.value_ids)

    @cached_property
    def value_ids(self) -> dict[str, int]:
        """The ids of `values`."""
        return {name: n for n, name in enumerate(self.own, 1) if _is_value(name)}

    @cached_property
    def pairs(self) -> dict[str, int]:
        """The ids of the keys of pairs."""
        return self._marked(PAIR)

    @cached_property
    def may_be_pairs(self) -> np.ndarray:
        """Of which ids rows may have pairs with ids of their own: bool [len(self) + 1], of the id 0
        and of values whose other pairs came later than they.
        """
        parts = (key.split(SEPARATOR) for key in self.pairs)
        values = {SEPARATOR.join(key[:n]) for key in parts for n in range(1, len(key))}
        return np.array([True, *(name in values for name in self.own)])

    @cached_property
    def parents(self) -> dict[str, int]:
        """The ids of the keys of parents."""
        return self._marked(PARENT)

    def _marked(self, mark: str) -> dict[str, int]:
        named = enumerate(self.own, 1)
        return {name.removeprefix(mark): n for n, name in named if name.startswith(mark)}

    def levels(self, depth: int) -> np.ndarray:
        """int64 [len(self) + 1]: of every id 0, or k of a k-th parent; of the id 0 one more.

        Args:
            depth: how many parents a value has, whether or not any of a level is known.
        """
        parts = [name.count(SEPARATOR) if name.startswith(PARENT) else 0 for name in self.own]
        return np.array([depth + 1, *(part and depth + 1 - part for part in parts)])

    @cached_property
    def null_id(self) -> int:
        """The id of null; 0 where it has none of its own."""
        return self._id_of(NULL_NAME)

    @cached_property
    def pooled_id(self) -> int:
        """The id that pooled values share; 0 where there are none."""
        return self._id_of(POOLED_NAME)

    def _id_of(self, name: str) -> int:
        return self.own.index(name) + 1 if name in self.own else 0

    @property
    def names(self) -> list[str | None]:
        """The value of every id: None for the id 0, NULL_NAME, POOLED_NAME."""
        return [None, *self.own]

    def __len__(self) -> int:
        return len(self.own)

    @cached_property
    def _all_names(self) -> pa.StringArray:
        return pa.array([*self.own, *self.pooled], pa.string())


def _is_value(name: str) -> bool:
    return name not in (NULL_NAME, POOLED_NAME) and not name.startswith((PAIR, PARENT))


def _ascending(values: pa.ChunkedArray) -> tuple[str, ...]:
    return tuple(values.sort().to_pylist()) if len(values) else ()
