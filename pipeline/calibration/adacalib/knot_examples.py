"""Examples for the networks: what a fold knew of a field value, and the cells that came after."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor

from pipeline.calibration.folds import Counts
from pipeline.calibration.statistics.bins import bears_bins
from pipeline.calibration.statistics.grid import PROFILE_BINS, CandidateKnots, Grid

SMOOTHING = (1.0, 10.0, 50.0)  # responses added to observed and expected alike


@dataclass(frozen=True)
class KnotEvidence:
    """What a fold's history says of every field value and bin: the network's inputs, float32.

    Attributes:
        bins: [V, J, n_bin_inputs], the bins of all candidates side by side.
        shares: [V, J], shares of the value's expected responses; all zero where none are expected.
        value: [V, n_value_inputs].
        borne: bool [V, candidates], the candidates that the value has responses enough for.
    """

    bins: np.ndarray
    shares: np.ndarray
    value: np.ndarray
    borne: np.ndarray


def _log_ratio(observed: np.ndarray, expected: np.ndarray, smoothing: float) -> np.ndarray:
    return np.log((observed + smoothing) / (expected + smoothing))


def _neighbours(ratio: np.ndarray, count: np.ndarray) -> list[np.ndarray]:
    """The ratio of the bin before and after; the outer bins are their own neighbours."""
    after = np.concatenate([ratio[:, 1:], ratio[:, -1:]], axis=1)
    last = np.maximum(count - 1, 0)
    row = np.arange(len(ratio))
    after[row, last] = ratio[row, last]
    return [np.concatenate([ratio[:, :1], ratio[:, :-1]], axis=1), after]


def knot_evidence(
    grid: Grid,
    history: Counts,
    fitted: np.ndarray,
    traits: np.ndarray,
    min_responses_per_bin: int = 0,
) -> KnotEvidence:
    """The inputs made of one history.

    They say what the shape of a field value is and how much is known, not how its past compares
    with the forecast: a network that sees that extrapolates trends, which cost more than they
    gained.

    Args:
        grid: cells and knots.
        history: counts of each cell row.
        fitted: float64 [n], anchored logit that fits the row's own day: what is left is shape.
        traits: float64 [V, m], further numbers that describe a field value's anchor.
        min_responses_per_bin: of a field value, for each bin of a candidate but the smallest.
    """
    expected = history.impressions * expit(fitted)
    everything = np.zeros_like(grid.coarse)
    whole = [grid.sums(everything, 1, a) for a in (history.responses, expected)]
    shape = [grid.sums(grid.profile, PROFILE_BINS, a) for a in (history.responses, expected)]
    value = np.concatenate(
        [
            _log_ratio(whole[0], whole[1], 10.0),
            np.log1p(whole[1]),
            _log_ratio(shape[0], shape[1], 1.0),
            _log_ratio(shape[0], shape[1], 10.0),
            np.log1p(shape[1]),
            traits,
        ],
        axis=1,
    )
    counts = [
        [grid.sums(knots.bin_id, knots.requested_bins, a) for a in (history.responses, expected)]
        for knots in grid.candidates
    ]
    bins = [_bin_inputs(grid, *each) for each in zip(grid.candidates, counts, strict=True)]
    shares = [predicted / np.maximum(whole[1], 1e-30) for _, predicted in counts]
    requested = [knots.requested_bins for knots in grid.candidates]
    borne = bears_bins(whole[0][:, 0], requested, min_responses_per_bin)
    return KnotEvidence(
        np.concatenate(bins, axis=1).astype(np.float32),
        np.concatenate(shares, axis=1).astype(np.float32),
        value.astype(np.float32),
        borne,
    )


def _bin_inputs(grid: Grid, knots: CandidateKnots, counts: Sequence[np.ndarray]) -> np.ndarray:
    """Inputs [V, K, …] of the bins of one candidate, of responses observed and predicted there."""
    observed, predicted = counts
    width = knots.requested_bins
    ratios = [_log_ratio(observed, predicted, s) for s in SMOOTHING]
    place = (np.arange(width) + 0.5) / np.maximum(knots.count, 1)[:, None]
    center = np.average(grid.logit, weights=grid.cells.impressions)
    return np.stack(
        [
            *ratios,
            *_neighbours(ratios[1], knots.count),
            np.log1p(predicted),
            np.minimum(place, 1.0),
            knots.logit - center,
        ],
        axis=2,
    )


@dataclass(frozen=True)
class Target:
    """Cells on which predictions are judged, by field value: float32 [V, TARGET_CELLS].

    Attributes:
        impressions, responses: counts, zero where a value has no such cell.
        anchored: anchored logit, without the error that all have in common (`make_target`).
        logit: uncalibrated logit.
    """

    impressions: np.ndarray
    responses: np.ndarray
    anchored: np.ndarray
    logit: np.ndarray


def make_target(grid: Grid, counts: Counts, anchored: np.ndarray) -> Target:
    """Counts and anchored logits [n] of the cell rows, gathered into target cells.

    All anchored logits are shifted alike until as much is expected as observed: what all field
    values do on the same days (a campaign, a holiday) says nothing about how far to trust the
    statistics of one, but it is the largest error of a forecast: left in, a network learns the
    shock of the days it saw.
    """
    sums = grid.target_cells(counts.impressions, counts.responses, anchored)
    cells = Target(*(column.astype(np.float32) for column in sums))
    n, y, anchored = (
        a.astype(np.float64) for a in (cells.impressions, cells.responses, cells.anchored)
    )
    shift = 0.0
    for _ in range(20):
        expected = n * expit(anchored + shift)
        step = (y.sum() + 0.5 - expected.sum()) / (
            (expected * (1.0 - expected / np.maximum(n, 1.0))).sum() + 0.5
        )
        shift += float(np.clip(step, -1.0, 1.0))
    return replace(cells, anchored=(anchored + shift).astype(np.float32))


def interpolation(knots: CandidateKnots, logit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Index of the knot at the left, int64 [V, C], and weight of the next one, float32 [V, C].

    Left of the first knot and right of the last one the outer knot holds alone, so that the
    correction is constant there.
    """
    reached = np.zeros(logit.shape, dtype=np.int64)
    for k in range(knots.requested_bins):
        reached += (logit >= knots.logit[:, k : k + 1]) & (k < knots.count)[:, None]
    left = np.clip(reached - 1, 0, np.maximum(knots.count - 2, 0)[:, None])
    right = np.minimum(left + 1, np.maximum(knots.count - 1, 0)[:, None])
    start, end = (np.take_along_axis(knots.logit, i, axis=1) for i in (left, right))
    gap = end - start
    share = np.where(gap > 0, (logit - start) / np.where(gap > 0, gap, 1.0), 0.0)
    return left, np.clip(share, 0.0, 1.0).astype(np.float32)


@dataclass(frozen=True)
class KnotExamples:
    """(fold, field value) pairs: what was known of the value and the cells that came after.

    Attributes:
        bins: float32 [S, J, n_bin_inputs], standardised; J knots, of all candidates side by side.
        shares: float32 [S, J], shares of the value's expected responses.
        left: int64 [S, C, candidates], the knot at the left of each target cell.
        share: float32 [S, C, candidates], share of the way to the next knot.
        value: float32 [S, n_value_inputs], standardised.
        borne: bool [S, candidates], those that may be chosen.
        impressions: float32 [S, C].
        responses: float32 [S, C].
        anchored: float32 [S, C], anchored logit.
        fold: int64 [S].
        field_value_id: int64 [S].
        requested_bins: of each candidate; they add up to J.
    """

    bins: Tensor
    shares: Tensor
    left: Tensor
    share: Tensor
    value: Tensor
    borne: Tensor
    impressions: Tensor
    responses: Tensor
    anchored: Tensor
    fold: Tensor
    field_value_id: Tensor
    requested_bins: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.value)

    def take(self, rows: Tensor) -> "KnotExamples":
        """The pairs that an index picks."""
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        picked = {n: c[rows] for n, c in columns.items() if isinstance(c, Tensor)}
        return KnotExamples(**columns | picked)


def standardised(found: Sequence[KnotEvidence], observed: np.ndarray) -> list[KnotEvidence]:
    """Evidence as it is fed to the networks: by mean and spread over all histories but the last.

    Those are the histories that are learned from, where there are folds.

    Args:
        found: of each fold's history, and last of all days.
        observed: bool [V], the field values that count.
    """
    known = found[:-1] or found
    bins, value = (
        _moments(np.concatenate([array[observed] for array in arrays]))
        for arrays in ([each.bins for each in known], [each.value for each in known])
    )
    return [
        replace(e, bins=(e.bins - bins[0]) / bins[1], value=(e.value - value[0]) / value[1])
        for e in found
    ]


def _moments(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    flat = array.reshape(-1, array.shape[-1]).astype(np.float64)
    if len(flat) == 0:  # all rows are of unseen or null field values
        flat = np.zeros((1, array.shape[-1]))
    mean, spread = flat.mean(axis=0), flat.std(axis=0)
    return mean.astype(np.float32), np.where(spread > 1e-6, spread, 1.0).astype(np.float32)


def make_examples(
    grid: Grid, found: Sequence[KnotEvidence], targets: Sequence[Target]
) -> KnotExamples:
    """All (fold, field value) pairs with something to predict, fold by fold, values ascending."""
    predicted = np.stack([target.impressions.sum(axis=1) for target in targets]) > 0
    rows = np.flatnonzero(grid.observed & predicted)
    fold, value = np.divmod(rows, grid.n_field_values)

    def column(of_folds: Iterable[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.concatenate(list(of_folds))[rows])

    places = [[interpolation(knots, t.logit) for t in targets] for knots in grid.candidates]
    left, share = (
        torch.stack([column(place[k] for place in of_folds) for of_folds in places], dim=-1)
        for k in (0, 1)
    )
    requested = tuple(knots.requested_bins for knots in grid.candidates)
    return KnotExamples(
        bins=column(evidence.bins for evidence in found),
        shares=column(evidence.shares for evidence in found),
        left=left + torch.from_numpy(np.cumsum([0, *requested])[:-1]),
        share=share,
        value=column(evidence.value for evidence in found),
        borne=column(evidence.borne for evidence in found),
        impressions=column(target.impressions for target in targets),
        responses=column(target.responses for target in targets),
        anchored=column(target.anchored for target in targets),
        fold=torch.from_numpy(fold),
        field_value_id=torch.from_numpy(value),
        requested_bins=requested,
    )
