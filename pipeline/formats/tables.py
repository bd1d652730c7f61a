"""The field statistics: bins of every candidate and cells of the grid, in memory and on disk.

What field values belong to: campaigns of advertisers, advertisers of verticals.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.columns import Columns, Float32, Float64, Int32, Int64, read_parquet
from pipeline.core.errors import DataError
from pipeline.core.files import publish, read_json, write_facts
from pipeline.formats.days import day_number
from pipeline.formats.scores import evidence_share, scaled

NO_MOVES: Mapping[int, tuple[np.ndarray, np.ndarray]] = {}


@dataclass(frozen=True)
class FieldTree:
    """The parent of every id.

    A parent has an id, too: its map serves those of its children that have none of their own.

    Attributes:
        parent: int64 [V], as of the day on which an id was first seen; 0: none that is known.
        level: int64 [V]: 0 of a field value, k of its k-th parents from near to far, one more than
            there are parents of the id 0.
        moves: day (since 1970-01-01) -> ids, and their parents from then on.
    """

    parent: np.ndarray
    level: np.ndarray
    moves: Mapping[int, tuple[np.ndarray, np.ndarray]]

    @classmethod
    def flat(cls, n_field_values: int) -> "FieldTree":
        """The tree of V ids that belong to nothing."""
        level = np.zeros(n_field_values, np.int64)
        level[:1] = 1
        return cls(np.zeros(n_field_values, np.int64), level, NO_MOVES)

    @classmethod
    def of(cls, field: Mapping[str, Any]) -> "FieldTree":
        """The tree that the `field` of a scores manifest describes."""
        if not field.get("parents"):
            return cls.flat(len(field["values"]))
        tree = field["tree"]
        moves = {
            day_number(day): (np.array(ids), np.array(parents))
            for day, (ids, parents) in tree["moves"].items()
        }
        return cls(np.array(tree["parent"]), np.array(tree["level"]), moves)

    @property
    def depth(self) -> int:
        """How many levels of parents there are."""
        return int(self.level[0]) - 1

    def nodes(self) -> list[np.ndarray]:
        """The ids of the parents of each level, from far to near."""
        return [np.flatnonzero(self.level == k) for k in range(self.depth, 0, -1)]

    def known(self, ids: np.ndarray) -> np.ndarray:
        """Which ids are known where something is known of `ids`: bool [V], with all their parents.

        A value that moved is known to have belonged where it was first seen.
        """
        known = np.zeros(len(self.parent), bool)
        known[ids] = True
        for _ in range(self.depth):
            known[self.parent[known]] = True
        known[0] = True
        return known

    def serving(self, known: np.ndarray) -> np.ndarray:
        """The id whose map serves each id, int64 [V]: its own, or that of its nearest known parent.

        Args:
            known: bool [V], the ids that have maps.
        """
        ids = np.arange(len(self.parent))
        for _ in range(self.depth + 1):
            ids = np.where(known[ids], ids, self.parent[ids])
        return ids


@dataclass(frozen=True)
class BinTable(Columns):
    """Equi-frequency bins: a row for each (field value, requested bins, bin), in that order.

    Equation: b_1(z) … b_{K+1}(z) and the posterior statistics p_k(z) of the paper, section 2.1. A
    logit x lies in bin Σ_k (x ≥ inner bound k), so the maximum belongs to the last bin and logits
    beyond the outer bounds to the outer bins.

    Attributes:
        field_value_id: int32 [n], ids that have impressions.
        requested_bins: int32 [n], the candidate K.
        effective_bins: int32 [n], bins left where tied or few scores allow fewer than K.
        bin_id: int32 [n], 0 … effective_bins - 1, ascending with the logit.
        lower_bound: float32 [n], the field value's least logit in bin 0, else an inner bound.
        upper_bound: float32 [n], next bin's lower bound; in the last bin the greatest logit. A
            single bin of one constant logit has both bounds equal, all others have lower < upper.
        impressions: int64 [n]; float64 in a sampled log, multiples of 1 / WEIGHT_UNIT.
        responses: likewise [n].
        logit_sum: float64 [n], Σ uncalibrated logit over impressions.
        posterior: float64 [n], responses / impressions; NaN without impressions.
    """

    field_value_id: Int32
    requested_bins: Int32
    effective_bins: Int32
    bin_id: Int32
    lower_bound: Float32
    upper_bound: Float32
    impressions: Int64
    responses: Int64
    logit_sum: Float64
    posterior: Float64

    def candidate(self, requested_bins: int) -> "BinTable":
        """The rows of one candidate number of bins.

        Raises:
            DataError: the table was made without that candidate.
        """
        rows = self.requested_bins == requested_bins
        if len(self) and not rows.any():
            made = np.unique(self.requested_bins).tolist()
            raise DataError(f"the bin table has candidates {made}, not {requested_bins}")
        return self.take(rows)


@dataclass(frozen=True)
class CellTable(Columns):
    """The fitting grid: a row for each (field value, cell, day) with impressions, in that order.

    Cells are equi-frequency bins over all days, of the finest number requested; every candidate's
    bin is a union of neighbouring cells (`cells_to_bins`). Rows of one cell add up over days.

    Attributes:
        field_value_id: int32 [n].
        cell_id: int32 [n], 0 … cells of the field value - 1, ascending with the logit.
        day: int32 [n], days since 1970-01-01.
        impressions: int64 [n], > 0; float64 in a sampled log.
        responses: likewise [n].
        logit_sum: float64 [n], Σ uncalibrated logit over impressions.
        probability_sum: float64 [n], Σ sigmoid(uncalibrated logit) over impressions.
    """

    field_value_id: Int32
    cell_id: Int32
    day: Int32
    impressions: Int64
    responses: Int64
    logit_sum: Float64
    probability_sum: Float64

    @property
    def starts(self) -> np.ndarray:
        """bool [n]: the rows that are the first of their cell."""
        starts = np.ones(len(self), dtype=bool)
        starts[1:] = (np.diff(self.field_value_id) != 0) | (np.diff(self.cell_id) != 0)
        return starts


@dataclass(frozen=True)
class FieldTables:
    """Both tables of a log, and the days that bins and cells were cut on.

    Attributes:
        bins: of the days up to `made_until`.
        cells: of those days and of later ones, counted within the same bounds.
        made_until: days since 1970-01-01.
        tree: what field values belong to.
    """

    bins: BinTable
    cells: CellTable
    made_until: int
    tree: FieldTree

    @property
    def n_field_values(self) -> int:
        """V."""
        return len(self.tree.parent)

    @property
    def made_of(self) -> np.ndarray:
        """bool [cells]: the rows of the days that the bins were made of."""
        return self.cells.day <= self.made_until


Table = TypeVar("Table", BinTable, CellTable)


def per_impression(table: Table, unit: int) -> Table:
    """The table of counts in parts of an impression, `unit` to one, as float64 impressions."""
    if unit == 1:
        return table
    return replace(table, impressions=table.impressions / unit, responses=table.responses / unit)


def cells_to_bins(cells: CellTable, bins: BinTable, requested_bins: int) -> np.ndarray:
    """int32 [len(cells)]: the bin of one candidate in which each cell lies.

    Counted, not compared: field values come in the same order in both tables, and the middle of a
    cell lies in its bin. Both tables must hold all the days of one `tabulate`.
    """
    bins = bins.candidate(requested_bins)
    cell = np.cumsum(cells.starts) - 1
    impressions = np.bincount(cell, weights=cells.impressions)
    middle_of_cell = np.cumsum(impressions) - impressions / 2
    row = np.searchsorted(np.cumsum(bins.impressions), middle_of_cell)
    return bins.bin_id[row][cell]


def write_tables(folder: Path, bins: BinTable, cells: CellTable, manifest: dict[str, Any]) -> None:
    """Publish a folder with both tables and the manifest that says what they were made of."""
    with publish(folder) as temporary:
        temporary.mkdir()
        for name, table in (("bins", bins), ("cells", cells)):
            pq.write_table(as_arrow(table), temporary / f"{name}.parquet", compression="zstd")
        write_facts(temporary / "manifest.json", manifest)


def as_arrow(table: BinTable | CellTable) -> pa.Table:
    """The columns of a table, with the schema of their kind."""
    whole = np.issubdtype(table.impressions.dtype, np.integer)
    schema = table.schema() if whole else _fractional(table.schema())
    return pa.table(table.columns(), schema=schema)


def of_arrow(kind: type[Table], columns: pa.Table) -> Table:
    """The table of what `as_arrow` made."""
    return kind(*(column.to_numpy() for column in columns.columns))


def _fractional(schema: pa.Schema) -> pa.Schema:
    """The schema of a table whose counts a sampled log makes fractional."""
    for name in ("impressions", "responses"):
        schema = schema.set(schema.get_field_index(name), pa.field(name, pa.float64()))
    return schema


def read_field_tables(folder: Path) -> FieldTables:
    """Bins and cells with the days that they were cut on.

    Raises:
        ArtifactError: a file is missing, damaged, or has other columns.
    """
    made_of = read_tables_manifest(folder)
    bins = _read(folder / "bins.parquet", BinTable)
    cells = _read(folder / "cells.parquet", CellTable)
    tree = FieldTree.flat(made_of["n_field_values"])
    return FieldTables(bins, cells, day_number(max(made_of["days"])), tree)


def read_evidence(folder: Path) -> FieldTables:
    """Bins and cells; of a weighted log with as many responses as it really has.

    Raises:
        ArtifactError: a file is missing, damaged, or has other columns.
    """
    found, made_of = read_field_tables(folder), read_tables_manifest(folder)
    share = evidence_share([made_of | made_of["totals"]])
    return replace(found, bins=scaled(found.bins, share), cells=scaled(found.cells, share))


def read_tables_manifest(folder: Path) -> dict[str, Any]:
    """What the tables were made of: candidates, grid_cells, days, n_field_values, totals.

    Raises:
        ArtifactError: the file is missing or is not JSON.
    """
    return read_json(folder / "manifest.json")


def _read(path: Path, kind: type[Table]) -> Table:
    schema = kind.schema()
    return of_arrow(kind, read_parquet(path, "tabulate", schema, _fractional(schema)))
