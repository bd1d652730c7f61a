"""Rows in the order of (group, logit): the one sort behind ranking and equal-frequency bins."""

from dataclasses import dataclass

import numpy as np

from pipeline.metrics.counts import BLOCK, check_groups, check_rows

_SIGN = np.uint64(1 << 63)
_MAGNITUDE = np.int64((1 << 63) - 1)
_RESPONSE = np.uint64(1)


@dataclass(frozen=True)
class SortedRows:
    """Rows as ascending 64-bit keys, which hold group, logit and, for single impressions, response.

    A key is the group, then the leading order-preserving bits of the float64 logit, then one bit:
    the response of a row that is one impression, 0 in aggregated rows. Logits are told apart by
    sign, exponent and the first 51 − ⌈log2 n_groups⌉ bits of the mantissa (41 for a thousand
    groups, 5·10⁻¹³ of the logit; finer than float32 up to 2²⁸ groups); logits that agree in those
    are tied.

    Attributes:
        keys: uint64 [n], ascending.
        n_groups: number of groups; some may have no row.
        impressions: [n] in the order of the keys; None where every row is one impression.
        responses: likewise.
    """

    keys: np.ndarray
    n_groups: int
    impressions: np.ndarray | None = None
    responses: np.ndarray | None = None

    @property
    def group_bits(self) -> int:
        """How many bits of a key the group takes."""
        return _group_bits(self.n_groups)

    def group_of(self, keys: np.ndarray) -> np.ndarray:
        """The group, int64, that each key stands for."""
        if not self.group_bits:  # a shift by 64 is no shift
            return np.zeros(len(keys), np.int64)
        return (keys >> np.uint64(64 - self.group_bits)).view(np.int64)

    def logit_of(self, keys: np.ndarray) -> np.ndarray:
        """The logit nearest to 0, float64, that each key can stand for."""
        dropped = self.group_bits + 1
        ordered = (keys >> _RESPONSE << np.uint64(dropped)) ^ _SIGN
        ordered |= np.where(ordered >= _SIGN, np.uint64((1 << dropped) - 1), np.uint64(0))
        signed = ordered.view(np.int64)
        signed ^= (signed >> 63) & _MAGNITUDE
        return signed.view(np.float64)

    def group_starts(self) -> np.ndarray:
        """Where each group's rows begin, int64 [n_groups + 1], the last the number of rows."""
        if not self.group_bits:
            return np.array([0, len(self.keys)])
        firsts = np.arange(self.n_groups, dtype=np.uint64) << np.uint64(64 - self.group_bits)
        return np.append(np.searchsorted(self.keys, firsts), len(self.keys))


def sort_rows(
    logit: np.ndarray,
    impressions: np.ndarray,
    responses: np.ndarray,
    group: np.ndarray,
    n_groups: int,
) -> SortedRows:
    """The rows sorted by (group, logit); the order they come in is irrelevant.

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
    keys = _packed(logit, group, _group_bits(n_groups))
    if np.issubdtype(impressions.dtype, np.integer) and (impressions == 1).all():
        keys |= responses.astype(np.uint64)
        keys.sort()
        return SortedRows(keys, n_groups)
    order = np.argsort(keys)
    return SortedRows(keys[order], n_groups, impressions[order], responses[order])


def _group_bits(n_groups: int) -> int:
    return int(max(n_groups - 1, 0)).bit_length()


def _packed(logit: np.ndarray, group: np.ndarray, group_bits: int) -> np.ndarray:
    """Keys with their lowest bit free; made block by block, in the cache."""
    keys = np.empty(len(logit), dtype=np.uint64)
    for start in range(0, len(logit), BLOCK):
        rows = slice(start, start + BLOCK)
        ordered = (logit[rows].astype(np.float64) + 0.0).view(np.int64)  # + 0.0: −0 and 0 are one
        ordered ^= (ordered >> 63) & _MAGNITUDE
        keys[rows] = (ordered.view(np.uint64) ^ _SIGN) >> np.uint64(group_bits + 1) << _RESPONSE
        if group_bits:
            keys[rows] |= group[rows].astype(np.uint64) << np.uint64(64 - group_bits)
    return keys
