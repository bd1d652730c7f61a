"""Isotonic regression on the logit, one curve for all field values (Zadrozny & Elkan 2002)."""

import numpy as np
from scipy.optimize import isotonic_regression

from pipeline.calibration.baselines.counting import response_rate
from pipeline.formats.maps import PiecewiseLinearMap, shared_map
from pipeline.formats.scores import Scores


def isotonic_curve(
    logit: np.ndarray, impressions: np.ndarray, responses: np.ndarray, rate: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Knots [m] and calibrated logits [m] of an isotonic regression that is finite everywhere.

    Every block of pooled rows is smoothed by impressions at the mean of `rate` over the block, as
    many as bring one of the rarer outcome, and blocks that no longer ascend are pooled again. A
    block is a plateau from its first logit to its last; between plateaus the logit is linear.

    Args:
        logit: float64 [n].
        impressions: [n], > 0.
        responses: [n].
        rate: float64 [n] in (0, 1), what a row's rate is smoothed towards.
    """
    at, group = np.unique(logit, return_inverse=True)
    n, o, e = (np.bincount(group, a) for a in (impressions, responses, impressions * rate))
    block = np.unique(isotonic_regression(o / n, weights=n).x, return_inverse=True)[1]
    n, o, e = (np.bincount(block, a) for a in (n, o, e))
    mean = e / n
    added = 1 / np.minimum(mean, 1 - mean)
    smoothed = isotonic_regression((o + added * mean) / (n + added), weights=n + added).x[block]
    ends = np.ones(len(at), dtype=bool)
    ends[1:-1] = (smoothed[1:-1] != smoothed[:-2]) | (smoothed[1:-1] != smoothed[2:])
    return at[ends], (np.log(smoothed) - np.log1p(-smoothed))[ends]


def fit(scores: Scores) -> PiecewiseLinearMap:
    """The curve of all rows, held constant beyond its ends.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    rate = response_rate(scores)
    rows = scores.take(scores.impressions > 0)
    logit = rows.uncalibrated_logit.astype(np.float64)
    curve = isotonic_curve(logit, rows.impressions, rows.responses, np.full(len(rows), rate))
    return shared_map(*curve, 0.0, 0.0, scores.n_field_values)
