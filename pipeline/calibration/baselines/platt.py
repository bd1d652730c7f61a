"""Platt scaling: calibrated_logit = a + b · logit for all field values (Platt 1999)."""

import numpy as np

from pipeline.calibration.baselines.logistic import fit_logistic
from pipeline.formats.maps import PiecewiseLinearMap, shared_map
from pipeline.formats.scores import Scores


def fit(scores: Scores) -> PiecewiseLinearMap:
    """The likeliest offset and slope ≥ 0.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    logit = scores.uncalibrated_logit.astype(np.float64)
    (slope,), offset = fit_logistic(logit[:, None], scores)
    return shared_map(np.zeros(1), np.array([offset]), slope, slope, scores.n_field_values)
