"""Rows merged into runs of equal (group, logit): what ranking and equal-frequency bins read."""

from dataclasses import dataclass

import numpy as np

from pipeline.metrics.counts import BLOCK, check_groups, check_rows


@dataclass(frozen=True)
class LogitRuns:
    """Impressions and responses at every distinct logit of every group, in ascending order.

    Attributes:
        group: int64 [m], ascending.
        logit: float64 [m], ascending within a group.
        impressions: int64 (float64 where rows are weighted) [m].
        responses: same dtype [m].
        n_groups: number of groups; some may have no run.
    """

    group: np.ndarray
    logit: np.ndarray
    impressions: np.ndarray
    responses: np.ndarray
    n_groups: int

    def before(self, column: np.ndarray) -> np.ndarray:
        """For each run, the sum of `column` over the lower logits of its group."""
        below = np.cumsum(column) - column
        first = np.searchsorted(self.group, np.arange(self.n_groups))
        at_start = np.append(below, 0)[first]  # a group without runs reads a value nobody uses
        return below - at_start[self.group]

    def per_group(self, column: np.ndarray) -> np.ndarray:
        """Sums of `column` over each group, [n_groups]; int64 and exact for an integer column."""
        if np.issubdtype(column.dtype, np.floating):
            return np.bincount(self.group, weights=column, minlength=self.n_groups)
        first = np.searchsorted(self.group, np.arange(self.n_groups + 1))
        return np.diff(np.append(0, np.cumsum(column))[first])


def logit_runs(
    logit: np.ndarray,
    impressions: np.ndarray,
    responses: np.ndarray,
    group: np.ndarray,
    n_groups: int,
) -> LogitRuns:
    """The rows merged into runs by one sort of packed 64-bit keys; the order of rows is irrelevant.

    A key holds the group, then the leading order-preserving bits of the float64 logit, then, where
    every row is one impression, its response. Logits are thus told apart by sign, exponent and the
    first 51 − ⌈log2 n_groups⌉ bits of the mantissa (41 for a thousand groups, 5·10⁻¹³ of the logit;
    finer than float32 up to 2²⁸ groups); logits equal in those are one run, at the logit nearest to
    0 that has them.

    Args:
        logit: float [n], finite.
        impressions: int or float [n], how many impressions (or which weight) a row stands for.
        responses: [n], 0 ≤ responses ≤ impressions.
        group: int [n] in [0, n_groups).
        n_groups: number of groups.

    Raises:
        DataError: lengths differ, a logit is not finite, responses exceed impressions, or a group
            lies outside its range.
    """
    check_rows(logit, impressions, responses)
    check_groups(group, len(logit), n_groups)
    bits = max(n_groups - 1, 0).bit_length()
    keys = _packed(logit, group, bits)
    if np.issubdtype(impressions.dtype, np.integer) and (impressions == 1).all():
        keys |= responses.astype(np.uint64)
        keys.sort()
        starts = _starts_of_runs(keys)
        sizes = np.diff(starts, append=len(keys))
        sums = sizes, _sums_of_runs((keys & _RESPONSE).view(np.int64), starts)
    else:
        order = np.argsort(keys)
        keys = keys[order]
        starts = _starts_of_runs(keys)
        sums = _sums_of_runs(impressions[order], starts), _sums_of_runs(responses[order], starts)
    return LogitRuns(*_unpacked(keys[starts], bits), *sums, n_groups)


_SIGN = np.uint64(1 << 63)
_MAGNITUDE = np.int64((1 << 63) - 1)
_RESPONSE = np.uint64(1)


def _packed(logit: np.ndarray, group: np.ndarray, bits: int) -> np.ndarray:
    """Keys that sort as (group, logit), lowest bit free; made block by block, in the cache."""
    keys = np.empty(len(logit), dtype=np.uint64)
    for start in range(0, len(logit), BLOCK):
        rows = slice(start, start + BLOCK)
        ordered = (logit[rows].astype(np.float64) + 0.0).view(np.int64)  # + 0.0: −0 and 0 are one
        ordered ^= (ordered >> 63) & _MAGNITUDE
        leading = (ordered.view(np.uint64) ^ _SIGN) >> np.uint64(bits + 1) << _RESPONSE
        keys[rows] = leading
        if bits:  # a shift by 64 is no shift
            keys[rows] |= group[rows].astype(np.uint64) << np.uint64(64 - bits)
    return keys


def _unpacked(keys: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """The group, int64, and the logit nearest to 0, float64, that each key stands for."""
    group = (keys >> np.uint64(64 - bits) if bits else np.zeros_like(keys)).astype(np.int64)
    ordered = (keys >> _RESPONSE << np.uint64(bits + 1)) ^ _SIGN
    dropped = np.uint64((1 << (bits + 1)) - 1)
    ordered |= np.where(ordered >= _SIGN, dropped, np.uint64(0))
    signed = ordered.view(np.int64)
    signed ^= (signed >> 63) & _MAGNITUDE
    return group, signed.view(np.float64)


def _starts_of_runs(keys: np.ndarray) -> np.ndarray:
    """Where a run of keys begins that differ in no more than their lowest bit."""
    first = np.ones(len(keys), dtype=bool)
    np.greater(keys[1:] ^ keys[:-1], _RESPONSE, out=first[1:])
    return np.flatnonzero(first)


def _sums_of_runs(column: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Sums of `column` from each start to the next, int64 for integers and float64 for weights."""
    dtype = np.float64 if np.issubdtype(column.dtype, np.floating) else np.int64
    return np.add.reduceat(column, starts, dtype=dtype) if len(starts) else column.astype(dtype)
