"""Shapes: what the field values' curves have beyond a line, learned forward in time.

Forecast and shape of every field value as a table of knots, values and outer slopes.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from pipeline.calibration.adacalib.knot_examples import (
    KnotEvidence,
    interpolation,
    knot_evidence,
    make_examples,
    make_target,
    standardised,
)
from pipeline.calibration.adacalib.knot_training import FitSettings, Head, Heads, fit_heads
from pipeline.calibration.baselines import increasing
from pipeline.calibration.folds import Counts, Fold, all_counts, forward_folds
from pipeline.calibration.prior.day_forecast import DayForecast
from pipeline.calibration.prior.forward import Pass
from pipeline.calibration.prior.quadrature import LEVEL, SLOPE, mean_logit
from pipeline.calibration.prior.splines import Splines, fit_splines
from pipeline.calibration.statistics.grid import Grid, log_loss_from_logits
from pipeline.formats.maps import PiecewiseLinearMap, from_padded
from pipeline.formats.sort_keys import usable_threads


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


SPLINE_SHARES = (0.0, 0.5, 1.0)  # among which the out-of-sample loss chooses
LEAST_SLOPE = 0.05  # whose logarithm the network still reads


@dataclass(frozen=True)
class Shapes:
    """The shapes and what they are made of.

    Attributes:
        last: as all days taught it: what serves on days after those that were learned from.
        of_days: learning day (of a fold's target) -> the shape as the fold's history taught it, the
            network of each field value by the other values: its forecasts are out of sample, and
            across field values, too. Empty where there are too few days.
        chosen_bins: int64 [V], the candidate of each field value in `last`; 0: no bins of its own.
        spline_share: how much of the splines is added.
        heads: the networks.
    """

    last: Shape
    of_days: dict[int, Shape]
    chosen_bins: np.ndarray
    spline_share: float
    heads: Heads


def learn_shapes(grid: Grid, passed: Pass, settings: FitSettings, horizon_days: int) -> Shapes:
    """The spline terms and the networks' corrections that the filter's lines leave.

    Splines are estimated on lines that fit their own day; how much of them is kept, and the
    networks, are learned on forecasts that had not seen the day. Without folds no more than the
    line is certain, and nothing is added to it.

    Args:
        grid: cells of the days that are learned from.
        passed: the filter's pass over them.
        settings: how the networks are fitted.
        horizon_days: h.
    """
    ids = grid.cells.field_value_id
    fitted = passed.fitted_logit(grid.logit, ids, grid.cells.day)
    folds = forward_folds(grid.cells, horizon_days)
    histories = [*(fold.history for fold in folds), all_counts(grid.cells)]
    with ThreadPoolExecutor(usable_threads()) as pool:  # each history's sums are its own
        splines = list(pool.map(partial(_splines, grid, fitted), histories))
    terms = [each(grid.logit, ids) for each in splines]
    anchored = _forecast_logit(grid, passed, folds)
    share = _spline_share(folds, terms, anchored)
    last_day = int(grid.cells.day.max()) + horizon_days
    mornings = [*(int(fold.days[0]) for fold in folds), last_day]
    least = settings.min_responses_per_bin
    found = [
        knot_evidence(
            grid, history, fitted + share * term, _traits(passed.forecasts[morning]), least
        )
        for history, term, morning in zip(histories, terms, mornings, strict=True)
    ]
    targets = [
        make_target(grid, fold.target, anchored + share * term)
        for fold, term in zip(folds, terms, strict=False)
    ]
    found = standardised(found, grid.observed)
    heads = Heads([], 0.0, 0.0)
    if folds:
        heads = fit_heads(make_examples(grid, found[:-1], targets), settings)
    of_days: dict[int, Shape] = {}
    for fold, spline, evidence in zip(folds, splines, found, strict=False):
        shape = make_shape(grid, spline, share, *_left_out(heads, evidence))
        of_days |= dict.fromkeys(fold.days.tolist(), shape)
    corrections, chosen = _corrections(heads.heads, heads.share, found[-1])
    last = make_shape(grid, splines[-1], share, corrections, chosen)
    requested = np.array([knots.requested_bins for knots in grid.candidates])
    chosen_bins = np.where(grid.observed, requested[chosen], 0)
    return Shapes(last, of_days, chosen_bins, share, heads)


def _splines(grid: Grid, fitted: np.ndarray, history: Counts) -> Splines:
    return fit_splines(*grid.target_cells(history.impressions, history.responses, fitted))


def _forecast_logit(grid: Grid, passed: Pass, folds: Sequence[Fold]) -> np.ndarray:
    """The forecast logit of the cell rows that a fold predicts, float64 [n]; 0 of the others."""
    logit = np.zeros(len(grid.cells))
    for day in (day for fold in folds for day in fold.days.tolist()):
        rows = np.flatnonzero(grid.cells.day == day)
        logit[rows] = passed.forecasts[day](grid.logit[rows], grid.cells.field_value_id[rows])
    return logit


def _spline_share(
    folds: Sequence[Fold], terms: Sequence[np.ndarray], anchored: np.ndarray
) -> float:
    """How much of the splines predicts the folds' targets best; none where there are no folds."""
    losses = np.zeros(len(SPLINE_SHARES))
    for fold, term in zip(folds, terms, strict=False):
        rows = np.flatnonzero(fold.target.impressions)
        n, y = fold.target.impressions[rows], fold.target.responses[rows]
        for place, share in enumerate(SPLINE_SHARES):
            logit = anchored[rows] + share * term[rows]
            losses[place] += log_loss_from_logits(logit, y, n).sum()
    return SPLINE_SHARES[int(np.argmin(losses))]


def _traits(forecast: DayForecast) -> np.ndarray:
    """What the networks read of a field value's line: its offset and ln slope, float64 [V, 2]."""
    slope = np.maximum(forecast.mean[:, SLOPE], LEAST_SLOPE)
    return np.stack([forecast.mean[:, LEVEL] - forecast.usual, np.log(slope)], axis=1)


def _corrections(
    heads: Sequence[Head], share: float, found: KnotEvidence
) -> tuple[np.ndarray, np.ndarray]:
    """Mean corrections [V, J] at the knots of all candidates, and the candidate [V] that is chosen.

    No randomness: the candidate with the greatest attention, averaged over the heads.
    """
    if not heads:
        return np.zeros(found.shares.shape), np.zeros(len(found.value), np.int64)
    bins, shares, value, borne = map(torch.from_numpy, vars(found).values())
    with torch.no_grad():
        attention = torch.stack([head.choice(value, borne) for head in heads]).mean(dim=0)
        each = torch.stack([head.at_knots(bins, shares, value) for head in heads])
    return share * each.mean(dim=0).double().numpy(), attention.argmax(dim=-1).numpy()


def _left_out(heads: Heads, found: KnotEvidence) -> tuple[np.ndarray, np.ndarray]:
    """The same, each field value by the head that had not seen it."""
    each = [_corrections([head], heads.share, found) for head in heads.heads]
    corrections, chosen = (np.stack(of_heads) for of_heads in zip(*each, strict=True))
    rows = np.arange(len(found.value))
    return corrections[rows % len(each), rows], chosen[rows % len(each), rows]
