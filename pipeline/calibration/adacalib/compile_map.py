"""The fitted head as a table: knots, values and outer slopes of every field value."""

import numpy as np

from pipeline.calibration.adacalib.features import Grid
from pipeline.calibration.monotone import increasing
from pipeline.calibration.prior.base_map import Basis
from pipeline.formats.maps import PiecewiseLinearMap, from_knots


def compile_map(
    grid: Grid, basis: Basis, corrections: list[np.ndarray], chosen: np.ndarray, min_slope: float
) -> tuple[PiecewiseLinearMap, int]:
    """The serving map and the number of knots that monotonicity moved.

    A field value's knots are those of its chosen candidate and those of its bend; id 0 and values
    without impressions keep their anchor, a straight line.
    """
    offsets, slopes, center = basis.anchor.offsets, basis.anchor.slopes, basis.still.center
    knots, values, moved = [], [], 0
    for z in range(grid.n_field_values):
        if not grid.live[z]:
            knots.append(np.array([center]))
            values.append(np.array([center + offsets[z]]))
            continue
        candidate = grid.candidates[chosen[z]]
        own = candidate.logit[z, : candidate.count[z]]
        correction = corrections[chosen[z]][z, : candidate.count[z]]
        at = _union(own, basis.curves.origin[z] + basis.curves.knots)
        value = basis(at, np.full(len(at), z)) + np.interp(at, own, correction)
        repaired = increasing(at, value, _weights(grid, z, at), min_slope)
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
