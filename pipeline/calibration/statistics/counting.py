"""Counts of rows in bins whose bounds are given: they add up over days and shards."""

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace

import numpy as np

from pipeline.calibration.statistics.bins import concatenate, posterior_of
from pipeline.calibration.statistics.sums import Cells, Totals, sum_cells
from pipeline.core.errors import DataError
from pipeline.formats.scores import Scores, unit_of
from pipeline.formats.sort_keys import (
    SortedRows,
    sortable_bits,
    sorted_ranges,
    usable_threads,
)
from pipeline.formats.tables import BinTable, CellTable, FieldTables, per_impression


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
    threads = threads or usable_threads()
    columns = Totals.zeros(len(bins))
    for requested in np.unique(bins.requested_bins):
        rows = np.flatnonzero(bins.requested_bins == requested)
        totals = _totals_in_bins(scores, bins.take(rows), threads)
        for f in fields(columns):
            getattr(columns, f.name)[rows] = np.concatenate([getattr(t, f.name) for t in totals])
    counted = replace(
        bins,
        impressions=columns.impressions,
        responses=columns.responses,
        logit_sum=columns.logit_sum,
        posterior=posterior_of(columns.responses, columns.impressions),
    )
    return per_impression(counted, unit_of(scores.impressions))


def count_cells(scores: Scores, grid: BinTable, threads: int | None = None) -> CellTable:
    """The rows of other days in the cells of a grid, by day: tables of days add up.

    Logits beyond the outer bounds count in the outer cells; the rows of a field value that the grid
    does not have are one cell.

    Args:
        scores: the rows to count.
        grid: the bins of one candidate, as many as the grid has cells; only bounds are used.
        threads: threads to use, by default one for every processor.
    """
    threads = threads or usable_threads()
    new = np.setdiff1d(scores.field_value_id, grid.field_value_id)
    heads = np.concatenate([_first_heads(grid), new.astype(np.uint64) << np.uint64(32)])
    order = np.argsort(heads)
    ids = np.concatenate([grid.field_value_id, new]).astype(np.int32)[order]
    cell_id = np.concatenate([grid.bin_id, np.zeros(len(new), np.int32)])[order]
    ranges = sorted_ranges(scores, threads)
    cells = [_cells(rows, heads[order], ids, cell_id) for rows in ranges]
    counted = sum_cells(list(zip(ranges, cells, strict=True)), threads)[0]
    return per_impression(counted, unit_of(scores.impressions))


def fitting_grid(bins: BinTable) -> BinTable:
    """The bins whose bounds are those of the cells: the finest of them."""
    return bins.candidate(int(bins.requested_bins.max()))


def with_later_days(
    tables: tuple[BinTable, CellTable],
    made_until: int,
    later: Iterable[CellTable],
    candidates: Sequence[int],
    n_field_values: int,
) -> FieldTables:
    """Field statistics with the cells of later days, counted within the bounds of the earlier.

    Args:
        tables: what `tabulate` makes of the earlier days where its number of cells is among its
            candidates.
        made_until: the last of those days.
        later: later days, each as `count_cells` counts it in `fitting_grid`.
        candidates: whose bins come back.
        n_field_values: V.
    """
    bins, cells = tables
    joined = concatenate([cells, *later])
    order = np.lexsort((joined.day, joined.cell_id, joined.field_value_id))
    kept = bins.take(np.isin(bins.requested_bins, candidates))
    return FieldTables(kept, joined.take(order), made_until, n_field_values)


def _cells(rows: SortedRows, heads: np.ndarray, ids: np.ndarray, cell_id: np.ndarray) -> Cells:
    """The cells of the field values of a range, by the heads at which they start."""
    first, last = np.searchsorted(ids, rows.ids)
    starts = np.append(rows.position(heads[first:last]), len(rows.keys))
    return Cells(ids[first:last], cell_id[first:last], starts)


def largest_ties(scores: Scores, bins: BinTable, threads: int | None = None) -> np.ndarray:
    """The most impressions at one logit in each bin, [len(bins)], 0 in a bin without rows.

    Args:
        scores: rows; those of field values without bins are passed over.
        bins: a table of any candidates; only its ids and bounds are used.
        threads: threads to use, by default one for every processor.
    """
    ties = np.zeros(len(bins), dtype=np.int64)
    for rows in sorted_ranges(scores, threads or usable_threads()):
        first = rows.tie_starts()
        heads = rows.heads(first)
        impressions = np.diff(rows.impressions_before(np.append(first, len(rows.keys))))
        for requested in np.unique(bins.requested_bins):
            of_k = np.flatnonzero(bins.requested_bins == requested)
            if not len(of_k):  # a number that is none equals nothing
                continue
            place = np.searchsorted(_first_heads(bins.take(of_k)), heads, side="right") - 1
            known = bins.field_value_id[of_k[place]] == rows.groups(first)
            np.maximum.at(ties, of_k[place[known]], impressions[known])
    unit = unit_of(scores.impressions)
    return ties if unit == 1 else ties / unit


def _first_heads(bins: BinTable) -> np.ndarray:
    """uint64: the least field value id << 32 | sortable bits of a logit that lies in each bin."""
    bits = np.where(bins.bin_id > 0, sortable_bits(bins.lower_bound), 0)
    return (bins.field_value_id.astype(np.uint64) << np.uint64(32)) | bits.astype(np.uint64)


def _totals_in_bins(scores: Scores, bins: BinTable, threads: int) -> list[Totals]:
    """Sums of the rows in each bin of one candidate, a range of field values at a time."""
    known = np.zeros(scores.n_field_values, dtype=bool)
    known[bins.field_value_id] = True
    unknown = scores.field_value_id[~known[scores.field_value_id] & (scores.impressions > 0)]
    if len(unknown):
        raise DataError(
            f"field value id {unknown.min()} has impressions but no bins; "
            "make the bounds on all the rows that are counted"
        )
    heads, ids = _first_heads(bins), bins.field_value_id
    ranges = sorted_ranges(scores, threads)
    cells = [_cells(rows, heads, ids, bins.bin_id) for rows in ranges]
    return sum_cells(list(zip(ranges, cells, strict=True)), threads)[1]
