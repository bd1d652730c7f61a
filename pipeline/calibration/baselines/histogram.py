"""Histogram binning: response rates of ten equal-frequency bins (Zadrozny & Elkan 2001)."""

import numpy as np
from scipy.optimize import isotonic_regression

from pipeline.calibration.baselines.counting import global_bins, response_rate
from pipeline.formats.maps import PiecewiseLinearMap
from pipeline.formats.scores import Scores

BINS = 10  # as in the paper's experiments


def fit(scores: Scores) -> PiecewiseLinearMap:
    """The step function of the bins' rates, each smoothed by one impression at the mean rate.

    Bins whose rates decrease are pooled, so that a higher logit never gets a lower probability.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    rate = response_rate(scores)
    bins = global_bins(scores, BINS)
    smoothed = (bins.responses + rate) / (bins.impressions + 1)
    smoothed = isotonic_regression(smoothed, weights=bins.impressions + 1.0).x
    levels = np.log(smoothed) - np.log1p(-smoothed)
    inner = bins.lower_bound[1:].astype(np.float64)
    knots = np.append(inner, np.inf)  # one padding, so that a single bin has a column too
    anchors = np.concatenate([inner[:1] if len(inner) else [0.0], inner, [0.0]])
    rows = (knots, anchors, np.append(levels, levels[-1]), np.zeros(len(anchors)))
    return PiecewiseLinearMap(
        *(np.broadcast_to(row, (scores.n_field_values, len(row))) for row in rows)
    )
