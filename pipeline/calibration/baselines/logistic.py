"""Logistic regression on rows with counts, by scikit-learn."""

import numpy as np
from sklearn.linear_model import LogisticRegression

from pipeline.calibration.baselines.counting import response_rate
from pipeline.formats.scores import Scores


def binary_rows(scores: Scores) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows for a binary classifier: (index into the scores [m], label 0 or 1 [m], weight [m]).

    Labels are Platt's (1999) targets: a response counts (N₊ + 1) / (N₊ + 2) as 1 and the rest as 0,
    another impression 1 / (N₋ + 2) as 1, so that one class or separable classes have a finite fit.
    """
    hits = scores.responses.astype(np.float64)
    misses = scores.impressions - hits
    ones = hits * ((hits.sum() + 1) / (hits.sum() + 2)) + misses / (misses.sum() + 2)
    weight = np.concatenate([ones, hits + misses - ones])
    row = np.flatnonzero(weight > 0)
    return row % len(scores), (row < len(scores)).astype(np.int8), weight[row]


def fit_logistic(
    features: np.ndarray, scores: Scores, intercept: bool = True
) -> tuple[np.ndarray, float]:
    """Coefficients [k] ≥ 0 and intercept of the likeliest logit = intercept + features · them.

    Unregularised. A feature whose coefficient comes out negative is left out and the rest fitted
    again (as Kull et al. 2017 do), so is one that does not vary; its coefficient is 0.

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
    return coefficients, float(np.log(rate) - np.log1p(-rate)) if intercept else 0.0
