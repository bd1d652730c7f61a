"""Gamma calibration (Kweon, Kang & Yu 2022) for all field values.

Scores of responses and of the others are taken as Gamma distributed, so that
calibrated_logit = a · ln s + b · s + c with s > 0 the score. As there, s is the logit moved to the
right: s = logit - least logit + 1. The slope a/s + b is kept ≥ 0 between the least and the greatest
logit; beyond them the map goes on as a line.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.calibration.baselines.logistic import fit_logistic
from pipeline.formats.scores import Scores

SHIFT = 1.0  # score of the least logit


def _features(logit: np.ndarray, least: float, greatest: float) -> np.ndarray:
    """Functions [n, 2] that span ln s and s; the first has slope 1 at the least logit and 0 at the
    greatest, the second 0 and 1, so that their coefficients are the map's slopes at both ends.
    """
    low, high = SHIFT, SHIFT + greatest - least
    s = np.clip(logit - least + SHIFT, low, high)
    beyond = logit - least + SHIFT - s  # how far outside: < 0 left, > 0 right
    bend = (np.log(s) - s / high) / (1 / low - 1 / high) if high > low else s
    return np.column_stack([bend + np.minimum(beyond, 0), s - bend + np.maximum(beyond, 0)])


@dataclass(frozen=True)
class GammaMap:
    """calibrated_logit = c + slope at the least · first function + at the greatest · second."""

    least: float
    greatest: float
    slopes: tuple[float, float]
    c: float

    def __call__(self, uncalibrated_logit: np.ndarray, field_value_id: np.ndarray) -> np.ndarray:
        """The calibrated logit, float64 [n]; the field value is not read."""
        logit = np.asarray(uncalibrated_logit, dtype=np.float64)
        return self.c + _features(logit, self.least, self.greatest) @ np.array(self.slopes)


def fit(scores: Scores) -> GammaMap:
    """The likeliest map whose slope is nowhere negative.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    rows = scores.take(scores.impressions > 0)
    logit = rows.uncalibrated_logit.astype(np.float64)
    ends = (float(logit.min()), float(logit.max())) if len(rows) else (0.0, 0.0)
    (left, right), c = fit_logistic(_features(logit, *ends), rows)
    return GammaMap(*ends, (left, right), c)
