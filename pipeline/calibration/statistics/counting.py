"""Counts of rows in cells whose bounds are given: they add up over days.

Field statistics of a log that need not fit in memory: read in pieces, sorted range by range.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from pipeline.calibration.statistics.bins import divisors, tables_of
from pipeline.calibration.statistics.sums import Cells, sum_cells
from pipeline.core.columns import joined
from pipeline.formats.scores import Scores, unit_of
from pipeline.formats.sort_keys import (
    KeyLayout,
    SortedRows,
    Stretch,
    sort_counted,
    sort_packed,
    sortable_bits,
    sorted_ranges,
    usable_threads,
)
from pipeline.formats.tables import BinTable, CellTable, FieldTables, FieldTree, per_impression


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
    counted = sum_cells(list(zip(ranges, cells, strict=True)), threads)
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
    all_days = joined([cells, *later])
    order = np.lexsort((all_days.day, all_days.cell_id, all_days.field_value_id))
    kept = bins.take(np.isin(bins.requested_bins, candidates))
    return FieldTables(kept, all_days.take(order), made_until, FieldTree.flat(n_field_values))


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
            place = np.searchsorted(_first_heads(bins.take(of_k)), heads, side="right") - 1
            known = bins.field_value_id[of_k[place]] == rows.groups(first)
            np.maximum.at(ties, of_k[place[known]], impressions[known])
    unit = unit_of(scores.impressions)
    return ties if unit == 1 else ties / unit


def _first_heads(bins: BinTable) -> np.ndarray:
    """uint64: the least field value id << 32 | sortable bits of a logit that lies in each bin."""
    bits = np.where(bins.bin_id > 0, sortable_bits(bins.lower_bound), 0)
    return (bins.field_value_id.astype(np.uint64) << np.uint64(32)) | bits.astype(np.uint64)


PACKED_BYTES = 16  # a row that is one impression: its key, and room for the tables made of it
COUNTED_BYTES = 128  # a row of several: its columns, sorted and not, and the order that sorts them

Over = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]


@dataclass(frozen=True)
class Pieces:
    """A log in pieces, for example its days; several threads read pieces at a time.

    Attributes:
        count: how many; they have numbers from 0 on.
        survey: number of a piece → the columns field_value_id and impressions of its rows.
        load: number of a piece, field values [first, last) → their rows in it; others may be among
            them.
        n_field_values: number of ids, as in `Scores`.
        first_day, last_day: days since 1970-01-01 between which all rows lie.
    """

    count: int
    survey: Callable[[int], tuple[np.ndarray, np.ndarray]]
    load: Callable[[int, tuple[int, int]], Scores]
    n_field_values: int
    first_day: int
    last_day: int


def tabulate_pieces(
    pieces: Pieces,
    candidates: Collection[int],
    grid_cells: int,
    memory: int,
    threads: int | None = None,
    *,
    over: Over | None = None,
) -> tuple[BinTable, CellTable]:
    """What `tabulate` returns for all the rows, to the bit, holding only some of them at a time.

    Every piece is read once to count the rows of field values, and once for each range of field
    values that is held at once: a single time where all rows may be held.

    Args:
        pieces: the log.
        candidates: numbers of bins K, each a divisor of `grid_cells`.
        grid_cells: number of cells of the fitting grid.
        memory: bytes to hold rows in, beside the pieces that threads are reading; at least one
            field value is held whole.
        threads: threads to use, by default one for every processor.
        over: a function, items → what it makes of each, in order, by as many processes as there are
            `threads`, each with so much memory; None: one range at a time, by threads.

    Raises:
        DataError: a candidate does not divide the number of cells, or days span too many years.
    """
    wanted, threads = divisors(candidates, grid_cells), threads or usable_threads()
    of_range = 1 if over else threads
    with ThreadPoolExecutor(threads) as pool:
        rows_of_value, single, unit = _survey(pieces, over or pool.map)
    layout = KeyLayout.choose(
        pieces.first_day, pieces.last_day, pieces.n_field_values, single, unit
    )
    rows_at_once = memory // (PACKED_BYTES if layout.packed else COUNTED_BYTES)
    if over:  # a range for each process at least
        rows_at_once = min(rows_at_once, -(-int(rows_of_value.sum()) // threads))

    def tables(limits: list[int]) -> tuple[BinTable, CellTable]:
        sizes = np.add.reduceat(rows_of_value[: limits[-1]], limits[:-1])
        with ThreadPoolExecutor(of_range) as pool:
            ranges = _sorted(pieces, layout, limits, sizes, pool)
        return tables_of(ranges, wanted, grid_cells, of_range)

    loads = list(_loads(rows_of_value, rows_at_once, of_range))
    made = list((over or map)(tables, loads))
    return joined([bins for bins, _ in made]), joined([cells for _, cells in made])


def _survey(pieces: Pieces, over: Over) -> tuple[np.ndarray, bool, int]:
    """Rows of each field value id, int64 [n_field_values], whether all are one impression, and the
    parts of one in which all can be counted."""

    def count(piece: int) -> tuple[np.ndarray, bool, int]:
        ids, impressions = pieces.survey(piece)
        rows = np.bincount(ids, minlength=pieces.n_field_values)
        return rows, bool((impressions == 1).all()), unit_of(impressions)

    rows, single, unit = np.zeros(pieces.n_field_values, dtype=np.int64), True, 1
    for counted, of_one, of_unit in over(count, range(pieces.count)):
        rows += counted
        single &= of_one
        unit = max(unit, of_unit)
    return rows, single, unit


def _loads(rows_of_value: np.ndarray, rows_at_once: int, threads: int) -> Iterator[list[int]]:
    """Limits of the ranges of field values to hold at once, a range for each thread."""
    before = np.concatenate([[0], np.cumsum(rows_of_value)])
    first, last = 0, len(rows_of_value)
    while first < last:
        most = int(np.searchsorted(before, before[first] + rows_at_once, side="right")) - 1
        end = min(max(most, first + 1), last)
        shares = before[first] + (before[end] - before[first]) * np.arange(1, threads) // threads
        inner = np.searchsorted(before, shares).tolist()
        yield sorted({first, *(i for i in inner if first < i < end), end})
        first = end


def _sorted(
    pieces: Pieces,
    layout: KeyLayout,
    limits: list[int],
    sizes: np.ndarray,
    pool: ThreadPoolExecutor,
) -> list[SortedRows]:
    """The sorted rows of ranges of field values, read from the pieces; `sizes` are their rows."""
    if layout.packed:
        ids = limits[0], limits[-1]
        stretches = [Stretch(partial(pieces.load, i, ids)) for i in range(pieces.count)]
        return sort_packed(stretches, layout, limits, sizes.tolist(), pool)

    def part(piece: int) -> Scores:
        scores = pieces.load(piece, (limits[0], limits[-1]))
        ids = scores.field_value_id
        return scores.take((ids >= limits[0]) & (ids < limits[-1]))

    scores = joined(list(pool.map(part, range(pieces.count))))
    return list(pool.map(lambda ids: sort_counted(scores, layout, ids), pairwise(limits)))
