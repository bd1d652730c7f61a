"""How sure a mean gain over several test sets is that share field values, days and labels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from pipeline.metrics.counts import ResponseCounts, ratio
from pipeline.metrics.significance import (
    MIN_DAYS,
    USUAL,
    Daily,
    Interval,
    Resampling,
    Statistic,
    equal_number,
    over_days,
    resampled_sums,
    widened_tail,
    without_each_block,
)


@dataclass(frozen=True)
class Pair:
    """Two methods' counts on one test set.

    Attributes:
        days: int [D], the days of the counts' first axis; equal numbers are equal days in all sets.
        values: int [V], the field values of the last axis, from 0 on, likewise.
        method: shape [D, V].
        reference: shape [D, V].
    """

    days: np.ndarray
    values: np.ndarray
    method: ResponseCounts
    reference: ResponseCounts

    def terms(self, statistic: Statistic | Daily) -> np.ndarray:
        """Numerators and denominators of reference and method, float64 [V, 4]."""
        pooled = [over_days(statistic, counts) for counts in (self.reference, self.method)]
        return np.column_stack([column for each in pooled for column in each]).astype(np.float64)


def _gain(sums: np.ndarray) -> np.ndarray:
    """Reference minus method of sums [..., 4]."""
    return ratio(sums[..., 0], sums[..., 1]) - ratio(sums[..., 2], sums[..., 3])


def mean_gain(
    statistic: Statistic | Daily, pairs: Sequence[Pair], resampling: Resampling = USUAL
) -> Interval:
    """The reference's metric minus the method's, its mean over test sets: positive is a gain.

    Test sets are not independent: seeds of a base model share all labels, windows share field
    values and may share days. So a field value that is drawn is drawn with its rows in every set,
    and a day that is left out is left out of every set; else as in `gain_interval`, whose interval
    this is for a single set. The wider of the two is quoted.

    Args:
        statistic: the metric as terms over field values.
        pairs: one for each test set.
        resampling: how.
    """
    value = float(np.mean([_gain(pair.terms(statistic).sum(axis=0)) for pair in pairs]))
    days = len(np.unique(np.concatenate([pair.days for pair in pairs])))
    if not np.isfinite(value):
        return Interval(value, float("nan"), float("nan"), "field values", days)
    values = Interval(value, *_over_values(statistic, pairs, resampling), "field values", days)
    half = _over_days(statistic, pairs, resampling.confidence)
    by_day = Interval(value, value - half, value + half, "days", days)
    wider = np.isnan(values.low) or 2 * half > values.high - values.low
    return by_day if wider and not np.isnan(half) else values


def _over_values(
    statistic: Statistic | Daily, pairs: Sequence[Pair], resampling: Resampling
) -> tuple[float, float]:
    """Bootstrap interval over field values; NaN with fewer than two effective ones."""
    n_values = 1 + max(int(pair.values.max()) for pair in pairs)
    columns, influence = np.zeros((n_values, len(pairs), 4)), np.zeros(n_values)
    seen = np.zeros(n_values, dtype=bool)
    for i, pair in enumerate(pairs):
        columns[pair.values, i] = pair.terms(statistic)
        seen[pair.values[pair.method.impressions.sum(axis=0) > 0]] = True
        total = columns[:, i].sum(axis=0)
        for sign, at in ((1, 0), (-1, 2)):
            away = columns[:, i, at] - total[at] / total[at + 1] * columns[:, i, at + 1]
            influence += sign * away / total[at + 1]
    held = min(equal_number(columns[:, i, at]) for i in range(len(pairs)) for at in (1, 3))
    decided = 3 * equal_number(np.square(influence))
    effective = held if np.isnan(decided) else min(held, decided)
    if not effective >= 2:
        return float("nan"), float("nan")
    sums = resampled_sums(columns[seen].reshape(seen.sum(), -1), resampling)
    sample = _gain(sums.reshape(len(sums), len(pairs), 4)).mean(axis=1)
    tail = widened_tail(resampling.confidence, effective)
    low, high = np.quantile(sample, [tail, 1 - tail])  # NaN where a sample is undefined
    return float(low), float(high)


def _over_days(statistic: Statistic | Daily, pairs: Sequence[Pair], confidence: float) -> float:
    """Half the jackknife interval over days; NaN below MIN_DAYS."""
    days, place = np.unique(np.concatenate([pair.days for pair in pairs]), return_inverse=True)
    if len(days) < MIN_DAYS:
        return float("nan")
    change, start = np.zeros(len(days)), 0
    for pair in pairs:
        n = len(pair.days)
        if n > 1:  # the only day of a set cannot be left out
            reference, method = (
                without_each_block(statistic, c, 1).ratio().reshape(-1)
                for c in (pair.reference, pair.method)
            )
            left = reference - method
            away = (left - left.mean()) * np.sqrt((n - 1) / n) / len(pairs)
            change[place[start : start + n]] += away
        start += n
    return float(stdtrit(len(days) - 1, (1 + confidence) / 2) * np.sqrt(np.square(change).sum()))
