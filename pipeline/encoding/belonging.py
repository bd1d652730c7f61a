"""Which parent each field value belongs to, and since when."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.encoding.values import PARENT, SEPARATOR, field_keys, parent_names
from pipeline.encoding.vocabulary import ValueCounts, Vocabulary


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
