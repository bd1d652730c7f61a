"""The ids of a column's or a field's values: which are known, counted from the days of a log.

Which parent each field value belongs to, and since when.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.errors import DataError
from pipeline.encoding.values import (
    NULL_NAME,
    PARENT,
    POOLED_NAME,
    SEPARATOR,
    Column,
    as_text,
    field_keys,
    parent_names,
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
        more = pc.value_counts(as_text(keys).drop_null())
        self.add_counts(pa.Table.from_struct_array(more), keys.null_count)

    def add_counts(self, counts: pa.Table, nulls: int) -> None:
        """Add what was counted elsewhere."""
        self.nulls += nulls
        both = pa.concat_tables([self.counts, counts]).group_by("values")
        added = both.aggregate([("counts", "sum")]).rename_columns({"counts_sum": "counts"})
        self.counts = added.select(["values", "counts"])

    def by_frequency(self, without: Sequence[str] = ()) -> pa.ChunkedArray:
        """The values that are not among some, the most frequent first, equals by name."""
        known = pc.is_in(self.counts["values"], value_set=pa.array(without, pa.string()))
        order = [("counts", "descending"), ("values", "ascending")]
        return self.counts.filter(pc.invert(known)).sort_by(order)["values"]


SHARED = (NULL_NAME, POOLED_NAME)


@dataclass(frozen=True)
class Vocabulary:
    """Known values of one column or field; id = position + 1.

    Two ids may be of no single value: that of null (NULL_NAME) and one that all pooled values share
    (POOLED_NAME). They differ from what nobody has seen, which is out of vocabulary (OOV) and has
    the id 0. Where values have parents these have ids, too, which are those of the values that have
    none of their own; nothing is pooled then.

    Attributes:
        own: the name of every id from 1 on: values, each once, those two where they are, and names
            of parents.
        pooled: text: values that share one id.
    """

    own: tuple[str, ...]
    pooled: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        everything = (*self.own, *self.pooled)
        if len(set(everything)) < len(everything):
            raise DataError("a vocabulary has each value once; build it again")
        if (POOLED_NAME in self.own) != bool(self.pooled):
            raise DataError(
                f"a vocabulary has {len(self.pooled)} pooled values for "
                f"{self.own.count(POOLED_NAME)} ids, and they share one; build it again (a "
                "published model.onnx needs none of it)"
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
        room, above = (max(most - len(known), 0) for known in (self.values, self.parents))
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

    def ids(self, keys: Column, parents: Sequence[Column] = ()) -> np.ndarray:
        """The id of every key, or else of its nearest known parent: int32 [n] in [0, len(self)].

        0 where neither is known; null has its own id where it has one and no known parent.

        Args:
            keys: text [n].
            parents: names of the parents, text [n] each, from near to far.
        """
        keys = as_text(keys)
        places = pc.index_in(keys, value_set=self._value_set).fill_null(len(self._value_set))
        ids = self._id_at[places.to_numpy(zero_copy_only=False)]
        for above in parents:
            if (rows := np.flatnonzero(ids == 0)).size:
                ids[rows] = self.named(above.take(pa.array(rows)))
        if self.null_id and keys.null_count:
            ids[keys.is_null().to_numpy(zero_copy_only=False) & (ids == 0)] = self.null_id
        return ids

    def named(self, names: Column) -> np.ndarray:
        """The id that has each of some names [n]: int32, 0 where there is none."""
        places = pc.index_in(names, value_set=self._all_names).fill_null(-1)
        return places.to_numpy(zero_copy_only=False).astype(np.int32) + 1

    def is_pooled(self, ids: np.ndarray) -> np.ndarray:
        """Whether each of the `ids` [n] is the one that pooled values share: bool [n]."""
        return (ids == self.pooled_id) & bool(self.pooled)

    @cached_property
    def values(self) -> tuple[str, ...]:
        """The values with ids of their own, in the order of `value_ids`."""
        return tuple(name for name in self.own if not _stands_for_many(name))

    @cached_property
    def parents(self) -> tuple[str, ...]:
        """The keys of the parents that have ids, in the order of these."""
        return tuple(name.removeprefix(PARENT) for name in self.own if name.startswith(PARENT))

    def levels(self, depth: int) -> np.ndarray:
        """int64 [len(self) + 1]: of every id 0, or k of a k-th parent; of the id 0 one more.

        Args:
            depth: how many parents a value has, whether or not any of a level is known.
        """
        parts = [name.count(SEPARATOR) if name.startswith(PARENT) else 0 for name in self.own]
        return np.array([depth + 1, *(part and depth + 1 - part for part in parts)])

    @cached_property
    def value_ids(self) -> np.ndarray:
        """int32: the ids of `values`."""
        named = [n for n, name in enumerate(self.own, 1) if not _stands_for_many(name)]
        return np.array(named, dtype=np.int32)

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
    def _value_set(self) -> pa.StringArray:
        return pa.array([*self.values, *self.pooled], pa.string())

    @cached_property
    def _all_names(self) -> pa.StringArray:
        return pa.array(self.own, pa.string())

    @cached_property
    def _id_at(self) -> np.ndarray:
        """The ids of `_value_set`, in its order, and of what is not in it: int32."""
        pooled = np.full(len(self.pooled), self.pooled_id, np.int32)
        return np.concatenate([self.value_ids, pooled, [0]], dtype=np.int32)


def _stands_for_many(name: str) -> bool:
    return name in SHARED or name.startswith(PARENT)


def _ascending(values: pa.ChunkedArray) -> tuple[str, ...]:
    return tuple(values.sort().to_pylist()) if len(values) else ()


def count_field(table: pa.Table, field: Sequence[str], parents: Sequence[str]) -> ValueCounts:
    """How often each field value comes, and each parent by its name.

    Args:
        table: rows of a log.
        field: columns whose joint value is calibrated.
        parents: columns that it belongs to, from near to far.

    Raises:
        DataError: a column is missing or cannot name values.
    """
    return ValueCounts(field_keys(table, field), *map(pc.drop_null, parent_names(table, parents)))


def nearest_parents(table: pa.Table, field: Sequence[str], parents: Sequence[str]) -> pa.Table:
    """`values` (each field value once), `parent` and `several`.

    The parent is the name of the nearest one that is not null in any row; of several as near, which
    are counted, it is the one with the most rows.

    Args:
        table, field, parents: as in `count_field`.
    """
    keys = field_keys(table, field)
    columns = {"values": keys, "parent": pc.coalesce(*parent_names(table, parents))}
    pairs = pa.table(columns).filter(pc.and_(*map(pc.is_valid, columns.values())))
    pairs = pairs.group_by(["values", "parent"]).aggregate([([], "count_all")])
    pairs = pairs.append_column("near", pc.count_substring(pairs["parent"], SEPARATOR))
    pairs = pairs.sort_by([("count_all", "descending"), ("parent", "ascending")])
    of_level = pairs.group_by(["values", "near"], use_threads=False)
    found = of_level.aggregate([("parent", "first"), ([], "count_all")])
    nearest = found.sort_by([("near", "descending")]).group_by("values", use_threads=False)
    found = nearest.aggregate([("parent_first", "first"), ("count_all", "first")])
    return found.rename_columns(["values", "parent", "several"])


def tree_of(
    vocabulary: Vocabulary, depth: int, days: Iterable[tuple[str, pa.Table]]
) -> dict[str, Any]:
    """The tree of all ids, as JSON can hold it.

    Args:
        vocabulary: of the last day.
        depth: how many parents a field value has.
        days: each day and its `nearest_parents`, in their order.

    Returns:
        `parent`: of every id, as of its first day; `level` of every id; `moves`: day -> ids and
        their parents from then on, which a day that knows less of them does not change; `several`:
        values that had several parents on one day.
    """
    parent, several = np.zeros(len(vocabulary) + 1, np.int64), set()
    nodes = np.flatnonzero([name.startswith(PARENT) for name in vocabulary.own])
    names = pa.array(vocabulary.own, pa.string()).take(pa.array(nodes))
    parent[nodes + 1] = _known(vocabulary, _above(names))  # of parents; 0 of field values
    now, moves = parent.copy(), {}
    for day, found in days:
        ids, above = vocabulary.ids(found["values"]), _known(vocabulary, found["parent"])
        named = (ids > 0) & (above > 0)
        several |= {*ids[named & (found["several"].to_numpy() > 1)].tolist()}
        first, farther = named & (now[ids] == 0), now[ids]
        for _ in range(1, depth):  # the nearest of the day may be one of those above the known one
            farther = parent[farther]
            named &= above != farther
        parent[ids[first]] = above[first]
        moved = named & ~first & (now[ids] != above)
        if moved.any():
            moves[day] = [ids[moved].tolist(), above[moved].tolist()]
        now[ids[named]] = above[named]
    return {
        "parent": parent.tolist(),
        "level": vocabulary.levels(depth).tolist(),
        "moves": moves,
        "several": len(several),
    }


def _known(vocabulary: Vocabulary, names: pa.Array) -> np.ndarray:
    """The ids of parents, or of the nearest parent of theirs that has one; 0: none."""
    ids = vocabulary.named(names).astype(np.int64)
    missing = np.flatnonzero((ids == 0) & names.is_valid().to_numpy(zero_copy_only=False))
    if len(missing):
        ids[missing] = _known(vocabulary, _above(names.take(pa.array(missing))))
    return ids


def _above(names: pa.Array) -> pa.Array:
    """The names of parents' parents, null of the farthest."""
    pattern = f"^{PARENT}[^{SEPARATOR}]*{SEPARATOR}(?P<above>.*)$"
    above = pc.struct_field(pc.extract_regex(names, pattern), "above")
    return pc.binary_join_element_wise(pa.scalar(PARENT), above, "")
