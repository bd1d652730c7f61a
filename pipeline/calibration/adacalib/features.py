"""What the network reads and is judged on: bins, their evidence, and cells, as dense arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline.calibration.adacalib.folds import Counts
from pipeline.calibration.statistics.logits import bounded
from pipeline.formats.tables import BinTable, CellTable, cells_to_bins

TARGET_CELLS = 40  # cells of a field value on which the loss is taken
PROFILE_BINS = 8  # coarse bins whose ratios tell the shape of a whole field value
SMOOTHING = (1.0, 10.0, 50.0)  # responses added to observed and expected alike


@dataclass(frozen=True)
class Knots:
    """Knots of one candidate bin count: the mean logit of each bin of each field value.

    Attributes:
        requested_bins: K.
        bin_id: int64 [n], the bin of each cell row.
        logit: float64 [V, K], ascending in each row; padded with the last one.
        count: int64 [V], knots in use; 0 where the value has no impressions.
        impressions: float64 [V, K], 0 in the padding.
    """

    requested_bins: int
    bin_id: np.ndarray
    logit: np.ndarray
    count: np.ndarray
    impressions: np.ndarray


@dataclass(frozen=True)
class Grid:
    """The cells of all field values with what stays the same in every fold.

    Attributes:
        cells: the fitting grid.
        logit: float64 [n], mean logit of each cell row, bounded.
        coarse: int64 [n], target cell of each cell row, 0 … TARGET_CELLS - 1.
        profile: int64 [n], coarse bin of each cell row, 0 … PROFILE_BINS - 1.
        candidates: knots of each candidate.
        n_field_values: V.
    """

    cells: CellTable
    logit: np.ndarray
    coarse: np.ndarray
    profile: np.ndarray
    candidates: tuple[Knots, ...]
    n_field_values: int

    @property
    def live(self) -> np.ndarray:
        """bool [V]: field values with cells of their own; not id 0, which stands for others."""
        live = self.candidates[0].count > 0
        live[0] = False
        return live

    def sums(self, group: np.ndarray, width: int, amounts: np.ndarray) -> np.ndarray:
        """Sums [V, width] of amounts [n] by field value and group [n]."""
        shape = (self.n_field_values, width)
        key = self.cells.field_value_id.astype(np.int64) * width + group
        return np.bincount(key, amounts, shape[0] * width).reshape(shape)


def _knots(cells: CellTable, bins: BinTable, requested: int, n_field_values: int) -> Knots:
    table = bins.candidate(requested)
    logit = np.full((n_field_values, requested), -np.inf)
    impressions = np.zeros((n_field_values, requested))
    impressions[table.field_value_id, table.bin_id] = table.impressions
    logit[table.field_value_id, table.bin_id] = bounded(table.logit_sum / table.impressions)
    logit = np.maximum.accumulate(logit, axis=1)
    count = (impressions > 0).sum(axis=1)
    bin_id = cells_to_bins(cells, bins, requested).astype(np.int64)
    return Knots(requested, bin_id, np.where(count[:, None] > 0, logit, 0.0), count, impressions)


def make_grid(bins: BinTable, cells: CellTable, n_field_values: int) -> Grid:
    """The grid of `tabulate`'s two tables; both must hold the same days."""
    candidates = np.unique(bins.requested_bins).tolist()
    return Grid(
        cells,
        bounded(cells.logit_sum / cells.impressions),
        _groups(cells, TARGET_CELLS),
        _groups(cells, PROFILE_BINS),
        tuple(_knots(cells, bins, k, n_field_values) for k in candidates),
        n_field_values,
    )


def _groups(cells: CellTable, n_groups: int) -> np.ndarray:
    """Group of each cell row, 0 … n_groups - 1, of neighbouring cells of its field value.

    Groups hold equal shares of the value, half by impressions, half by predicted responses: where
    responses are, logits are sparse, and a group of equal frequency would blur them.
    """
    starts = np.ones(len(cells), dtype=bool)
    starts[1:] = (np.diff(cells.field_value_id) != 0) | (np.diff(cells.cell_id) != 0)
    cell = np.cumsum(starts) - 1
    value = cells.field_value_id[starts]
    weight = np.zeros(len(value))
    for amount in (cells.impressions, cells.probability_sum):
        of_cell = np.bincount(cell, amount)
        weight += of_cell / np.bincount(value, of_cell)[value] / 2
    first = np.r_[True, np.diff(value) != 0]
    before = np.cumsum(weight) - weight
    within = before - before[first][np.cumsum(first) - 1] + weight / 2
    return np.clip((within * n_groups).astype(np.int64), 0, n_groups - 1)[cell]


@dataclass(frozen=True)
class Evidence:
    """What a fold's history says of every field value and bin: the network's inputs, float32.

    Attributes:
        bins: one array [V, K, n_bin_inputs] per candidate.
        shares: one array [V, K] per candidate, shares of the value's expected responses; all zero
            where none are expected.
        value: [V, n_value_inputs].
    """

    bins: tuple[np.ndarray, ...]
    shares: tuple[np.ndarray, ...]
    value: np.ndarray


def _log_ratio(observed: np.ndarray, expected: np.ndarray, smoothing: float) -> np.ndarray:
    return np.log((observed + smoothing) / (expected + smoothing))


def _neighbours(ratio: np.ndarray, count: np.ndarray) -> list[np.ndarray]:
    """The ratio of the bin before and after; the outer bins are their own neighbours."""
    after = np.concatenate([ratio[:, 1:], ratio[:, -1:]], axis=1)
    last = np.maximum(count - 1, 0)
    row = np.arange(len(ratio))
    after[row, last] = ratio[row, last]
    return [np.concatenate([ratio[:, :1], ratio[:, :-1]], axis=1), after]


def evidence(grid: Grid, history: Counts, fitted: np.ndarray, traits: np.ndarray) -> Evidence:
    """The inputs made of one history.

    They say what the shape of a field value is and how much is known, not how its past compares
    with the forecast: a network that sees that extrapolates trends, which cost more than they
    gained.

    Args:
        grid: cells and knots.
        history: counts of each cell row.
        fitted: float64 [n], anchored logit that fits the row's own day: what is left is shape.
        traits: float64 [V, m], further numbers that describe a field value's anchor.
    """
    expected = history.impressions / (1.0 + np.exp(-fitted))
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
    return Evidence(_float32(bins), _float32(shares), value.astype(np.float32))


def _float32(arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    return tuple(array.astype(np.float32) for array in arrays)


def _bin_inputs(grid: Grid, knots: Knots, counts: Sequence[np.ndarray]) -> np.ndarray:
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
        anchored: anchored logit.
        logit: uncalibrated logit.
    """

    impressions: np.ndarray
    responses: np.ndarray
    anchored: np.ndarray
    logit: np.ndarray


def target(grid: Grid, counts: Counts, anchored: np.ndarray) -> Target:
    """The rows' counts and logits gathered into target cells.

    Args:
        grid: cells and knots.
        counts: target counts of each cell row.
        anchored: float64 [n], anchored logit of each cell row.
    """
    n, y, a, x = (
        grid.sums(grid.coarse, TARGET_CELLS, amount)
        for amount in (
            counts.impressions,
            counts.responses,
            counts.impressions * anchored,
            counts.impressions * grid.logit,
        )
    )
    total = np.where(n > 0, n, 1.0)
    return Target(*(array.astype(np.float32) for array in (n, y, a / total, x / total)))


def without_common_error(cells: Target) -> Target:
    """The same cells, all anchored logits shifted alike until as much is expected as observed.

    What all field values do on the same days (a campaign, a holiday) says nothing about how far
    to trust the statistics of one, but it is the largest error of a forecast: left in, a network
    learns the shock of the days it saw.
    """
    n, y, anchored = (
        a.astype(np.float64) for a in (cells.impressions, cells.responses, cells.anchored)
    )
    shift = 0.0
    for _ in range(20):
        expected = n / (1.0 + np.exp(-anchored - shift))
        step = (y.sum() + 0.5 - expected.sum()) / (
            (expected * (1.0 - expected / np.maximum(n, 1.0))).sum() + 0.5
        )
        shift += float(np.clip(step, -1.0, 1.0))
    return replace(cells, anchored=(anchored + shift).astype(np.float32))


def interpolation(knots: Knots, logit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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
