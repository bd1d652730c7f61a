"""How sure a metric is: field values resampled whole, days left out in turn, the wider quoted.

Which PCOC a single day may have if all is well, and what lies beyond: a rule for an alarm.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import ndtr, stdtrit

from pipeline.core.errors import DataError
from pipeline.metrics.calibration import pcoc
from pipeline.metrics.counts import ResponseCounts, Terms, ratio

MIN_DAYS = 5
"""Days from which on other days are judged."""

CHUNK = 1 << 22
"""Resampling weights that are held at a time."""

Statistic = Callable[[ResponseCounts], Terms]
"""A metric of counts whose last axis is field values, for example `deviance_terms`."""


@dataclass(frozen=True)
class Daily:
    """A metric whose terms are taken of every day and added, where others take the days' totals."""

    of_day: Statistic


@dataclass(frozen=True)
class Resampling:
    """How intervals are made.

    Attributes:
        confidence: nominal share of intervals that hold the true value, in (0, 1).
        replicates: bootstrap samples of field values.
        seed: the same seed draws the same samples for every metric of the same field values.
        block_days: days that are left out together: the horizon of the forecasts, because labels
            that come late are missing from the forecasts of as many days in a row.
    """

    confidence: float = 0.95
    replicates: int = 1000
    seed: int = 0
    block_days: int = 1


USUAL = Resampling()
"""95 % intervals from 1,000 samples."""


@dataclass(frozen=True)
class Interval:
    """A value with its interval.

    Attributes:
        value: the metric, or the difference of two, over all days and field values.
        low: lower end; NaN where there is no interval or the value is not finite.
        high: upper end, likewise.
        over: which of the two intervals was the wider and is quoted.
        days: number of days seen; with fewer than MIN_DAYS blocks of them the interval is about
            other field values and other labels, and no claim is made about other days.
    """

    value: float
    low: float
    high: float
    over: Literal["field values", "days"]
    days: int


def field_value_interval(
    statistic: Statistic | Daily, counts: ResponseCounts, resampling: Resampling = USUAL
) -> Interval:
    """A metric with the wider of its two intervals (see `gain_interval`).

    Args:
        statistic: the metric as terms over field values.
        counts: shape [days, V].
        resampling: how.

    Raises:
        DataError: counts do not have two axes.
    """
    return _interval(statistic, (counts,), resampling)


def gain_interval(
    statistic: Statistic | Daily,
    method: ResponseCounts,
    reference: ResponseCounts,
    resampling: Resampling = USUAL,
) -> Interval:
    """The reference's metric minus the method's, paired: positive is a gain where less is better.

    Two intervals are made and the wider is quoted:

    - Over field values: they are resampled with all their rows together, the same draw for both
      methods (percentile bootstrap, its tails widened for few values as in Hesterberg 2015; a
      few that hold or decide nearly everything count as few). Resampling rows instead is biased for
      Field-RCE.
    - Over days, from MIN_DAYS blocks of `block_days` on: the delete-one-block jackknife of the
      metrics' difference, with Student's t on blocks − 1. It sees the shocks that all values of a
      day share.

    Args:
        statistic: the metric as terms over field values.
        method: counts of shape [days, V].
        reference: counts of the other method on the same rows, same shape.
        resampling: how.

    Raises:
        DataError: counts do not have two axes, or their shapes differ.
    """
    return _interval(statistic, (reference, method), resampling)


def _interval(
    statistic: Statistic | Daily, counts: tuple[ResponseCounts, ...], resampling: Resampling
) -> Interval:
    shapes = {c.shape for c in counts}
    if len(shapes) != 1 or counts[0].impressions.ndim != 2:
        raise DataError(f"intervals need counts of one shape (days, field values), got {shapes}")
    seen = counts[0].impressions.sum(axis=0) > 0
    terms = tuple(over_days(statistic, c.take(seen)) for c in counts)
    value = float(_difference([each.ratio() for each in terms]))
    days = counts[0].shape[0]
    if not np.isfinite(value):
        return Interval(value, float("nan"), float("nan"), "field values", days)
    values = Interval(value, *field_value_bootstrap(terms, resampling), "field values", days)
    left = [without_each_block(statistic, c, resampling.block_days).ratio() for c in counts]
    ends = jackknife_interval(value, _difference(left), resampling.confidence)
    return max(values, Interval(value, *ends, "days", days), key=_width)  # the first if equal


def over_days(statistic: Statistic | Daily, counts: ResponseCounts) -> Terms:
    """The terms [V] of a metric over all days of counts [days, V]."""
    if isinstance(statistic, Daily):
        return Terms(*(column.sum(axis=0) for column in statistic.of_day(counts)))
    return statistic(counts.sum(axis=0))


def without_each_block(
    statistic: Statistic | Daily, counts: ResponseCounts, block_days: int
) -> Terms:
    """The terms [blocks, V] over all days of counts [days, V] but one block of neighbours."""
    starts = np.arange(0, counts.shape[0], block_days)
    if isinstance(statistic, Daily):
        terms = statistic.of_day(counts)
        return Terms(*(c.sum(axis=0) - np.add.reduceat(c, starts, axis=0) for c in terms))
    blocks = counts.each(lambda column: np.add.reduceat(column, starts, axis=0))
    # what is left of all days, and where rounding would leave less than nothing, nothing
    return statistic(blocks.each(lambda column: np.maximum(column.sum(axis=0) - column, 0)))


def _width(interval: Interval) -> float:
    return -1.0 if np.isnan(interval.low) else interval.high - interval.low


def _difference(values: list[np.ndarray]) -> np.ndarray:
    """The one, or the first minus the second."""
    return values[0] if len(values) == 1 else values[0] - values[1]


def field_value_bootstrap(
    terms: tuple[Terms, ...], resampling: Resampling = USUAL
) -> tuple[float, float]:
    """Interval over field values of one metric, or of the first of two minus the second.

    Args:
        terms: one or two metrics as terms of shape [V], of all field values that have impressions
            (also those that the metric leaves out, so that every metric draws the same values).
        resampling: how.

    Returns:
        Low and high; NaN with fewer than two effective values, or where a sample leaves the metric
        undefined, because then too few values carry it.
    """
    columns = np.column_stack([column for t in terms for column in t]).astype(np.float64)
    effective = _effective_number(terms)
    if not effective >= 2:
        return float("nan"), float("nan")
    sums = resampled_sums(columns, resampling)
    sample = _difference([ratio(sums[:, i], sums[:, i + 1]) for i in range(0, sums.shape[1], 2)])
    if np.isnan(sample).any():
        return float("nan"), float("nan")
    tail = widened_tail(resampling.confidence, effective)
    low, high = np.quantile(sample, [tail, 1 - tail])
    return float(low), float(high)


def _effective_number(terms: tuple[Terms, ...]) -> float:
    """How many equal field values would be as sure as these.

    The smaller of (Σ d)² / Σ d² of the denominators d (Kish) and 3 (Σ u²)² / Σ u⁴ of each value's
    influence u on the metric, whose kurtosis is 3 for a normal one (Satterthwaite).
    """
    held = min(equal_number(t.denominator) for t in terms)
    if not held >= 2:
        return held
    influence = _difference(
        [(t.numerator - t.ratio() * t.denominator) / t.denominator.sum() for t in terms]
    )
    decided = 3 * equal_number(np.square(influence))
    return held if np.isnan(decided) else min(held, decided)


def equal_number(weights: np.ndarray) -> float:
    """(Σ w)² / Σ w²: the number of weights if they are equal, NaN if all are zero."""
    weights = weights.astype(np.float64)
    return float(ratio(np.square(weights.sum()), np.square(weights).sum()))


def widened_tail(confidence: float, n: float) -> float:
    """The percentile at which a bootstrap of n values is as wide as Student's t (Hesterberg)."""
    t = stdtrit(n - 1, (1 - confidence) / 2)
    return float(ndtr(np.sqrt(n / (n - 1)) * t))


def resampled_sums(columns: np.ndarray, resampling: Resampling) -> np.ndarray:
    """Sums [replicates, C] over draws, with replacement, of the rows of `columns` [V, C]."""
    generator = np.random.default_rng(resampling.seed)
    n_values = len(columns)
    step = max(1, CHUNK // n_values)
    sums = []
    for start in range(0, resampling.replicates, step):
        many = min(step, resampling.replicates - start)
        drawn = generator.integers(0, n_values, (many, n_values))
        drawn += n_values * np.arange(many)[:, None]
        times = np.bincount(drawn.ravel(), minlength=many * n_values).reshape(many, n_values)
        # einsum, not @: a threaded product may round differently with the number of threads
        sums.append(np.einsum("rv,vc->rc", times.astype(np.float64), columns))
    return np.concatenate(sums)


def jackknife_interval(
    value: float, without_each: np.ndarray, confidence: float
) -> tuple[float, float]:
    """Low and high around a value of all days; NaN below MIN_DAYS blocks.

    Args:
        value: of all days.
        without_each: [blocks], the value without each block of days in turn.
        confidence: as in `Resampling`.
    """
    blocks = len(without_each)
    if blocks < MIN_DAYS:
        return float("nan"), float("nan")
    away = np.square(without_each - without_each.mean()).sum()
    half = stdtrit(blocks - 1, (1 + confidence) / 2) * np.sqrt((blocks - 1) / blocks * away)
    return float(value - half), float(value + half)


@dataclass(frozen=True)
class SoundDay:
    """A day's PCOC by group, and the ends between which it lies on a sound day; float64 [G] each.

    Attributes:
        pcoc: E / O, NaN without responses.
        low: lower end; NaN where there is no day to learn it from.
        high: upper end; inf where any shortfall of responses may be luck.
        beyond: bool, whether the day lies outside.
    """

    pcoc: np.ndarray
    low: np.ndarray
    high: np.ndarray
    beyond: np.ndarray


def sound_day(history: ResponseCounts, day: ResponseCounts, false_alarms: float) -> SoundDay:
    """What the days before say of a day, so that all groups together rarely give a false alarm.

    E − O of a sound day has the variance V + τ² E²: label noise, and a shock that a group's rows of
    a day share. τ² is the mean of (E − O)² beyond V over E² of the days before, so a bias that has
    always been there is no alarm. The ends are Student's t with a degree of freedom for each of
    these days, at `false_alarms` divided by the number of groups (Bonferroni); upwards O may exceed
    E by as much on a logarithmic scale, as shocks multiply. Where shocks are normal or lognormal,
    the rate of false alarms is at most the nominal one; with tails of Student's t on 4 degrees it
    was up to seven times that in a simulation of eleven groups.

    Args:
        history: shape [days, G]; with fewer than MIN_DAYS of them nothing lies beyond.
        day: shape [G].
        false_alarms: probability that any group lies beyond on a sound day, in (0, 1).
    """
    days, groups = history.shape
    expected = day.expected_responses
    variance = day.expected_variance + day_shocks(history) * np.square(expected)
    half = np.sqrt(variance) * stdtrit(max(days, 1), 1 - false_alarms / groups / 2)
    half = half if days >= MIN_DAYS else np.full(groups, np.nan)
    most, least = expected * np.exp(ratio(half, expected)), np.maximum(expected - half, 0.0)
    beyond = (day.responses > most) | (day.responses < least)
    high = np.divide(expected, least, out=np.full(groups, np.inf), where=least > 0)
    return SoundDay(pcoc(day), ratio(expected, most), high, beyond)


def day_shocks(history: ResponseCounts) -> np.ndarray:
    """τ² of `sound_day`, float64 [G]; 0 where label noise explains what was missed.

    Args:
        history: shape [days, G].
    """
    missed = np.square(history.expected_responses - history.responses)
    return np.fmax(
        ratio(
            (missed - history.expected_variance).sum(axis=0),
            np.square(history.expected_responses).sum(axis=0),
        ),
        0,
    )


def watched(counts: ResponseCounts, ids: np.ndarray) -> ResponseCounts:
    """Counts [days, 1 + len(ids)] of all field values together, then of some, from [days, V]."""
    return counts.each(lambda column: np.column_stack([column.sum(axis=1), column[:, ids]]))
