"""Additive counts: the sums over rows from which every calibration metric is made."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields

import numpy as np

from pipeline.core.errors import DataError

BLOCK = 1 << 16
"""Rows that are worked on at a time, so that intermediate results stay in the cache."""


@dataclass(frozen=True)
class ResponseCounts:
    """Sums over the rows of each group (a field value, a field value on a day, a bin …).

    All arrays have one shape; its axes are whatever the maker grouped by. The sums of two disjoint
    sets of rows are the sums of their counts, so days, shards and machines merge by addition.

    Attributes:
        impressions: Σ impressions, int64 (float64 where rows are weighted).
        responses: Σ responses, same dtype.
        expected_responses: Σ impressions · p, float64.
        expected_variance: Σ impressions · p · (1 − p), float64: variance of responses if p is true.
        log_loss: Σ −responses · ln p − (impressions − responses) · ln(1 − p), float64, in nats.
    """

    impressions: np.ndarray
    responses: np.ndarray
    expected_responses: np.ndarray
    expected_variance: np.ndarray
    log_loss: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        """The groups' axes."""
        return self.impressions.shape

    def _each(self, change: Callable[[np.ndarray], np.ndarray]) -> "ResponseCounts":
        return ResponseCounts(*(change(getattr(self, f.name)) for f in fields(self)))

    def reshape(self, *shape: int) -> "ResponseCounts":
        """The same counts with other axes, for example (days, field values)."""
        return self._each(lambda column: column.reshape(shape))

    def sum(self, axis: int | None = None) -> "ResponseCounts":
        """The counts with one axis summed away, or all of them (None: arrays of shape ())."""
        return self._each(lambda column: np.asarray(column.sum(axis=axis)))

    def take(self, groups: np.ndarray) -> "ResponseCounts":
        """The groups of the last axis that a boolean mask or an index array picks."""
        return self._each(lambda column: column[..., groups])


def sum_counts(counts: Iterable[ResponseCounts]) -> ResponseCounts:
    """The counts of several disjoint sets of rows (days, shards), group by group.

    Raises:
        DataError: there are none, or their shapes differ.
    """
    parts = list(counts)
    if len({part.shape for part in parts}) != 1:
        raise DataError(f"counts add up over one shape, these have {[p.shape for p in parts]}")
    return ResponseCounts(
        *(np.sum([getattr(part, f.name) for part in parts], axis=0) for f in fields(ResponseCounts))
    )


def probability(logit: np.ndarray) -> np.ndarray:
    """1 / (1 + e^−logit) in float64, without overflow; in (0, 1) for logits within ±36."""
    logit = np.asarray(logit, dtype=np.float64)
    small = np.exp(-np.abs(logit))
    return np.where(logit >= 0, 1.0, small) / (1.0 + small)


def check_rows(logit: np.ndarray, impressions: np.ndarray, responses: np.ndarray) -> None:
    """Refuse rows that no metric can count.

    Raises:
        DataError: lengths differ, a logit is not finite, or responses lie outside [0, impressions].
    """
    lengths = {len(logit), len(impressions), len(responses)}
    if len(lengths) != 1:
        raise DataError(f"metrics need columns of one length, these have {sorted(lengths)}")
    if not np.isfinite(logit).all():
        row = int(np.flatnonzero(~np.isfinite(logit))[0])
        raise DataError(f"metrics need finite logits, row {row} has {logit[row]}")
    wrong = (responses < 0) | (responses > impressions)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise DataError(
            f"responses must lie in [0, impressions], row {row} has "
            f"{responses[row]} of {impressions[row]}"
        )


def check_groups(group: np.ndarray, n_rows: int, n_groups: int) -> None:
    """Refuse group numbers that do not name a group.

    Raises:
        DataError: their number is not that of the rows, or one lies outside [0, n_groups).
    """
    if len(group) != n_rows:
        raise DataError(f"metrics need a group for each of {n_rows} rows, got {len(group)}")
    if n_rows and not (group.min() >= 0 and group.max() < n_groups):
        raise DataError(
            f"groups must lie in [0, {n_groups}), these lie in [{group.min()}, {group.max()}]"
        )


def count_responses(
    calibrated_logit: np.ndarray,
    impressions: np.ndarray,
    responses: np.ndarray,
    group: np.ndarray,
    n_groups: int,
) -> ResponseCounts:
    """The counts of every group, shape [n_groups]; groups without rows have zeros.

    The log-loss is taken from the logit, responses · softplus(−l) + (impressions − responses) ·
    softplus(l), so nothing is clipped: a response at logit −120 costs 120 nats whatever the dtype.

    Args:
        calibrated_logit: float [n], finite log-odds; computed on in float64.
        impressions: int or float [n], how many impressions (or which weight) a row stands for.
        responses: [n], 0 ≤ responses ≤ impressions.
        group: int [n] in [0, n_groups).
        n_groups: number of groups.

    Raises:
        DataError: lengths differ, a logit is not finite, responses exceed impressions, or a group
            lies outside its range.
    """
    check_rows(calibrated_logit, impressions, responses)
    check_groups(group, len(calibrated_logit), n_groups)
    whole = np.issubdtype(np.asarray(impressions).dtype, np.integer)
    sums = np.zeros((5, n_groups))
    block = max(BLOCK, n_groups)
    for start in range(0, len(calibrated_logit), block):
        rows = slice(start, start + block)
        columns = _row_terms(calibrated_logit[rows], impressions[rows], responses[rows])
        for i, column in enumerate(columns):
            sums[i] += np.bincount(group[rows], weights=column, minlength=n_groups)
    counts = sums[:2].astype(np.int64) if whole else sums[:2]
    return ResponseCounts(counts[0], counts[1], *sums[2:])


def _row_terms(
    logit: np.ndarray, impressions: np.ndarray, responses: np.ndarray
) -> tuple[np.ndarray, ...]:
    """The five summands of each row, float64, in the order of ResponseCounts."""
    logit = logit.astype(np.float64)
    n, r = impressions.astype(np.float64), responses.astype(np.float64)
    small = np.exp(-np.abs(logit))
    larger = n / (1.0 + small)  # impressions times the larger of p and 1 − p
    expected = np.where(logit >= 0, larger, larger * small)
    variance = larger * small / (1.0 + small)
    wrong_side = np.where(logit >= 0, n - r, r)
    log_loss = n * np.log1p(small) + wrong_side * np.abs(logit)
    return n, r, expected, variance, log_loss
