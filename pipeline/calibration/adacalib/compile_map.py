"""Forecast and shape of every field value as a table of knots, values and outer slopes."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression

from pipeline.calibration.prior.filter import DayForecast
from pipeline.calibration.prior.quadrature import SLOPE, mean_logit
from pipeline.calibration.prior.splines import Splines
from pipeline.calibration.statistics.grid import Grid
from pipeline.formats.maps import PiecewiseLinearMap, from_padded


@dataclass(frozen=True)
class Shape:
    """What is added to each field value's forecast line: piecewise linear, the same every day.

    Attributes:
        knots: float64 [V, M], strictly ascending logits, padded with +inf; one or more in a row.
        heights: float64 [V, M], added at the knots; 0 in the padding.
        weights: float64 [V, M], > 0, how many impressions lie nearest to each knot, and one more.
    """

    knots: np.ndarray
    heights: np.ndarray
    weights: np.ndarray


def make_shape(
    grid: Grid, splines: Splines, share: float, corrections: list[np.ndarray], chosen: np.ndarray
) -> Shape:
    """The spline terms and the networks' corrections as one function of each field value.

    Args:
        grid: cells and the candidates' knots.
        splines: the spline terms.
        share: how much of them is added.
        corrections: of each candidate, float64 [V, K], at its knots.
        chosen: int64 [V], the candidate of each field value.
    """
    usual = np.average(grid.logit, weights=grid.cells.impressions)
    knots, heights, weights = [], [], []
    for z, observed in enumerate(grid.observed):
        at, height, weight = np.array([usual]), np.zeros(1), np.ones(1)
        if observed:
            candidate = grid.candidates[chosen[z]]
            own = candidate.logit[z, : candidate.count[z]]
            correction = corrections[chosen[z]][z, : candidate.count[z]]
            at = _union(own, splines.origin[z] + splines.knots)
            height = share * splines(at, np.full(len(at), z)) + np.interp(at, own, correction)
            weight = _weights(grid, z, at)
        knots.append(at)
        heights.append(height)
        weights.append(weight)
    return Shape(_padded(knots, np.inf), _padded(heights, 0.0), _padded(weights, 1.0))


def _padded(rows: list[np.ndarray], fill: float) -> np.ndarray:
    padded = np.full((len(rows), max(map(len, rows))), fill)
    for row, values in enumerate(rows):
        padded[row, : len(values)] = values
    return padded


def serving_map(
    forecast: DayForecast, shape: Shape, min_slope: float
) -> tuple[PiecewiseLinearMap, int]:
    """The increasing map of a day, and the number of knots that were moved to make it so.

    Its value at a knot is the logit of the mean probability there. Beyond the outer knots it goes
    on with the forecast slope.

    Args:
        forecast: of the day.
        shape: what is added to it.
        min_slope: least slope.
    """
    ids, real = np.arange(len(shape.knots)), shape.knots < np.inf
    last = np.where(real, shape.knots, -np.inf).max(axis=1)
    mean, variance = forecast.moments(np.where(real, shape.knots, last[:, None]), ids)
    values = mean_logit(mean + shape.heights, variance)
    repaired = _increasing(shape.knots, values, shape.weights, min_slope)
    slopes = np.maximum(forecast.mean[:, SLOPE], min_slope)
    moved = int(((repaired != values) & real).sum())
    return from_padded(shape.knots, repaired, slopes, slopes), moved


def _increasing(
    knots: np.ndarray, values: np.ndarray, weights: np.ndarray, min_slope: float
) -> np.ndarray:
    """The values [R, M] of each row, made to increase along its real knots."""
    with np.errstate(invalid="ignore"):
        gap = np.diff(knots)
        falls = (np.diff(values) < min_slope * gap) & np.isfinite(gap)
    repaired = values.copy()
    for row in np.flatnonzero(falls.any(axis=1)):
        n = int(np.isfinite(knots[row]).sum())
        repaired[row, :n] = increasing(knots[row, :n], values[row, :n], weights[row, :n], min_slope)
    return repaired


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
