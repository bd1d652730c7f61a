"""Additive counts, the sums over rows that calibration metrics are made of, and their ratios."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from scipy.special import expit, log_expit

from pipeline.formats.maps import PROBABILITY_CLIP
from pipeline.formats.sort_keys import BLOCK


@dataclass(frozen=True)
class ResponseCounts:
    """Sums over the rows of each group (a field value, a field value on a day, a bin …).

    All arrays have one shape; its axes are whatever the maker grouped by. The sums of two disjoint
    sets of rows are the sums of their counts, so days, shards and machines merge by addition.

    Attributes:
        impressions: Σ impressions, int64 (float64 where rows are weighted).
        responses: Σ responses, same dtype.
        expected_responses: Σ impressions · p, float64; p as it is served, PROBABILITY_CLIP or more.
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

    def each(self, change: Callable[[np.ndarray], np.ndarray]) -> "ResponseCounts":
        """The counts whose arrays a function makes of these, each by itself."""
        return ResponseCounts(*(change(getattr(self, f.name)) for f in fields(self)))

    def reshape(self, *shape: int) -> "ResponseCounts":
        """The same counts with other axes, for example (days, field values)."""
        return self.each(lambda column: column.reshape(shape))

    def sum(self, axis: int | None = None) -> "ResponseCounts":
        """The counts with one axis summed away, or all of them (None: arrays of shape ())."""
        return self.each(lambda column: np.asarray(column.sum(axis=axis)))

    def where(self, picked: np.ndarray) -> "ResponseCounts":
        """The same counts, zero where a boolean mask of their shape is false."""
        return self.each(lambda column: np.where(picked, column, 0))

    def take(self, groups: np.ndarray) -> "ResponseCounts":
        """The groups of the last axis that a boolean mask or an index array picks."""
        return self.each(lambda column: column[..., groups])


class Measured(NamedTuple):
    """A metric and the share of impressions it speaks about; undefined is (NaN, 0.0)."""

    value: float
    coverage: float


class Terms(NamedTuple):
    """A metric as Σ numerator / Σ denominator, one summand for each field value on the last axis.

    A field value that the metric leaves out has zeros in both. Resampling field values weights the
    summands; nothing else about a metric needs to be known for its interval.
    """

    numerator: np.ndarray
    denominator: np.ndarray

    def ratio(self) -> np.ndarray:
        """The metric, with the last axis summed away; NaN where the denominators sum to zero."""
        return ratio(self.numerator.sum(axis=-1), self.denominator.sum(axis=-1))


def ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """numerator / denominator element by element, float64; NaN where the denominator is zero."""
    numerator, denominator = np.broadcast_arrays(numerator, denominator)
    undefined = np.full(numerator.shape, np.nan)
    return np.divide(numerator, denominator, out=undefined, where=denominator != 0)


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
    """
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
    expected = n * np.maximum(expit(logit), PROBABILITY_CLIP)  # as it is served, never 0
    log_loss = -r * log_expit(logit) - (n - r) * log_expit(-logit)
    return n, r, expected, expected * expit(-logit), log_loss
