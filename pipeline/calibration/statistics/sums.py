"""Sums over the rows of each cell and day, exact: no order of rows, no block shows in them."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields

import numpy as np

from pipeline.formats.sort_keys import BLOCK, SortedRows, blocks
from pipeline.formats.tables import CellTable

SPARSE = 8  # with more (cell, day) pairs to a row than this, only those that occur are summed


@dataclass(frozen=True)
class Cells:
    """Neighbouring stretches of sorted rows: cell c is the rows [starts[c], starts[c + 1])."""

    field_value_id: np.ndarray  # int32 [cells]
    cell_id: np.ndarray  # int32 [cells]
    starts: np.ndarray  # int64 [cells + 1], from 0 to the number of rows

    def __len__(self) -> int:
        return len(self.cell_id)

    def part(self, span: slice) -> "Cells":
        """Consecutive cells; their starts keep counting rows from the first row of all."""
        ends = slice(span.start, span.stop + 1)
        return Cells(self.field_value_id[span], self.cell_id[span], self.starts[ends])


def sum_cells(ranges: Sequence[tuple[SortedRows, Cells]], threads: int) -> CellTable:
    """The sums of each (cell, day) of all ranges as one table.

    All ranges write into one set of columns, because touching fresh memory can cost more than the
    sums; a range gets room for the most it can need, and the gaps are closed at the end.
    """
    room = [min(len(rows.keys), len(cells) * rows.layout.n_days) for rows, cells in ranges]
    places = np.cumsum([0, *room]).tolist()
    table = CellTable(
        field_value_id=np.empty(places[-1], dtype=np.int32),
        cell_id=np.empty(places[-1], dtype=np.int32),
        day=np.empty(places[-1], dtype=np.int32),
        impressions=np.empty(places[-1], dtype=np.int64),
        responses=np.empty(places[-1], dtype=np.int64),
        logit_sum=np.empty(places[-1]),
        probability_sum=np.empty(places[-1]),
    )

    def sum_range(i: int) -> int:
        (rows, cells), place = ranges[i], places[i]
        constants = _rounding_constants(rows, cells.starts)
        for span in _groups(cells.starts):
            place = _write(_Group(rows, cells.part(span), constants[:, span]), table, place)
        return place - places[i]

    with ThreadPoolExecutor(threads) as pool:
        sizes = list(pool.map(sum_range, range(len(ranges))))
        columns = [getattr(table, f.name) for f in fields(table)]
        return CellTable(*pool.map(lambda c: _close_gaps(c, places, sizes), columns))


@dataclass(frozen=True)
class _Group:
    """Cells summed together: they fill at most one block of rows, or are one larger cell."""

    rows: SortedRows
    cells: Cells
    constants: np.ndarray  # float64 [2, cells], of `_rounding_constants`

    def sums(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """The sums of every (cell, day) pair, or of those that occur where most do not.

        Slots cell · days + day, ascending, with cells counted within the group; and of each
        impressions (0 where the pair does not occur), responses, logit_sum and probability_sum.
        """
        starts = self.cells.starts
        slot = np.arange(len(self.cells) * self.rows.layout.n_days)
        n_rows = int(starts[-1] - starts[0])
        few = n_rows <= BLOCK and len(slot) > SPARSE * n_rows
        columns = [np.zeros(len(slot), t) for t in (np.int64, np.int64, np.float64, np.float64)]
        for block in blocks(int(starts[0]), int(starts[0]) + n_rows):
            lengths = np.minimum(np.diff(starts), block.stop - block.start)
            doubled = self._doubled_slots(block, lengths)
            if few:
                slot, doubled = _occurring(doubled)
                columns = [column[: len(slot)] for column in columns]
            terms = self._block(block, lengths, doubled, len(slot))
            for column, term in zip(columns, terms, strict=True):
                np.add(column, term, out=column)
        return slot, columns

    def _doubled_slots(self, block: slice, lengths: np.ndarray) -> np.ndarray:
        """int64: 2 · slot of each row, plus 1 where the row is one impression with a response."""
        width = 2 * self.rows.layout.n_days
        slots = np.repeat(np.arange(0, len(lengths) * width, width), lengths)
        if self.rows.counts is None:
            low = np.uint64((1 << self.rows.layout.low_bits) - 1)
            slots += (self.rows.keys[block] & low).view(np.int64)
        else:
            slots += 2 * self.rows.counts.day[block]
        return slots

    def _block(
        self, block: slice, lengths: np.ndarray, doubled: np.ndarray, n: int
    ) -> list[np.ndarray]:
        """Impressions, responses, sums of logits and of probabilities of a block in n slots."""
        counts = self.rows.counts
        if counts is None:  # one count for both: odd slots are responses
            pairs = np.bincount(doubled, minlength=2 * n)
            columns = [pairs[0::2] + pairs[1::2], pairs[1::2]]
        else:
            columns = [np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)]
            np.add.at(columns[0], doubled >> 1, counts.impressions[block])
            np.add.at(columns[1], doubled >> 1, counts.responses[block])
        slots = doubled >> 1
        logit = self.rows.logits(block)
        for values, constants in zip((logit, _float32_sigmoid(logit)), self.constants, strict=True):
            of_rows = np.repeat(constants, lengths)
            if counts is not None and self.rows.layout.unit > 1:  # what is rounded is the product
                terms = values * (counts.impressions[block] / self.rows.layout.unit) + of_rows
            else:
                terms = values + of_rows
            terms -= of_rows
            if counts is not None and self.rows.layout.unit == 1:
                terms *= counts.impressions[block]
            columns.append(np.bincount(slots, terms, minlength=n))
        return columns


def _groups(starts: np.ndarray) -> Iterator[slice]:
    """Spans of consecutive cells with at most BLOCK rows together, or of one larger cell."""
    first, cells = 0, len(starts) - 1
    while first < cells:
        last = int(np.searchsorted(starts, starts[first] + BLOCK, side="right")) - 1
        last = min(max(last, first + 1), cells)
        yield slice(first, last)
        first = last


def _occurring(doubled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The slots that occur, ascending, and the doubled slots as positions among them."""
    slot = np.sort(doubled >> 1)
    slot = slot[np.diff(slot, prepend=-1) > 0]
    return slot, 2 * np.searchsorted(slot, doubled >> 1) + (doubled & 1)


def _write(group: _Group, table: CellTable, place: int) -> int:
    """Write the sums of a group at `place`; the place after them."""
    (slot, columns), layout = group.sums(), group.rows.layout
    used = np.flatnonzero(columns[0] > 0)
    here = slice(place, place + len(used))
    slot = slot[used]
    cell = slot // layout.n_days
    table.field_value_id[here] = group.cells.field_value_id[cell]
    table.cell_id[here] = group.cells.cell_id[cell]
    table.day[here] = slot - (cell * layout.n_days - layout.first_day)
    sums = (table.impressions, table.responses, table.logit_sum, table.probability_sum)
    for whole, column in zip(sums, columns, strict=True):
        whole[here] = column[used]
    return here.stop


def _rounding_constants(rows: SortedRows, starts: np.ndarray) -> np.ndarray:
    """Constants M [2, cells]: (x + M) - M rounds x so that sums of a cell's x are exact.

    With |x| < 2^e and fewer than 2^b impressions, M = 1.5 · 2^(e + b) rounds to multiples of
    2^(e + b - 52); every sum of the cell is then at most 2^52 such steps, which float64 holds
    exactly, in any order and however rows are aggregated. The rounding itself is at most 2^(b - 53)
    of the largest magnitude: nothing at all for float32 numbers of one size and b up to 28.
    Where impressions are fractional, what is rounded is a row's impressions · x, by the same M.
    Row 0 is for the logits, row 1 for their probabilities.
    """
    magnitude = np.zeros((2, len(starts) - 1))
    filled = np.flatnonzero(np.diff(starts))
    least, greatest = rows.logits(starts[filled]), rows.logits(starts[filled + 1] - 1)
    magnitude[0, filled] = np.maximum(np.abs(least), np.abs(greatest))
    magnitude[1, filled] = _float32_sigmoid(greatest)
    impressions = np.diff(rows.impressions_before(starts)).astype(np.float64)
    impressions /= rows.layout.unit
    return np.ldexp(1.5, np.frexp(magnitude)[1] + np.frexp(impressions)[1])


def _float32_sigmoid(logit: np.ndarray) -> np.ndarray:
    """sigmoid of float32 logits to a few units of its last place, much faster than in float64."""
    odds_against = np.negative(logit)
    with np.errstate(over="ignore"):  # e^89 is infinite in float32, and its reciprocal rightly 0
        np.exp(odds_against, out=odds_against)
    odds_against += np.float32(1)
    return np.reciprocal(odds_against, out=odds_against)


def _close_gaps(column: np.ndarray, places: list[int], sizes: list[int]) -> np.ndarray:
    """The column with what was written at each place moved up to the end of what precedes it."""
    end = 0
    for place, size in zip(places, sizes, strict=False):
        for block in blocks(0, size if place > end else 0):
            column[end + block.start : end + block.stop] = column[
                place + block.start : place + block.stop
            ]
        end += size
    return column[:end]
