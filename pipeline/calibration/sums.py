"""Sums over the rows of each cell and day, exact: no order of rows, no block shows in them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipeline.calibration.packing import BLOCK, SortedRows, blocks


@dataclass(frozen=True)
class CellSums:
    """Sums of each (cell, day) that has impressions, in that order; a cell is a stretch of rows."""

    cell: np.ndarray  # int64 [m], number of the stretch
    day: np.ndarray  # int32 [m], days since 1970-01-01
    impressions: np.ndarray  # int64 [m]
    responses: np.ndarray  # int64 [m]
    logit_sum: np.ndarray  # float64 [m]
    probability_sum: np.ndarray  # float64 [m]


def _float32_sigmoid(logit: np.ndarray) -> np.ndarray:
    """sigmoid of float32 logits to a few units of its last place, much faster than in float64."""
    odds_against = np.negative(logit)
    with np.errstate(over="ignore"):  # e^89 is infinite in float32, and its reciprocal rightly 0
        np.exp(odds_against, out=odds_against)
    odds_against += np.float32(1)
    return np.reciprocal(odds_against, out=odds_against)


def _rounding_constants(magnitude: np.ndarray, impressions: np.ndarray) -> np.ndarray:
    """Constants M [cells]: (x + M) - M rounds x so coarsely that sums over a cell are exact.

    With |x| < 2^e and fewer than 2^b impressions, M = 1.5 · 2^(e + b) rounds to multiples of
    2^(e + b - 52); every sum of the cell is then at most 2^52 such steps, which float64 holds
    exactly, in any order and however rows are aggregated. The rounding itself is at most 2^(b - 53)
    of the largest magnitude: nothing at all for float32 numbers of one size and b up to 28.
    """
    exponent = np.frexp(magnitude)[1] + np.frexp(impressions.astype(np.float64))[1]
    return np.ldexp(1.5, exponent)


def sum_cells(rows: SortedRows, starts: np.ndarray) -> CellSums:
    """The sums of each (cell, day).

    Args:
        rows: the rows of a range of field values.
        starts: int64 [cells + 1], ascending: cell c is the rows [starts[c], starts[c + 1]).
    """
    parts = [_sum_group(rows, starts, first, last) for first, last in _groups(starts)]
    names = CellSums.__dataclass_fields__
    return CellSums(*(np.concatenate([getattr(p, name) for p in parts]) for name in names))


def _groups(starts: np.ndarray) -> Iterator[tuple[int, int]]:
    """Stretches [first, last) of cells with at most BLOCK rows together, or of one larger cell."""
    first, cells = 0, len(starts) - 1
    while first < cells or first == 0:
        last = int(np.searchsorted(starts, starts[first] + BLOCK, side="right")) - 1
        last = min(max(last, first + 1), cells)
        yield first, last
        first = max(last, 1)


def _sum_group(rows: SortedRows, starts: np.ndarray, first: int, last: int) -> CellSums:
    n_days, starts = rows.layout.n_days, starts[first : last + 1]
    cells = last - first
    filled = np.diff(starts) > 0
    ends = np.array([starts[:-1][filled], starts[1:][filled] - 1])
    magnitude = np.zeros((2, cells))
    if filled.any():
        logits = rows.logits(ends)
        magnitude[0, filled] = np.abs(logits).max(axis=0)
        magnitude[1, filled] = _float32_sigmoid(logits[1])
    impressions = np.diff(rows.impressions_before(starts))
    rounding = _rounding_constants(magnitude, impressions)
    counts = np.zeros((2, cells * n_days), dtype=np.int64)
    sums = np.zeros((2, cells * n_days))
    for block in blocks(int(starts[0]), int(starts[-1])):
        lengths = np.diff(np.clip(starts, block.start, block.stop))
        _add_block(rows, block, lengths, rounding, counts, sums)
    used = np.flatnonzero(counts[0])
    cell, day = np.divmod(used, n_days)
    day = (day + rows.layout.first_day).astype(np.int32)
    return CellSums(
        cell + first, day, counts[0, used], counts[1, used], sums[0, used], sums[1, used]
    )


def _add_block(
    rows: SortedRows,
    block: slice,
    lengths: np.ndarray,
    rounding: np.ndarray,
    counts: np.ndarray,
    sums: np.ndarray,
) -> None:
    """Add the rows of a block to counts and sums [2, cells · days] of its group of cells."""
    n_days, width = rows.layout.n_days, counts.shape[1]
    cell = np.repeat(np.arange(len(lengths)) * n_days, lengths)
    logit = rows.logits(block)
    terms = np.stack([logit, _float32_sigmoid(logit)]).astype(np.float64)
    for k in range(2):
        constant = np.repeat(rounding[k], lengths)
        terms[k] = (terms[k] + constant) - constant
    if rows.counts is None:
        low = (rows.keys[block] & np.uint64((1 << rows.layout.low_bits) - 1)).astype(np.int64)
        slot = cell + (low >> 1)
        pairs = np.bincount(2 * slot + (low & 1), minlength=2 * width).reshape(width, 2)
        counts[0] += pairs.sum(axis=1)
        counts[1] += pairs[:, 1]
    else:
        slot = cell + rows.counts.day[block]
        np.add.at(counts[0], slot, rows.counts.impressions[block])
        np.add.at(counts[1], slot, rows.counts.responses[block])
        terms *= rows.counts.impressions[block]
    for k in range(2):
        sums[k] += np.bincount(slot, terms[k], minlength=width)
