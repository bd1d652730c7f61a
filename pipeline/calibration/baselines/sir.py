"""Smoothed isotonic regression, SIR (Deng, Wang, Wang, Zhang, Wang & Xu 2020)."""

import numpy as np
from scipy.optimize import isotonic_regression

from pipeline.calibration.baselines.counting import global_bins, response_rate
from pipeline.formats.maps import PiecewiseLinearMap, shared_map
from pipeline.formats.scores import Scores

BINS = 10  # as in the paper's experiments


def fit(scores: Scores) -> PiecewiseLinearMap:
    """Lines between the centres of ten equal-frequency bins whose rates were made to ascend.

    Rates are smoothed by one impression at the mean rate; bins whose rates decrease are merged by
    isotonic regression, so that the line has no plateau. A merged bin is the point (mean logit,
    logit of its rate). Between points the calibrated logit is linear; beyond the outer ones it has
    slope 1: there odds keep their ratio, as on a line from probability (0, 0) or to (1, 1).

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    rate = response_rate(scores)
    bins = global_bins(scores, BINS)
    smoothed = (bins.responses + rate) / (bins.impressions + 1)
    pooled = isotonic_regression(smoothed, weights=bins.impressions + 1.0).x
    levels, block = np.unique(pooled, return_inverse=True)
    impressions, logit_sum = (np.bincount(block, a) for a in (bins.impressions, bins.logit_sum))
    values = np.log(levels) - np.log1p(-levels)
    return shared_map(logit_sum / impressions, values, 1.0, 1.0, scores.n_field_values)
