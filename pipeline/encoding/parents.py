"""What field values belong to: which parent each has, and since when.

A value that belongs to several parents on one day is not one thing: each pair of it and of what it
belongs to has an id of its own, and the value alone has none. Where it had one before, that is the
id of the pair that it was.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.encoding.values import PARENT, SEPARATOR, field_keys, names_above
from pipeline.encoding.vocabulary import ValueCounts, Vocabulary


def count_field(table: pa.Table, field: Sequence[str], parents: Sequence[str]) -> pa.Table:
    """How often each field value comes with each parent: `values`, `counts`, and where it has
    parents `pair` and `parent`.

    The pair is the name of the value and all that it belongs to, the parent that of the nearest one
    that is not null; null where there is none.

    Args:
        table: rows of a log.
        field: columns whose joint value is calibrated.
        parents: columns that it belongs to, from near to far.

    Raises:
        DataError: a column is missing or cannot name values.
    """
    columns = {"values": field_keys(table, field)}
    if parents:
        columns["pair"], *above = names_above(table, field, parents)
        columns["parent"] = pc.coalesce(*above)
    found = pa.table(columns).group_by([*columns]).aggregate([([], "count_all")])
    found = found.rename_columns([*columns, "counts"])
    return found.sort_by([(name, "ascending") for name in columns])


def several_pairs(found: pa.Table) -> set[str]:
    """The values that have several pairs.

    Args:
        found: as `count_field` gives it.
    """
    if "pair" not in found.column_names:
        return set()
    pairs = found.group_by("values").aggregate([("pair", "count_distinct")])
    several = pairs.filter(pc.greater(pairs["pair_count_distinct"], 1))
    return {*several["values"].drop_null().to_pylist()}


def newest_pairs(days: Iterable[pa.Table], values: Collection[str]) -> dict[str, str]:
    """The pair of each of some values on the first of the days on which it has one; of several the
    most frequent.

    Args:
        days: as `count_field` gives them, the newest first.
    """
    pairs = dict[str, str]()
    for found in days:
        missing = pa.array([value for value in values if value not in pairs], pa.string())
        if not len(missing):
            break
        rows = found.filter(pc.is_in(found["values"], value_set=missing)).select(
            ["values", "pair", "counts"]
        )
        rows = rows.drop_null().sort_by([("counts", "ascending"), ("pair", "descending")])
        pairs |= dict(zip(rows["values"].to_pylist(), rows["pair"].to_pylist(), strict=True))
    return pairs


@dataclass
class Apart:
    """What has the names of pairs of values and parents.

    Attributes:
        values: whose rows all have, or no id.
        pairs: of other values.
        kept: value → its pair that has the value's own name.
    """

    values: set[str] = field(default_factory=set)
    pairs: set[str] = field(default_factory=set)
    kept: dict[str, str] = field(default_factory=dict)

    def add(self, found: pa.Table, known: Collection[str], before: Sequence[pa.Table]) -> None:
        """Add the values that have several pairs on a day.

        Args:
            found: of the day, as `count_field` gives it.
            known: values that had ids by then.
            before: the days before, in their order.
        """
        if not (several := several_pairs(found)):
            return
        named = several & {*known}
        self.values |= several - named
        self.kept |= newest_pairs([*reversed(before), found], named - {*self.kept})
        rows = found.filter(pc.is_in(found["values"], value_set=pa.array([*named], pa.string())))
        self.pairs |= {*rows["pair"].drop_null().to_pylist()} - {*self.kept.values()}

    def of(self, found: pa.Table) -> pa.Table:
        """The counts `found` of a day, with the names of pairs; rows that need one and have none
        are left out.
        """
        if not self.values | self.pairs:
            return found
        values, pairs = (pa.array([*names], pa.string()) for names in (self.values, self.pairs))
        whole = pc.is_in(found["values"], value_set=values)
        apart = pc.or_(whole, pc.is_in(found["pair"], value_set=pairs))
        named = found.set_column(0, "values", pc.if_else(apart, found["pair"], found["values"]))
        return named.filter(pc.or_(pc.invert(apart), pc.is_valid(found["pair"])))

    def counts(self, days: Iterable[pa.Table]) -> ValueCounts:
        """How often each field value or pair comes, and each parent, by its name."""
        counts = ValueCounts()
        for found in days:
            for each in (self.of(found), *_parents(found)):
                counts.add_counts(each)
        return counts


def _parents(found: pa.Table) -> Iterator[pa.Table]:
    """`values` and `counts` of the parents of each level, from near to far."""
    while "parent" in found.column_names:
        found = found.filter(pc.is_valid(found["parent"]))
        if not len(found):
            return
        names, counts = found["parent"].combine_chunks(), found["counts"]
        yield pa.table({"values": names, "counts": counts})
        found = pa.table({"parent": _above(names), "counts": counts})


def nearest_parents(found: pa.Table) -> pa.Table:
    """`values` (each once) and `parent`: the nearest one that any row names; of several as near the
    one with the most rows.

    Args:
        found: as `count_field` gives it.
    """
    known = found.filter(pc.and_(pc.is_valid(found["values"]), pc.is_valid(found["parent"])))
    pairs = known.group_by(["values", "parent"]).aggregate([("counts", "sum")])
    pairs = pairs.append_column("near", pc.count_substring(pairs["parent"], SEPARATOR))
    order = [("near", "descending"), ("counts_sum", "descending"), ("parent", "ascending")]
    nearest = pairs.sort_by(order).group_by("values", use_threads=False)
    return nearest.aggregate([("parent", "first")]).rename_columns(["values", "parent"])


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
        their parents from then on, which a day that knows less of them does not change.
    """
    parent = np.zeros(len(vocabulary) + 1, np.int64)
    nodes = np.flatnonzero([name.startswith(PARENT) for name in vocabulary.own])
    names = pa.array(vocabulary.own, pa.string()).take(pa.array(nodes))
    parent[nodes + 1] = _known(vocabulary, _above(names))  # of parents; 0 of field values
    now, moves = parent.copy(), {}
    for day, found in days:
        ids, above = vocabulary.named(found["values"]), _known(vocabulary, found["parent"])
        named = (ids > 0) & (above > 0)
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
    pattern = f"(?s)^{PARENT}[^{SEPARATOR}]*{SEPARATOR}(?P<above>.*)$"
    above = pc.struct_field(pc.extract_regex(names, pattern), "above")
    return pc.binary_join_element_wise(pa.scalar(PARENT), above, "")
