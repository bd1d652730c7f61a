"""Field statistics of a log that need not fit in memory: read in pieces, sorted range by range."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from pipeline.calibration.statistics.bins import concatenate, divisors, tables_of
from pipeline.core.columns import joined
from pipeline.formats.scores import Scores, unit_of
from pipeline.formats.sort_keys import (
    KeyLayout,
    SortedRows,
    Stretch,
    sort_counted,
    sort_packed,
    usable_threads,
)
from pipeline.formats.tables import BinTable, CellTable

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
    return concatenate([bins for bins, _ in made]), concatenate([cells for _, cells in made])


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
