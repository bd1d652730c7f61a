"""Baselines that pool neighbouring logits: isotonic regression and its kin."""

import numpy as np
from scipy.special import expit
from scipy.special import logit as log_odds

from bench.baselines.rows import global_bins
from pipeline.calibration.baselines import ascending_rates, isotonic_curve
from pipeline.calibration.paper.paper_rows import response_rate
from pipeline.formats.maps import PiecewiseLinearMap, from_knots, shared_map
from pipeline.formats.scores import Scores

BINS = 10  # as in the paper's experiments


def sir(scores: Scores) -> PiecewiseLinearMap:
    """Smoothed isotonic regression, SIR: lines between ten bins (Deng, Wang, Wang et al. 2020).

    Rates of equal-frequency bins of all rows are smoothed by one impression at the mean rate; bins
    whose rates decrease are merged by isotonic regression, so that the line has no plateau. A
    merged bin is the point (mean logit, logit of its rate). Between points the calibrated logit is
    linear; beyond the outer ones it has slope 1: there odds keep their ratio, as on a line from
    probability (0, 0) or to (1, 1).

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    rate = response_rate(scores)
    bins = global_bins(scores, BINS)
    pooled = ascending_rates(bins.responses + rate, bins.impressions + 1.0)
    levels, block = np.unique(pooled, return_inverse=True)
    impressions, logit_sum = (np.bincount(block, a) for a in (bins.impressions, bins.logit_sum))
    return shared_map(logit_sum / impressions, log_odds(levels), 1.0, 1.0, scores.n_field_values)


def isotonic(scores: Scores) -> PiecewiseLinearMap:
    """Isotonic regression on the logit, one curve for all (Zadrozny & Elkan 2002).

    It is held constant beyond its ends.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    rate = response_rate(scores)
    rows = scores.take(scores.impressions > 0)
    logit = rows.uncalibrated_logit.astype(np.float64)
    curve = isotonic_curve(logit, rows.impressions, rows.responses, np.full(len(rows), rate))
    return shared_map(*curve, 0.0, 0.0, scores.n_field_values)


def isotonic_per_value(scores: Scores) -> PiecewiseLinearMap:
    """Isotonic regression of every field value's own rows, smoothed towards the curve of all.

    The unseen value has that one.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    everything = isotonic(scores)
    rows = scores.take(scores.impressions > 0)
    rows = rows.take(np.argsort(rows.field_value_id, kind="stable"))
    logit = rows.uncalibrated_logit.astype(np.float64)
    rate = expit(everything(logit, rows.field_value_id))
    shared = everything.knots[0], everything.segment_values[0, 1:]
    curves = [shared] * scores.n_field_values
    values, starts = np.unique(rows.field_value_id, return_index=True)
    columns = (logit, rows.impressions, rows.responses, rate)
    for value, *own in zip(values, *(np.split(c, starts[1:]) for c in columns), strict=True):
        if value > 0:
            curves[value] = isotonic_curve(*own)
    flat = np.zeros(scores.n_field_values)
    return from_knots([k for k, _ in curves], [v for _, v in curves], flat, flat)
