"""Baselines that are one line for all field values, and the regression that fits such maps."""

import numpy as np
from scipy.special import logit as log_odds
from sklearn.linear_model import LogisticRegression

from bench.baselines.rows import binary_rows
from pipeline.calibration.paper.paper_rows import response_rate
from pipeline.formats.maps import PiecewiseLinearMap, identity_map, shared_map
from pipeline.formats.scores import Scores


def identity(scores: Scores) -> PiecewiseLinearMap:
    """No calibration: the map that returns every logit unchanged."""
    return identity_map(scores.n_field_values)


def platt(scores: Scores) -> PiecewiseLinearMap:
    """calibrated_logit = a + b · logit with the likeliest a and b ≥ 0 (Platt 1999).

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    (slope,), offset = fit_logistic(_logit(scores)[:, None], scores)
    return shared_map(np.zeros(1), np.array([offset]), slope, slope, scores.n_field_values)


def temperature(scores: Scores) -> PiecewiseLinearMap:
    """calibrated_logit = logit / T with the likeliest 1 / T ≥ 0 (Guo et al. 2017).

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    (slope,), _ = fit_logistic(_logit(scores)[:, None], scores, intercept=False)
    return shared_map(np.zeros(1), np.zeros(1), slope, slope, scores.n_field_values)


def _logit(scores: Scores) -> np.ndarray:
    return scores.uncalibrated_logit.astype(np.float64)


def fit_logistic(
    features: np.ndarray, scores: Scores, intercept: bool = True
) -> tuple[np.ndarray, float]:
    """Coefficients [k] ≥ 0 and intercept of the likeliest logit = intercept + features · them.

    Unregularised, by scikit-learn. A feature whose coefficient comes out negative is left out and
    the rest fitted again (as Kull et al. 2017 do), so is one that does not vary; its coefficient
    is 0.

    Args:
        features: float [n, k], each to be increasing in the uncalibrated logit.
        scores: the rows, of which impressions and responses are read.
        intercept: whether there is one; else it is 0.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    rate = response_rate(scores)
    row, label, weight = binary_rows(scores)
    idle = features[row[0]] if intercept else 0.0
    used = np.flatnonzero((features[row] != idle).any(axis=0))
    coefficients = np.zeros(features.shape[1])
    while len(used):
        x = features[row][:, used]
        center, scale = (x.mean(axis=0), x.std(axis=0)) if intercept else (0.0, np.abs(x).max())
        model = LogisticRegression(
            C=np.inf, solver="newton-cholesky", tol=1e-9, max_iter=200, fit_intercept=intercept
        ).fit((x - center) / scale, label, sample_weight=weight)
        found = model.coef_[0] / scale
        if (found >= 0).all():
            coefficients[used] = found
            return coefficients, float(np.ravel(model.intercept_ - np.dot(found, center))[0])
        used = np.delete(used, found.argmin())
    return coefficients, float(log_odds(rate)) if intercept else 0.0
