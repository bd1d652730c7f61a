"""The fitted head as a table of knots, values and outer slopes, made to increase."""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import isotonic_regression

from pipeline.calibration.prior.anchor import Anchor
from pipeline.calibration.prior.base_map import BaseMap
from pipeline.calibration.statistics.grid import Grid
from pipeline.formats.maps import PiecewiseLinearMap, from_knots

Point = tuple[np.ndarray, np.ndarray, np.ndarray]  # knots, values there, how much each weighs


def compile_map(
    grid: Grid, base: BaseMap, corrections: list[np.ndarray], chosen: np.ndarray, min_slope: float
) -> tuple[PiecewiseLinearMap, int]:
    """The serving map and the number of knots that monotonicity moved.

    A field value's knots are those of its chosen candidate and those of its spline; id 0 and values
    without impressions keep their anchor, a straight line.
    """

    def points(z: int) -> Point:
        candidate = grid.candidates[chosen[z]]
        own = candidate.logit[z, : candidate.count[z]]
        correction = corrections[chosen[z]][z, : candidate.count[z]]
        at = _union(own, base.splines.origin[z] + base.splines.knots)
        value = base(at, np.full(len(at), z)) + np.interp(at, own, correction)
        return at, value, _weights(grid, z, at)

    of_values = [points(z) if own else None for z, own in enumerate(grid.observed)]
    return increasing_map(of_values, base.anchor, base.anchor.slopes, min_slope)


def increasing_map(
    points: Sequence[Point | None], anchor: Anchor, slopes: np.ndarray, min_slope: float
) -> tuple[PiecewiseLinearMap, int]:
    """The map through the points of each field value, made to increase, and how many were moved.

    Args:
        points: of each field value; None: it keeps its anchor.
        anchor: offsets of those.
        slopes: float64 [V], beyond the outer knots.
        min_slope: least slope between knots.
    """
    knots, values, moved = [], [], 0
    for z, of_value in enumerate(points):
        if of_value is None:
            at = np.array([anchor.center])
            repaired = at + anchor.offsets[z]
        else:
            at, value, weights = of_value
            repaired = increasing(at, value, weights, min_slope)
            moved += int((repaired != value).sum())
        knots.append(at)
        values.append(repaired)
    return from_knots(knots, values, slopes, slopes), moved


def _union(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Both sets of knots, ascending, without those of the second that nearly repeat one before."""
    at = np.sort(np.concatenate([first, second]))
    return at[np.r_[True, np.diff(at) > 1e-6]]


def _weights(grid: Grid, z: int, at: np.ndarray) -> np.ndarray:
    """How many impressions lie nearest to each knot, and one more, so that none is free to move."""
    finest = grid.candidates[-1]
    n = finest.count[z]
    middle = (at[1:] + at[:-1]) / 2
    nearest = np.searchsorted(middle, finest.logit[z, :n])
    return np.bincount(nearest, finest.impressions[z, :n], len(at)) + 1.0


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
