"""Beta calibration (Kull, Silva Filho & Flach 2017) for all field values."""

from dataclasses import dataclass

import numpy as np

from pipeline.calibration.baselines.logistic import fit_logistic
from pipeline.calibration.statistics.logits import softplus
from pipeline.formats.scores import Scores


def _features(logit: np.ndarray) -> np.ndarray:
    """(ln p, -ln(1 - p)) of the logits of p, float64 [n, 2]."""
    return np.column_stack([-softplus(-logit), softplus(logit)])


@dataclass(frozen=True)
class BetaMap:
    """calibrated_logit = a · ln p - b · ln(1 - p) + c with a, b ≥ 0 and p = sigmoid(logit)."""

    a: float
    b: float
    c: float

    def __call__(self, uncalibrated_logit: np.ndarray, field_value_id: np.ndarray) -> np.ndarray:
        """The calibrated logit, float64 [n]; the field value is not read."""
        logit = np.asarray(uncalibrated_logit, dtype=np.float64)
        return self.c + _features(logit) @ np.array([self.a, self.b])


def fit(scores: Scores) -> BetaMap:
    """The likeliest a, b and c.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    (a, b), c = fit_logistic(_features(scores.uncalibrated_logit.astype(np.float64)), scores)
    return BetaMap(a, b, c)
