"""The statistics kernel: bins and fitting grid of every field value, made in one sort."""

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from pipeline.calibration.statistics.sums import Cells, sum_cells
from pipeline.core.columns import joined
from pipeline.core.errors import DataError
from pipeline.formats.scores import Scores
from pipeline.formats.sort_keys import SortedRows, sorted_ranges, usable_threads
from pipeline.formats.tables import BinTable, CellTable, per_impression


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
    rows. Fractional impressions, of a sampled log, are counted in parts of 1 / WEIGHT_UNIT. Neither
    the order of the rows nor the number of threads changes a bit.

    Args:
        scores: rows of any order; rows without impressions are passed over. Left as they are.
        candidates: numbers of bins K, each a divisor of `grid_cells`.
        grid_cells: number of cells of the fitting grid.
        threads: threads to use, by default one for every processor.

    Raises:
        DataError: a candidate does not divide the number of cells.
    """
    wanted, threads = divisors(candidates, grid_cells), threads or usable_threads()
    return tables_of(sorted_ranges(scores, threads), wanted, grid_cells, threads)


def tables_of(
    ranges: Sequence[SortedRows], candidates: Sequence[int], grid_cells: int, threads: int
) -> tuple[BinTable, CellTable]:
    """What `tabulate` returns, for sorted rows of ascending ranges of field values."""
    with ThreadPoolExecutor(threads) as pool:
        cuts = list(pool.map(lambda rows: _cuts(rows, grid_cells), ranges))
        grids = list(pool.map(lambda rows, c: _grid(rows, c, grid_cells), ranges, cuts))
        cells = sum_cells(list(zip(ranges, grids, strict=True)), threads)
        totals = _over_days(cells, grids)
        bins = list(pool.map(lambda c, g, t: _bins(c, g, t, candidates), cuts, grids, totals))
    unit = ranges[0].layout.unit
    return per_impression(joined(bins), unit), per_impression(cells, unit)


def divisors(candidates: Collection[int], grid_cells: int) -> list[int]:
    """The candidates, ascending and once each.

    Raises:
        DataError: a candidate does not divide the number of cells.
    """
    odd = [k for k in candidates if k < 1 or grid_cells % k]
    if odd:
        raise DataError(f"grid_cells {grid_cells} is not a multiple of candidates {odd}")
    return sorted(set(candidates))


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


def _cuts(rows: SortedRows, grid_cells: int) -> Cuts:
    starts = rows.group_starts()
    ids = np.flatnonzero(np.diff(starts))  # of field values that have rows, from the first on
    before = rows.impressions_before(starts[ids])
    impressions = rows.impressions_before(starts[ids + 1]) - before
    # with fewer impressions than cells the ranks of the grid are 0, 1, …, impressions - 1
    ranks = np.minimum(impressions, grid_cells)
    value = np.repeat(np.arange(len(ranks)), ranks)
    number = np.arange(len(value)) - np.repeat(np.cumsum(ranks) - ranks, ranks)
    n = impressions[value]
    rank = np.where(n < grid_cells, number, number * n // grid_cells)
    row = _untie(rows, before[value] + rank)
    start, end = starts[ids[value]], starts[ids[value] + 1]
    row[rank == 0] = start[rank == 0]
    maximum = rows.logits(end - 1)
    right = rows.logits(np.minimum(row, end - 1))
    bound = _between(rows.logits(np.maximum(row - 1, start)), right)
    bound[rank == 0] = right[rank == 0]
    allowed = (rank == 0) | ((row > start) & (row < end) & (bound < maximum))
    columns = ((rows.ids[0] + ids[value]).astype(np.int32), rank, n, row, bound, maximum)
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


def _grid(rows: SortedRows, cuts: Cuts, grid_cells: int) -> Cells:
    starts = cuts.of(grid_cells)
    ids = cuts.field_value_id[starts]
    return Cells(ids, _number_within(ids), np.append(cuts.row[starts], len(rows.keys)))


Totals = tuple[np.ndarray, ...]
"""Impressions, responses and sums of logits of the cells of a range, over its days."""


def _over_days(cells: CellTable, grids: Sequence[Cells]) -> list[Totals]:
    """The totals of the cells of each range, all of which have rows."""
    starts = np.flatnonzero(cells.starts)
    sums = (_add_up(c, starts) for c in (cells.impressions, cells.responses, cells.logit_sum))
    ends = np.cumsum([len(grid) for grid in grids])[:-1]
    return list(zip(*(np.split(column, ends) for column in sums), strict=True))


def _bins(cuts: Cuts, grid: Cells, totals: Totals, candidates: Sequence[int]) -> BinTable:
    """The bins of all candidates, made of whole cells of the grid."""
    table = joined([_bins_of(cuts, grid, totals, k) for k in candidates])
    return table.take(np.lexsort((table.bin_id, table.requested_bins, table.field_value_id)))


def _bins_of(cuts: Cuts, grid: Cells, totals: Totals, requested: int) -> BinTable:
    chosen = cuts.of(requested)
    ids, lower = cuts.field_value_id[chosen], cuts.bound[chosen]
    last = np.append(np.diff(ids) != 0, True)[: len(ids)]
    bin_id = _number_within(ids)
    first_cell = np.searchsorted(grid.starts, cuts.row[chosen])
    impressions, responses, logit_sum = (_add_up(column, first_cell) for column in totals)
    return BinTable(
        field_value_id=ids,
        requested_bins=np.full(len(ids), requested, dtype=np.int32),
        effective_bins=np.repeat(bin_id[last] + 1, bin_id[last] + 1),
        bin_id=bin_id,
        lower_bound=lower,
        upper_bound=np.where(last, cuts.maximum[chosen], np.roll(lower, -1)),
        impressions=impressions,
        responses=responses,
        logit_sum=logit_sum,
        posterior=posterior_of(responses, impressions),
    )


def _add_up(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    return np.add.reduceat(values, starts) if len(starts) else values[:0]


def posterior_of(responses: np.ndarray, impressions: np.ndarray) -> np.ndarray:
    """responses / impressions, float64; NaN without impressions."""
    undefined = np.full(len(responses), np.nan)
    return np.divide(responses, impressions, out=undefined, where=impressions > 0)


def bears_bins(responses: np.ndarray, requested: Sequence[int], least: int) -> np.ndarray:
    """Whether field values have responses enough for a bin count, bool [V, candidates].

    The smallest candidate is always borne: its function is then little more than the line.

    Args:
        responses: [V], of each field value.
        requested: bin counts K, ascending.
        least: responses for each bin: K bins ask for K times as many.
    """
    borne = responses[:, None] >= least * np.asarray(requested)
    borne[:, 0] = True
    return borne
