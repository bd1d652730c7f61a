"""Forecast and shape of every field value as a table of knots, values and outer slopes."""

from dataclasses import dataclass

import numpy as np

from pipeline.calibration.adacalib.knot_examples import interpolation
from pipeline.calibration.isotonic import increasing
from pipeline.calibration.prior.day_forecast import DayForecast
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
    grid: Grid, splines: Splines, share: float, corrections: np.ndarray, chosen: np.ndarray
) -> Shape:
    """The spline terms and the networks' corrections as one function of each field value.

    Its knots are those of the chosen candidate and those of the spline; a field value without cells
    has one knot, where nothing is added.

    Args:
        grid: cells and the candidates' knots.
        splines: the spline terms.
        share: how much of them is added.
        corrections: float64 [V, J], at the knots of all candidates side by side.
        chosen: int64 [V], the candidate of each field value.
    """
    observed = grid.observed[:, None]
    own = np.full((grid.n_field_values, max(k.requested_bins for k in grid.candidates)), np.inf)
    for k, candidate in enumerate(grid.candidates):
        inside = np.arange(candidate.requested_bins) < candidate.count[:, None]
        mine = (chosen == k)[:, None] & inside
        own[:, : candidate.requested_bins][mine] = candidate.logit[mine]
    of_spline = splines.origin[:, None] + splines.knots
    knots = _distinct(np.where(observed, np.concatenate([own, of_spline], axis=1), np.inf))
    usual = float(np.average(grid.logit, weights=grid.cells.impressions))
    knots[~grid.observed, 0] = usual
    real = knots < np.inf
    at = np.where(real, knots, knots[:, :1])
    heights = share * splines(at.ravel(), np.repeat(np.arange(len(at)), at.shape[1]))
    heights = heights.reshape(at.shape)
    ends = np.cumsum([candidate.requested_bins for candidate in grid.candidates])
    of_candidates = np.split(corrections, ends[:-1], axis=1)
    for k, candidate in enumerate(grid.candidates):
        left, part = interpolation(candidate, at)
        right = np.minimum(left + 1, np.maximum(candidate.count - 1, 0)[:, None])
        start, end = (np.take_along_axis(of_candidates[k], i, axis=1) for i in (left, right))
        heights += np.where((chosen == k)[:, None], start + part * (end - start), 0.0)
    return Shape(knots, np.where(real & observed, heights, 0.0), _weights(grid, knots))


def _distinct(knots: np.ndarray) -> np.ndarray:
    """Each row ascending, without those that nearly repeat one before, padded with +inf."""
    rows = np.sort(knots, axis=1)
    with np.errstate(invalid="ignore"):
        rows[:, 1:][np.diff(rows) <= 1e-6] = np.inf
    rows = np.sort(rows, axis=1)
    return rows[:, : max(int((rows < np.inf).sum(axis=1).max()), 1)]


def _weights(grid: Grid, knots: np.ndarray) -> np.ndarray:
    """How many impressions lie nearest to each knot, and one more, so that none is free to move."""
    finest = grid.candidates[-1]
    middle = (knots[:, 1:] + knots[:, :-1]) / 2
    nearest = (finest.logit[:, :, None] >= middle[:, None]).sum(axis=2)
    key = np.arange(len(knots))[:, None] * knots.shape[1] + nearest
    counts = np.bincount(key.ravel(), finest.impressions.ravel(), knots.size)
    return counts.reshape(knots.shape) + 1.0


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
