"""The filter: offsets and slopes that follow the days, one predict-update step a day.

calibrated_logit = level_{z,t} + slope_{z,t} · (uncalibrated_logit - x̄_z) on day t, with

    level = x̄_z + a_z + u_{z,t} + v_{z,t} + w_{z,t} + shared,    slope = b_z + shared

x̄_z the field value's usual logit, a_z and b_z its lasting offset and slope, u and v movements that
revert to their mean (Ornstein-Uhlenbeck with TIME_CONSTANTS), w noise of single days. What all
values share has the same parts, and a line in x̄_z. All is normal before it is seen. A day's counts
are binomial; each field value's posterior of (level, slope) is carried on by its mean and
covariance (assumed density filtering; Minka 2001). A day's covariance between what a value has of
its own and what all share is dropped.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import newton
from scipy.special import expit

from pipeline.calibration.prior.quadrature import (
    LEVEL,
    SLOPE,
    DayRows,
    mean_logit,
    times,
)
from pipeline.calibration.prior.random_slopes import (
    VAGUE_MEAN,
    VAGUE_PRECISION,
    SlopePrior,
    group_rows,
    inverse,
    modes,
)

TIME_CONSTANTS = np.array([30.0, 4.0])  # days in which a movement loses all but 1/e of itself
KEPT = np.exp(-1.0 / TIME_CONSTANTS)
OWN = np.array([[1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])  # lasting, slow, fast; slope
TWICE = np.kron(OWN, OWN).T  # [16, 4]: a covariance [4, 4] of an own state → [2, 2] of these two
SHARED_START = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0])  # lasting, slow, fast, day, line; slope
SHARED_SPREAD = np.array([1.0, 0.25, 0.25])  # variances of lasting, line and slope


@dataclass(frozen=True)
class Variances:
    """How much field values differ and move, in logits²; slopes per unit of logit.

    The defaults are what is believed before a log is seen (`learning` says where they are from).
    """

    lasting: float = 0.25
    slow: float = 0.08
    fast: float = 0.06
    day: float = 0.005
    slope: float = 0.05
    shared_slow: float = 0.004
    shared_fast: float = 0.004
    shared_day: float = 0.001


@dataclass(frozen=True)
class DayForecast:
    """What is believed of a day's (level, slope) before the day: normal, noise of the day included.

    Attributes:
        mean: float64 [V, 2].
        covariance: float64 [V, 2, 2].
        usual: float64 [V], x̄_z.
    """

    mean: np.ndarray
    covariance: np.ndarray
    usual: np.ndarray

    def moments(
        self, uncalibrated_logit: np.ndarray, field_value_id: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the calibrated logit, [n, …] at logits [n, …] of ids [n]."""
        each = (len(field_value_id), *[1] * (uncalibrated_logit.ndim - 1))
        covariance = self.covariance[field_value_id]
        away = uncalibrated_logit - self.usual[field_value_id].reshape(each)
        level, cross, slope = (
            covariance[:, i, j].reshape(each) for i, j in ((0, 0), (0, 1), (1, 1))
        )
        mean = self.mean[field_value_id]
        logit = mean[:, LEVEL].reshape(each) + mean[:, SLOPE].reshape(each) * away
        return logit, level + away * (2.0 * cross + away * slope)

    def __call__(self, uncalibrated_logit: np.ndarray, field_value_id: np.ndarray) -> np.ndarray:
        """The calibrated logit of the mean probability, float64 [n], of logits [n] at ids [n]."""
        return mean_logit(*self.moments(uncalibrated_logit, field_value_id))


def unseen_line(
    lines: DayForecast, about: np.ndarray, center: float, reach: float = 0.25
) -> np.ndarray:
    """(level, slope) float64 [2] of a field value that was never seen, from all that were.

    A Platt map of the mean probabilities that they have on both sides of their usual logits. Each
    counts as about two responses: however many it has, what it says of another value is no surer
    than rates are alike, which differ by about their own size.

    Args:
        lines: of each value.
        about: float64 [U], the usual logit of each.
        center: the logit at which the level is asked for.
        reach: how far on both sides.
    """
    logit = about[:, None] + np.array([-reach, reach])
    probability = expit(lines(logit, np.arange(len(about)))).ravel()
    shown = np.full(len(probability), 1.0 / probability.mean())
    columns = (np.zeros(len(shown), dtype=np.int64), logit.ravel(), shown, shown * probability)
    prior = SlopePrior(VAGUE_MEAN, VAGUE_PRECISION)
    (found,), _ = modes(group_rows(columns, center), prior, VAGUE_MEAN[None])
    return found + np.array([center, 0.0])


@dataclass(frozen=True)
class Beliefs:
    """The state of the filter.

    Attributes:
        mean: float64 [V, 4], a field value's own (lasting, slow, fast, slope).
        covariance: float64 [V, 4, 4].
        shared_mean: float64 [6].
        shared_covariance: float64 [6, 6].
        seen: bool [V], the field values that something was learned of.
    """

    mean: np.ndarray
    covariance: np.ndarray
    shared_mean: np.ndarray
    shared_covariance: np.ndarray
    seen: np.ndarray


class Filter:
    """The steps from day to day.

    Args:
        variances: of what differs and moves.
        usual: float64 [V], x̄_z.
        center: mean of x̄ over impressions.
    """

    def __init__(self, variances: Variances, usual: np.ndarray, center: float) -> None:
        self.variances, self.usual = variances, usual
        self.loadings = np.zeros((len(usual), 2, len(SHARED_START)))
        self.loadings[:, LEVEL, :4] = 1.0
        self.loadings[:, LEVEL, 4] = usual - center
        self.loadings[:, SLOPE, 5] = 1.0

    def start(self) -> Beliefs:
        """What is believed on the eve of the first day."""
        v, (lasting, line, slope) = self.variances, SHARED_SPREAD
        own = np.diag([v.lasting, v.slow, v.fast, v.slope])
        shared = [lasting, v.shared_slow, v.shared_fast, 0.0, line, slope]
        n = len(self.usual)
        states = np.zeros((n, 4)), np.tile(own, (n, 1, 1)), SHARED_START, np.diag(shared)
        return Beliefs(*states, np.zeros(n, dtype=bool))

    def ahead(self, beliefs: Beliefs, days: int) -> Beliefs:
        """What is believed of a day `days` later (1 or more) before anything in between is seen."""
        v, kept = self.variances, KEPT**days
        slow, fast = 1.0 - kept**2
        own, shared = np.array([1.0, *kept, 1.0]), np.array([1.0, *kept, 0.0, 1.0, 1.0])
        of_own = np.diag([0.0, v.slow * slow, v.fast * fast, 0.0])
        of_shared = [0.0, v.shared_slow * slow, v.shared_fast * fast, v.shared_day, 0.0, 0.0]
        return Beliefs(
            beliefs.mean * own,
            beliefs.covariance * np.outer(own, own) + of_own,
            beliefs.shared_mean * shared,
            beliefs.shared_covariance * np.outer(shared, shared) + np.diag(of_shared),
            beliefs.seen,
        )

    def forecast(self, beliefs: Beliefs) -> DayForecast:
        """(level, slope) of every field value on the day that the beliefs are of.

        One that was not seen has the line of `unseen_line`.
        """
        mean, covariance = self._apart(beliefs, slice(None))
        covariance += self._of_shared(beliefs.shared_covariance)
        if beliefs.seen.any():
            self._set_unseen(beliefs, mean, covariance)
        return DayForecast(mean, covariance, self.usual)

    def _set_unseen(self, beliefs: Beliefs, mean: np.ndarray, covariance: np.ndarray) -> None:
        """Change the mean of unseen rows to that of an unseen value, in place.

        The normal prior holds what most values have, and a few that lie far off make most of the
        mean rate, so it is learned from the posteriors of those seen. What is then served
        integrates σ; the level is the one that it needs.
        """
        seen, unseen = beliefs.seen, ~beliefs.seen
        lines = DayForecast(mean[seen], covariance[seen], self.usual[seen])
        level, slope = unseen_line(lines, self.usual[seen], self.usual[0])
        variance = covariance[0, LEVEL, LEVEL]
        level = newton(lambda at: mean_logit(at, variance) - level, level)
        mean[unseen, LEVEL] = level + slope * (self.usual[unseen] - self.usual[0])
        mean[unseen, SLOPE] = slope

    def _of_shared(
        self, covariance: np.ndarray, ids: np.ndarray | slice = slice(None)
    ) -> np.ndarray:
        loadings = self.loadings[ids]
        return np.einsum("uia,uja->uij", _along(loadings, covariance), loadings)

    def _apart(self, beliefs: Beliefs, ids: np.ndarray | slice) -> tuple[np.ndarray, np.ndarray]:
        """Mean of (level, slope), and its covariance but for what is shared."""
        mean = beliefs.mean[ids] @ OWN.T + _along(self.loadings[ids], beliefs.shared_mean)
        mean[:, LEVEL] += self.usual[ids]
        covariance = (beliefs.covariance[ids].reshape(-1, 16) @ TWICE).reshape(-1, 2, 2)
        covariance[:, LEVEL, LEVEL] += self.variances.day
        return mean, covariance

    def update(self, beliefs: Beliefs, day: DayRows) -> tuple[Beliefs, float]:
        """What is believed after the day's rows, and their log likelihood under the beliefs before.

        What is shared learns first, from the modes of all values; each value then, by quadrature,
        under what is left open of the shared.
        """
        mean, covariance = self._apart(beliefs, day.ids)
        shift, left, evidence = self._learn_shared(beliefs, day, mean, covariance)
        mean += _along(self.loadings[day.ids], shift)
        before = covariance + self._of_shared(left, day.ids)
        middle, after, of_values = day.integrate(mean, before)
        own, spread = beliefs.mean.copy(), beliefs.covariance.copy()
        learned = day.ids > 0  # id 0 stands for many values, none of which is known
        ids = day.ids[learned]
        own[ids], spread[ids] = _regressed(
            own[ids], spread[ids], before[learned], (middle - mean)[learned], after[learned]
        )
        seen = beliefs.seen.copy()
        seen[ids] = True
        kept = Beliefs(own, spread, beliefs.shared_mean + shift, left, seen)
        return kept, evidence + float(of_values.sum())

    def _learn_shared(
        self, beliefs: Beliefs, day: DayRows, mean: np.ndarray, covariance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """How far the shared moves, what stays open of it, and what that adds to the evidence."""
        loadings, precision = self.loadings[day.ids], inverse(covariance)
        prior = np.linalg.inv(beliefs.shared_covariance)
        shift = np.zeros(len(prior))
        for first in (True, False):  # modes first; then means, about that answer
            there = mean + _along(loadings, shift)
            found = day.mode(there, precision) if first else day.integrate(there, covariance)
            middle, posterior = found[:2]
            score = times(precision, middle - there)
            information = precision - precision @ posterior @ precision
            flat = loadings.reshape(-1, len(shift))
            of_shared = flat.T @ (information @ loadings).reshape(flat.shape)
            left = np.linalg.inv(prior + of_shared)
            shift = left @ (flat.T @ score.ravel() + of_shared @ shift)
        left = (left + left.T) / 2.0
        volume = np.linalg.slogdet(left)[1] + np.linalg.slogdet(prior)[1]
        return shift, left, float(volume - shift @ prior @ shift) / 2.0


def _along(loadings: np.ndarray, shared: np.ndarray) -> np.ndarray:
    """Products of loadings [U, 2, K] with what is shared, [K] or [K, K], as one of matrices."""
    product = loadings.reshape(-1, loadings.shape[2]) @ shared
    return product.reshape(len(loadings), 2, *shared.shape[1:])


def _regressed(
    mean: np.ndarray,
    covariance: np.ndarray,
    before: np.ndarray,
    moved: np.ndarray,
    after: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Own states [U, 4] after (level, slope) moved and its covariance went from before to after.

    Joseph's form, which keeps covariances positive definite.
    """
    gain = (covariance.reshape(-1, 4) @ OWN.T).reshape(-1, 4, 2) @ inverse(before)
    rest = np.eye(4) - gain @ OWN
    noise = before - (covariance.reshape(-1, 16) @ TWICE).reshape(-1, 2, 2) + after
    kept = rest @ covariance @ rest.transpose(0, 2, 1) + gain @ noise @ gain.transpose(0, 2, 1)
    return mean + times(gain, moved), (kept + kept.transpose(0, 2, 1)) / 2.0
