"""What is believed of a day before it: the line of every field value, and of one never seen."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from pipeline.calibration.prior.quadrature import LEVEL, SLOPE, mean_logit
from pipeline.calibration.prior.random_slopes import (
    VAGUE_MEAN,
    VAGUE_PRECISION,
    SlopePrior,
    group_rows,
    modes,
)
from pipeline.calibration.statistics.grid import bounded


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
    probability = expit(bounded(lines(logit, np.arange(len(about))))).ravel()
    shown = np.full(len(probability), 1.0 / probability.mean())
    columns = (np.zeros(len(shown), dtype=np.int64), logit.ravel(), shown, shown * probability)
    prior = SlopePrior(VAGUE_MEAN, VAGUE_PRECISION)
    (found,), _ = modes(group_rows(columns, center), prior, VAGUE_MEAN[None])
    return found + np.array([center, 0.0])
