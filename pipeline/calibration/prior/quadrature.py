"""Posteriors of (level, slope) from a day's binomial counts, and probabilities right in the mean.

The posterior is integrated by Gauss-Hermite quadrature about its mode (Liu & Pierce 1994): few
responses make it skew, so that its mean lies below its mode.
"""

from dataclasses import dataclass

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import expit, log_expit

from pipeline.calibration.prior.daily import DailyCounts
from pipeline.calibration.prior.random_slopes import inverse

LEVEL, SLOPE = 0, 1
LEAST_VARIANCE = 1e-12  # of a logit; counts never leave so little
LEAST_PROBABILITY = 1e-300  # of which a logarithm is taken
LONGEST_STEP = 1.5  # of Newton's method
STEPS = 12


def _nodes(*counts: int) -> tuple[np.ndarray, np.ndarray]:
    """Places [Q, len(counts)] of a standard normal and the log of their weights, exp(½u²) in it."""
    rules = [hermegauss(count) for count in counts]
    places = np.stack(np.meshgrid(*(r[0] for r in rules), indexing="ij"), -1).reshape(
        -1, len(counts)
    )
    weights = np.ones(1)
    for _, weight in rules:
        weights = np.multiply.outer(weights, weight / weight.sum()).reshape(-1)
    return places, np.log(weights) + 0.5 * (places**2).sum(axis=1)


PLACES, LOG_WEIGHTS = _nodes(5, 3)
OF_LOGIT = _nodes(7)
FINE = hermegauss(9)[0], hermegauss(9)[1] / hermegauss(9)[1].sum()
FARTHEST = 1.01 * FINE[0].max()  # deviations: no mean probability lies farther from σ(mean)


def mean_logit(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """logit E[expit(X)] of X ~ N(mean, variance), float64 like the arguments, by nine nodes.

    A mean logit gives too low a mean probability where responses are rare (Jensen), so this is
    what is served.
    """
    deviation, rare = np.sqrt(variance), np.full_like(mean, LEAST_PROBABILITY)
    size = -np.abs(mean)  # the rarer outcome's: 1 minus its probability cancels nothing
    for place, weight in zip(*FINE, strict=True):
        rare += weight * expit(size + place * deviation)
    return np.copysign(np.log1p(-rare) - np.log(rare), mean)


@dataclass(frozen=True)
class DayRows:
    """The rows of one day, sorted by field value.

    Attributes:
        ids: int64 [U], the field values, ascending.
        starts: int64 [U], the first row of each.
        value: int64 [n], index into `ids` of each row.
        away: float64 [n], logit - x̄ of the field value.
        impressions: float64 [n].
        responses: float64 [n].
    """

    ids: np.ndarray
    starts: np.ndarray
    value: np.ndarray
    away: np.ndarray
    impressions: np.ndarray
    responses: np.ndarray

    @classmethod
    def of(cls, counts: DailyCounts, day: int, usual: np.ndarray) -> "DayRows":
        """The rows that `counts` has of a day; `usual` float64 [V] is x̄."""
        rows = counts.rows_of(day)
        ids = counts.field_value_id[rows]
        new = np.diff(ids, prepend=-1) > 0
        starts = np.flatnonzero(new)
        away = counts.logit[rows] - usual[ids]
        counted = counts.impressions[rows], counts.responses[rows]
        return cls(ids[starts], starts, np.cumsum(new) - 1, away, *counted)

    @property
    def alone(self) -> bool:
        """Whether each field value has one row, which sees one direction of (level, slope)."""
        return len(self.value) == len(self.ids)

    def mode(
        self, mean: np.ndarray, covariance: np.ndarray, start: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Modes [U, 2] of (level, slope) and covariances [U, 2, 2] there, under a normal prior.

        Args:
            mean: float64 [U, 2], of the prior.
            covariance: float64 [U, 2, 2], of the prior.
            start: float64 [U, 2], where Newton's method begins.
        """
        if self.alone:
            line = _Line.of(mean, covariance, self.away)
            return line.regressed(mean, covariance, *self._mode_of_logit(line, start))
        precision, mode = inverse(covariance), start
        for _ in range(STEPS):
            logit = mode[self.value, LEVEL] + mode[self.value, SLOPE] * self.away
            expected = self.impressions * expit(logit)
            residual, weight = self.responses - expected, expected * expit(-logit)
            leaning = weight * self.away
            rows = (residual, residual * self.away, weight, leaning, leaning * self.away)
            g0, g1, w0, w1, w2 = (np.add.reduceat(row, self.starts) for row in rows)
            there = inverse(precision + _symmetric(w0, w1, w2))
            gradient = np.stack([g0, g1], axis=1) - times(precision, mode - mean)
            step = np.clip(times(there, gradient), -LONGEST_STEP, LONGEST_STEP)
            mode = mode + step
            if np.abs(step).max() < 1e-3:
                break
        return mode, there

    def _mode_of_logit(self, line: "_Line", start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Modes [U] of the rows' own logits, and variances [U] there."""
        logit = start[:, LEVEL] + start[:, SLOPE] * self.away
        for _ in range(STEPS):
            probability = expit(logit)
            expected = self.impressions * probability
            variance = 1.0 / (expected * (1.0 - probability) + 1.0 / line.variance)
            gradient = self.responses - expected - (logit - line.mean) / line.variance
            step = np.clip(variance * gradient, -LONGEST_STEP, LONGEST_STEP)
            logit = logit + step
            if np.abs(step).max() < 1e-3:
                break
        return logit, variance

    def integrate(
        self, mean: np.ndarray, covariance: np.ndarray, start: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Posterior means [U, 2] and covariances [U, 2, 2] of (level, slope), log evidence [U].

        Args:
            mean: float64 [U, 2], of the normal prior.
            covariance: float64 [U, 2, 2], of the prior.
            start: float64 [U, 2], where the search for the mode begins.
        """
        if self.alone:
            return self._integrate_logit(mean, covariance, start)
        precision = inverse(covariance)
        mode, there = self.mode(mean, covariance, start)
        level, slope = _places(mode, there)  # [U, Q] each
        logit = level[self.value] + slope[self.value] * self.away[:, None]
        fit = self.responses[:, None] * logit + self.impressions[:, None] * log_expit(-logit)
        weight = np.add.reduceat(fit, self.starts, axis=0)
        weight += LOG_WEIGHTS - 0.5 * _quadratic(
            precision, level - mean[:, LEVEL, None], slope - mean[:, SLOPE, None]
        )
        weight, evidence = _normalised(weight)
        middle = np.stack([(weight * level).sum(axis=1), (weight * slope).sum(axis=1)], axis=1)
        of_level, of_slope = level - middle[:, LEVEL, None], slope - middle[:, SLOPE, None]
        leaning = weight * of_level
        moments = (leaning * of_level, leaning * of_slope, weight * of_slope**2)
        spread = _symmetric(*(moment.sum(axis=1) for moment in moments))
        volume = 0.5 * np.log(_determinant(there) * _determinant(precision))
        return middle, spread, evidence + volume

    def said(
        self, mean: np.ndarray, covariance: np.ndarray, middle: np.ndarray, spread: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """What the rows said of (level, slope): pull [U, 2] and information [U, 2, 2].

        That of the normal likelihood which takes the prior to the posterior.

        Args:
            mean, covariance: of the prior.
            middle, spread: of the posterior.
        """
        if self.alone:
            line = _Line.of(mean, covariance, self.away)
            sees = np.stack([np.ones_like(self.away), self.away], axis=1)
            seen = (line.variance - _Line.of(middle, spread, self.away).variance) / line.variance**2
            pull = ((middle - mean) * sees).sum(axis=1) / line.variance
            information = _symmetric(seen, seen * self.away, seen * self.away**2)
            return pull[:, None] * sees, information
        precision = inverse(covariance)
        information = precision - precision @ spread @ precision
        return times(precision, middle - mean), information

    def _integrate_logit(
        self, mean: np.ndarray, covariance: np.ndarray, start: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same by nodes along the logit of each value's one row, all else regressed on it."""
        line = _Line.of(mean, covariance, self.away)
        mode, there = self._mode_of_logit(line, start)
        places, log_weights = OF_LOGIT
        logit = mode[:, None] + np.sqrt(there)[:, None] * places[:, 0]
        weight = self.responses[:, None] * logit + self.impressions[:, None] * log_expit(-logit)
        weight += log_weights - 0.5 * (logit - line.mean[:, None]) ** 2 / line.variance[:, None]
        weight, evidence = _normalised(weight)
        middle = (weight * logit).sum(axis=1)
        spread = (weight * (logit - middle[:, None]) ** 2).sum(axis=1)
        moved = line.regressed(mean, covariance, middle, spread)
        return *moved, evidence + 0.5 * np.log(there / line.variance)


@dataclass(frozen=True)
class _Line:
    """The prior of the logit of each value's one row, and how (level, slope) hang on it.

    Attributes:
        mean, variance: float64 [U].
        gain: float64 [U, 2].
    """

    mean: np.ndarray
    variance: np.ndarray
    gain: np.ndarray

    @classmethod
    def of(cls, mean: np.ndarray, covariance: np.ndarray, away: np.ndarray) -> "_Line":
        lean = covariance[:, :, LEVEL] + covariance[:, :, SLOPE] * away[:, None]
        # a score far out leaves level and slope one line, whose variance elsewhere rounds below 0
        variance = np.maximum(lean[:, LEVEL] + lean[:, SLOPE] * away, LEAST_VARIANCE)
        return cls(mean[:, LEVEL] + mean[:, SLOPE] * away, variance, lean / variance[:, None])

    def regressed(
        self, mean: np.ndarray, covariance: np.ndarray, logit: np.ndarray, variance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Means and covariances of (level, slope) once the logit's are `logit` and `variance`."""
        less = (self.variance - variance)[:, None, None]
        spread = covariance - less * self.gain[:, :, None] * self.gain[:, None]
        return mean + self.gain * (logit - self.mean)[:, None], spread


def _normalised(log_weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights [U, Q] that sum to one, and the log of their sum [U]."""
    largest = log_weight.max(axis=1, keepdims=True)
    weight = np.exp(log_weight - largest)
    total = weight.sum(axis=1)
    return weight / total[:, None], np.log(total) + largest[:, 0]


def _symmetric(aa: np.ndarray, ab: np.ndarray, bb: np.ndarray) -> np.ndarray:
    """Matrices [U, 2, 2] of their elements [U]."""
    matrices = np.empty((len(aa), 2, 2))
    matrices[:, 0, 0], matrices[:, 1, 1] = aa, bb
    matrices[:, 0, 1] = matrices[:, 1, 0] = ab
    return matrices


def times(matrices: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Products [U, i] of matrices [U, i, j] with vectors [U, j]."""
    return np.einsum("uij,uj->ui", matrices, vectors)


def _places(mode: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Levels and slopes [U, Q] of the nodes about a mode [U, 2], by its Cholesky factor."""
    a = np.sqrt(covariance[:, 0, 0])
    b = covariance[:, 0, 1] / a
    c = np.sqrt(covariance[:, 1, 1] - b * b)
    first, second = PLACES.T
    level = mode[:, LEVEL, None] + a[:, None] * first
    return level, mode[:, SLOPE, None] + b[:, None] * first + c[:, None] * second


def _quadratic(precision: np.ndarray, level: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """(level, slope) · precision · (level, slope), [U, Q], of deviations [U, Q]."""
    aa, ab, bb = (precision[:, i, j, None] for i, j in ((0, 0), (0, 1), (1, 1)))
    return level * (aa * level + 2.0 * ab * slope) + bb * slope**2


def _determinant(matrices: np.ndarray) -> np.ndarray:
    return matrices[:, 0, 0] * matrices[:, 1, 1] - matrices[:, 0, 1] ** 2
