"""A ratio per field value: its odds times observed over expected responses, shrunk."""

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import gammaln

from pipeline.calibration.baselines.counting import response_rate
from pipeline.calibration.statistics.logits import sigmoid
from pipeline.formats.maps import PiecewiseLinearMap, affine_map
from pipeline.formats.scores import Scores


def _strength(observed: np.ndarray, expected: np.ndarray) -> float:
    """The likeliest shape k of the Gamma distribution of ratios with mean 1.

    O given E is then negative binomial of mean E: values differ little where k is large.
    """

    def loss(log_shape: float) -> float:
        k = np.exp(log_shape)
        failure = k * np.log1p(expected / k) + observed * np.log1p(k / expected)
        return float((gammaln(k) - gammaln(observed + k) + failure).sum())

    return float(np.exp(minimize_scalar(loss, bounds=(-5.0, 10.0), method="bounded").x))


def fit(scores: Scores) -> PiecewiseLinearMap:
    """calibrated_logit = logit + ln ratio_z with ratio_z = ρ (O_z + k) / (ρ E_z + k).

    ρ = ΣO / ΣE is the ratio of all rows and of unseen values, k the strength of the shrinkage: the
    posterior mean under a Gamma prior (empirical Bayes, as in Clayton & Kaldor 1987).

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    response_rate(scores)  # refuses scores without impressions
    weights = scores.impressions * sigmoid(scores.uncalibrated_logit)
    expected = np.bincount(scores.field_value_id, weights, scores.n_field_values)
    observed = np.bincount(scores.field_value_id, scores.responses, scores.n_field_values)
    overall = (observed.sum() + 0.5) / (expected.sum() + 0.5)
    expected *= overall
    k = _strength(observed[expected > 0], expected[expected > 0])
    ratio = overall * (observed + k) / (expected + k)
    ratio[0] = overall
    return affine_map(np.log(ratio), np.ones(scores.n_field_values))
