"""Temperature scaling: calibrated_logit = logit / T for all field values (Guo et al. 2017)."""

import numpy as np

from pipeline.calibration.baselines.logistic import fit_logistic
from pipeline.formats.maps import PiecewiseLinearMap, shared_map
from pipeline.formats.scores import Scores


def fit(scores: Scores) -> PiecewiseLinearMap:
    """The likeliest 1 / T ≥ 0.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    logit = scores.uncalibrated_logit.astype(np.float64)
    (slope,), _ = fit_logistic(logit[:, None], scores, intercept=False)
    return shared_map(np.zeros(1), np.zeros(1), slope, slope, scores.n_field_values)
