"""Baselines that are one map for all field values, with a few parameters each.

None (identity), an offset and a slope (Platt, temperature), or two slopes that the logit's sign or
size weighs (beta, gamma). All but the first are logistic regressions on functions of the logit.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import log_expit
from scipy.special import logit as log_odds
from sklearn.linear_model import LogisticRegression

from pipeline.calibration.baselines.rows import binary_rows, response_rate
from pipeline.formats.maps import PiecewiseLinearMap, identity_map, shared_map
from pipeline.formats.scores import Scores

SHIFT = 1.0  # gamma's score of the least logit


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


@dataclass(frozen=True)
class BetaMap:
    """calibrated_logit = a · ln p - b · ln(1 - p) + c with a, b ≥ 0 and p = expit(logit)."""

    slopes: np.ndarray  # a and b
    c: float

    def __call__(self, uncalibrated_logit: np.ndarray, field_value_id: np.ndarray) -> np.ndarray:
        """The calibrated logit, float64 [n]; the field value is not read."""
        logit = np.asarray(uncalibrated_logit, dtype=np.float64)
        return self.c + _log_probabilities(logit) @ self.slopes


def beta(scores: Scores) -> BetaMap:
    """Beta calibration with the likeliest a, b and c (Kull, Silva Filho & Flach 2017).

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    return BetaMap(*fit_logistic(_log_probabilities(_logit(scores)), scores))


def _log_probabilities(logit: np.ndarray) -> np.ndarray:
    """(ln p, -ln(1 - p)) of the logits of p, float64 [n, 2]."""
    return np.column_stack([log_expit(logit), -log_expit(-logit)])


@dataclass(frozen=True)
class GammaMap:
    """calibrated_logit = c + slope at the least · first function + at the greatest · second."""

    least: float
    greatest: float
    slopes: np.ndarray
    c: float

    def __call__(self, uncalibrated_logit: np.ndarray, field_value_id: np.ndarray) -> np.ndarray:
        """The calibrated logit, float64 [n]; the field value is not read."""
        logit = np.asarray(uncalibrated_logit, dtype=np.float64)
        return self.c + _gamma_functions(logit, self.least, self.greatest) @ self.slopes


def gamma(scores: Scores) -> GammaMap:
    """Gamma calibration, the likeliest map whose slope is nowhere negative (Kweon et al. 2022).

    Scores of responses and of the others are taken as Gamma distributed, so that
    calibrated_logit = a · ln s + b · s + c with s = logit - least logit + 1. The slope a/s + b is
    kept ≥ 0 between the least and the greatest logit; beyond them the map goes on as a line.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    rows = scores.take(scores.impressions > 0)
    logit = _logit(rows)
    ends = (float(logit.min()), float(logit.max())) if len(rows) else (0.0, 0.0)
    return GammaMap(*ends, *fit_logistic(_gamma_functions(logit, *ends), rows))


def _gamma_functions(logit: np.ndarray, least: float, greatest: float) -> np.ndarray:
    """Functions [n, 2] that span ln s and s; the first has slope 1 at the least logit and 0 at the
    greatest, the second 0 and 1, so that their coefficients are the map's slopes at both ends.
    """
    low, high = SHIFT, SHIFT + greatest - least
    s = np.clip(logit - least + SHIFT, low, high)
    beyond = logit - least + SHIFT - s  # how far outside: < 0 left, > 0 right
    first = (np.log(s) - s / high) / (1 / low - 1 / high) if high > low else s
    return np.column_stack([first + np.minimum(beyond, 0), s - first + np.maximum(beyond, 0)])


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
