"""Isotonic regression on the logit, one curve for all field values (Zadrozny & Elkan 2002)."""

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import logit as log_odds

from pipeline.calibration.folds import Counts
from pipeline.core.errors import NotEnoughDataError
from pipeline.formats.maps import PiecewiseLinearMap, shared_map
from pipeline.formats.tables import CellTable


def isotonic_of_cells(
    cells: CellTable, counts: Counts, n_field_values: int, min_slope: float = 0.05
) -> PiecewiseLinearMap:
    """Isotonic regression on counts of the fitting grid's cell rows, its plateaus tilted.

    A plateau would tie logits, which costs rank, and a map that does could not ship: every slope
    is at least `min_slope` > 0.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    some = counts.impressions > 0
    if not some.any():
        raise NotEnoughDataError("isotonic regression needs impressions, there are none")
    logit = (cells.logit_sum / cells.impressions)[some]
    n, y = counts.impressions[some], counts.responses[some]
    rate = (y.sum() + 0.5) / (n.sum() + 1.0)
    knots, plateaus = isotonic_curve(logit, n, y, np.full(len(n), rate))
    values = increasing(knots, plateaus, np.ones(len(knots)), min_slope)
    return shared_map(knots, values, min_slope, min_slope, n_field_values)


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


def ascending_rates(responses: np.ndarray, impressions: np.ndarray) -> np.ndarray:
    """Rates [n] that do not decrease, nearest to responses / impressions."""
    return isotonic_regression(responses / impressions, weights=impressions).x


def increasing(
    knots: np.ndarray, values: np.ndarray, weights: np.ndarray, min_slope: float
) -> np.ndarray:
    """`values` moved least so that every slope between knots is at least `min_slope` > 0.

    Isotonic regression works on value - min_slope · knot; adding the line back leaves no
    plateau, which would tie logits and cost ranking. Values that keep the rule come back bit for
    bit.

    Args:
        knots: float64 [n], strictly ascending logits.
        values: float64 [n], calibrated logits there.
        weights: float64 [n], > 0: how much a knot resists being moved.
        min_slope: least slope of the calibrated in the uncalibrated logit.
    """
    if (np.diff(values) >= min_slope * np.diff(knots)).all():
        return values
    line = min_slope * knots
    return isotonic_regression(values - line, weights=weights).x + line
