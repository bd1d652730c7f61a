"""The statistics kernel: bins and fitting grid of every field value, made in one sort."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import numpy as np

from pipeline.calibration.logits import sortable_bits
from pipeline.calibration.packing import SortedRows, sorted_ranges, usable_threads
from pipeline.calibration.sums import CellSums, sum_cells
from pipeline.calibration.tables import BinTable, CellTable
from pipeline.errors import DataError
from pipeline.scores import Scores

Table = TypeVar("Table", BinTable, CellTable, CellSums)


def tabulate(
    scores: Scores, candidates: Sequence[int], grid_cells: int, threads: int | None = None
) -> tuple[BinTable, CellTable]:
    """The bins of every candidate, over all days, and the cells of the fitting grid, by day.

    Bin k of K starts where the share k / K of the field value's impressions, ascending by logit,
    is passed: at the impression of rank floor(k n / K). Tied logits are never split: a cut inside a
    tie moves to the nearer end of it (the lower one if both are equally near), and cuts that meet
    are one. Ranks of a candidate are ranks of the grid, so its bins are unions of cells. The bound
    of a cut is the float32 midpoint of the logits on both sides, or the upper one where no float
    lies between; if that is the field value's greatest logit the cut is dropped, so that bounds
    increase strictly.

    Rows of several impressions count as that many rows: tables are exactly those of the expanded
    rows. Neither the order of the rows nor the number of threads changes a bit.

    Args:
        scores: rows of any order; rows without impressions are passed over. Left as they are.
        candidates: numbers of bins K, each a divisor of `grid_cells`.
        grid_cells: number of cells of the fitting grid.
        threads: threads to use, by default one for every processor.

    Raises:
        DataError: a candidate does not divide the number of cells.
    """
    odd = [k for k in candidates if k < 1 or grid_cells % k]
    if odd:
        raise DataError(f"grid_cells {grid_cells} is not a multiple of candidates {odd}")
    wanted = sorted(set(candidates))
    parts = sorted_ranges(
        scores, threads or usable_threads(), lambda rows: tabulate_range(rows, wanted, grid_cells)
    )
    return _concatenate([bins for bins, _ in parts]), _concatenate([cells for _, cells in parts])


def tabulate_range(
    rows: SortedRows, candidates: Sequence[int], grid_cells: int
) -> tuple[BinTable, CellTable]:
    """What `tabulate` returns, for the sorted rows of one range of field values."""
    cuts = _cuts(rows, _values(rows), grid_cells)
    grid = cuts.of(grid_cells)
    starts = np.append(cuts.row[grid], len(rows.keys))
    sums = sum_cells(rows, starts)
    cell_of_cut = np.cumsum(np.isin(np.arange(len(cuts.row)), grid, assume_unique=True)) - 1
    totals = _over_days(sums, len(grid))
    bins = [_bins_of_cells(cuts, k, cell_of_cut, totals) for k in candidates]
    ids = cuts.field_value_id[grid]
    table = _concatenate(bins)
    order = np.lexsort((table.bin_id, table.requested_bins, table.field_value_id))
    return table.take(order), _cell_table(ids, _number_within(ids), sums)


def _concatenate(tables: list[Table]) -> Table:
    kind = type(tables[0])
    return kind(*(np.concatenate([getattr(t, f.name) for t in tables]) for f in fields(kind)))


@dataclass(frozen=True)
class Values:
    """The field values of a range that have rows."""

    field_value_id: np.ndarray  # int32 [v]
    start: np.ndarray  # int64 [v], first row
    end: np.ndarray  # int64 [v], row after the last


def _values(rows: SortedRows) -> Values:
    ids = np.arange(rows.ids[0], rows.ids[1] + 1, dtype=np.uint64)
    position = np.append(rows.position(ids[:-1] << np.uint64(32)), len(rows.keys))
    present = np.flatnonzero(np.diff(position))
    return Values(ids[present].astype(np.int32), position[present], position[present + 1])


@dataclass(frozen=True)
class Cuts:
    """Places where bins may start: for each field value its start, then every rank of the grid.

    A cut that is not allowed (at an end of the field value, or without a bound below the greatest
    logit) is left out; several ranks may have met in one row.
    """

    field_value_id: np.ndarray  # int32 [c]
    rank: np.ndarray  # int64 [c], impressions that the rank wants on the left
    impressions: np.ndarray  # int64 [c], impressions of the field value
    row: np.ndarray  # int64 [c], the first row on the right
    bound: np.ndarray  # float32 [c], the inner bound; at a start the field value's least logit
    maximum: np.ndarray  # float32 [c], the field value's greatest logit

    def of(self, bins: int) -> np.ndarray:
        """Index of the cuts at which the bins of one number start, cuts that met counted once."""
        # rank r is floor(k n / K) of some k exactly if it is so for the least k that reaches r
        k = -(-self.rank * bins // self.impressions)
        asked = np.flatnonzero(k * self.impressions // bins == self.rank)
        first = np.ones(len(asked), dtype=bool)
        first[1:] = np.diff(self.row[asked]) > 0
        return asked[first]


def _cuts(rows: SortedRows, values: Values, grid_cells: int) -> Cuts:
    before = rows.impressions_before(values.start)
    impressions = rows.impressions_before(values.end) - before
    # with fewer impressions than cells the ranks of the grid are 0, 1, …, impressions - 1
    ranks = np.minimum(impressions, grid_cells)
    value = np.repeat(np.arange(len(ranks)), ranks)
    number = np.arange(len(value)) - np.repeat(np.cumsum(ranks) - ranks, ranks)
    n = impressions[value]
    rank = np.where(n < grid_cells, number, number * n // grid_cells)
    row = _untie(rows, before[value] + rank)
    start, end = values.start[value], values.end[value]
    row[rank == 0] = start[rank == 0]
    maximum = rows.logits(end - 1)
    right = rows.logits(np.minimum(row, end - 1))
    bound = _between(rows.logits(np.maximum(row - 1, start)), right)
    bound[rank == 0] = right[rank == 0]
    allowed = (rank == 0) | ((row > start) & (row < end) & (bound < maximum))
    columns = (values.field_value_id[value], rank, n, row, bound, maximum)
    return Cuts(*(column[allowed] for column in columns))


def _untie(rows: SortedRows, impression: np.ndarray) -> np.ndarray:
    """The row nearest to each numbered impression at which a cut splits no tied logits."""
    row = rows.row_of(impression)
    head = rows.heads(row)
    inside = (rows.impressions_before(row) < impression) | (
        (row > 0) & (rows.heads(np.maximum(row - 1, 0)) == head)
    )
    tied = np.flatnonzero(inside)
    low, high = rows.position(head[tied]), rows.position(head[tied] + np.uint64(1))
    to_low = impression[tied] - rows.impressions_before(low)
    to_high = rows.impressions_before(high) - impression[tied]
    row = row.copy()
    row[tied] = np.where(to_low <= to_high, low, high)
    return row


def _between(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """float32 midpoints, above `left`; `right` itself where no float lies between."""
    middle = (left.astype(np.float64) + right.astype(np.float64)) / 2
    middle = middle.astype(np.float32)
    return np.where(middle > left, middle, right)


def _number_within(group: np.ndarray) -> np.ndarray:
    """int32: 0, 1, 2 … within each run of equal values."""
    position = np.arange(len(group))
    starts = np.flatnonzero(np.diff(group, prepend=group[:1] - 1))
    lengths = np.diff(np.append(starts, len(group)))
    return (position - np.repeat(starts, lengths)).astype(np.int32)


def _over_days(sums: CellSums, cells: int) -> list[np.ndarray]:
    """Impressions, responses and sums of logits of each cell over its days, zero if it has none."""
    edges = np.searchsorted(sums.cell, np.arange(cells + 1))
    filled = np.diff(edges) > 0
    totals = []
    for column in (sums.impressions, sums.responses, sums.logit_sum):
        total = np.zeros(cells, dtype=column.dtype)
        if filled.any():
            total[filled] = np.add.reduceat(column, edges[:-1][filled])
        totals.append(total)
    return totals


def _bins_of_cells(
    cuts: Cuts, requested: int, cell_of_cut: np.ndarray, totals: list[np.ndarray]
) -> BinTable:
    """The bins of one candidate, made of whole cells of the grid."""
    chosen = cuts.of(requested)
    ids, lower = cuts.field_value_id[chosen], cuts.bound[chosen]
    last = np.append(np.diff(ids) != 0, True)[: len(ids)]
    upper = np.where(last, cuts.maximum[chosen], np.roll(lower, -1))
    bin_id = _number_within(ids)
    effective = np.repeat(bin_id[last] + 1, bin_id[last] + 1)
    first = cell_of_cut[chosen]
    sums = [np.add.reduceat(total, first) if len(first) else total for total in totals]
    return BinTable(
        ids, np.full(len(ids), requested, dtype=np.int32), effective, bin_id, lower, upper,
        sums[0], sums[1], sums[2], _posterior(sums[1], sums[0]),
    )  # fmt: skip


def _posterior(responses: np.ndarray, impressions: np.ndarray) -> np.ndarray:
    undefined = np.full(len(responses), np.nan)
    return np.divide(responses, impressions, out=undefined, where=impressions > 0)


def count_bins(scores: Scores, bins: BinTable, threads: int | None = None) -> BinTable:
    """The given bins with the counts of other rows: tables of days or shards add up, by column.

    Logits beyond the outer bounds count in the outer bins; a bin without rows has zeros and a
    posterior of NaN.

    Args:
        scores: the rows to count.
        bins: a table of `tabulate`; its bounds are used, its counts are not.
        threads: threads to use, by default one for every processor.

    Raises:
        DataError: a row's field value has no bins.
    """
    counted = []
    for requested in np.unique(bins.requested_bins):
        rows = np.flatnonzero(bins.requested_bins == requested)
        sums = _sums_in_bins(scores, bins.take(rows), threads or usable_threads())
        counted.append((rows, _over_days(sums, len(rows))))
    columns = [np.zeros(len(bins), dtype=t) for t in (np.int64, np.int64, np.float64)]
    for rows, totals in counted:
        for column, total in zip(columns, totals, strict=True):
            column[rows] = total
    impressions, responses, logit_sum = columns
    return replace(
        bins,
        impressions=impressions,
        responses=responses,
        logit_sum=logit_sum,
        posterior=_posterior(responses, impressions),
    )


def count_cells(scores: Scores, grid: BinTable, threads: int | None = None) -> CellTable:
    """The cells of a grid with the counts of other rows, by day; cells of other days are more rows.

    Args:
        scores: the rows to count.
        grid: the bins of the grid, one candidate: `tabulate(scores, [cells], cells)[0]`.
        threads: threads to use, by default one for every processor.

    Raises:
        DataError: a row's field value has no cells.
    """
    sums = _sums_in_bins(scores, grid, threads or usable_threads())
    return _cell_table(grid.field_value_id, grid.bin_id, sums)


def _cell_table(field_value_id: np.ndarray, cell_id: np.ndarray, sums: CellSums) -> CellTable:
    """The table of sums whose cells have the given field values and numbers."""
    ids, numbers = field_value_id[sums.cell], cell_id[sums.cell]
    counts = (sums.impressions, sums.responses, sums.logit_sum, sums.probability_sum)
    return CellTable(ids, numbers, sums.day, *counts)


def _sums_in_bins(scores: Scores, bins: BinTable, threads: int) -> CellSums:
    """Sums of the rows in each bin and day; `cell` is the row of `bins`, of one candidate."""
    known = np.zeros(scores.n_field_values, dtype=bool)
    known[bins.field_value_id] = True
    strange = scores.field_value_id[~known[scores.field_value_id] & (scores.impressions > 0)]
    if len(strange):
        raise DataError(
            f"field value id {strange.min()} has impressions but no bins; "
            "make the bounds on all the rows that are counted"
        )
    heads = bins.field_value_id.astype(np.uint64) << np.uint64(32)
    heads |= np.where(bins.bin_id > 0, sortable_bits(bins.lower_bound), 0).astype(np.uint64)

    def sum_range(rows: SortedRows) -> CellSums:
        first, last = np.searchsorted(bins.field_value_id, rows.ids)
        sums = sum_cells(rows, np.append(rows.position(heads[first:last]), len(rows.keys)))
        return replace(sums, cell=sums.cell + first)

    return _concatenate(sorted_ranges(scores, threads, sum_range))
