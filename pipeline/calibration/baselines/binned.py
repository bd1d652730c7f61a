"""Baselines that pool neighbouring logits: isotonic regression and its kin."""

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import expit
from scipy.special import logit as log_odds

from pipeline.calibration.baselines.rows import global_bins, response_rate
from pipeline.calibration.folds import Counts
from pipeline.formats.maps import PiecewiseLinearMap, from_knots, shared_map
from pipeline.formats.scores import Scores
from pipeline.formats.tables import CellTable

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
    block = np.unique(ascending_rates(o, n), return_inverse=True)[1]
    n, o, e = (np.bincount(block, a) for a in (n, o, e))
    mean = e / n
    added = 1 / np.minimum(mean, 1 - mean)
    smoothed = ascending_rates(o + added * mean, n + added)[block]
    ends = np.ones(len(at), dtype=bool)
    ends[1:-1] = (smoothed[1:-1] != smoothed[:-2]) | (smoothed[1:-1] != smoothed[2:])
    return at[ends], log_odds(smoothed)[ends]


def isotonic_of_cells(cells: CellTable, counts: Counts, n_field_values: int) -> PiecewiseLinearMap:
    """Global isotonic regression on counts of the fitting grid's cell rows."""
    some = counts.impressions > 0
    logit = (cells.logit_sum / cells.impressions)[some]
    n, y = counts.impressions[some], counts.responses[some]
    rate = (y.sum() + 0.5) / (n.sum() + 1.0)
    curve = isotonic_curve(logit, n, y, np.full(len(n), rate))
    return shared_map(*curve, 0.0, 0.0, n_field_values)


def ascending_rates(responses: np.ndarray, impressions: np.ndarray) -> np.ndarray:
    """Rates [n] that do not decrease, nearest to responses / impressions."""
    return isotonic_regression(responses / impressions, weights=impressions).x
