"""AdaCalib, variant crossfit: residual knots on a base map, all learned out of sample.

calibrated_logit = base_map_z(logit) + λ · correction_z(logit)

The base map is empirical-Bayes Platt scaling whose offsets may drift and to which splines are added
(`base_map`). The correction is piecewise linear between knots at the mean logits of the field
value's bins; a network gives it at each knot from posterior statistics of the bin and the value,
and a Gumbel choice decides between the candidate bin counts (paper, sections 3.1 and 3.2). It
changes the shape of a curve, not its level: that is the anchor's. How much of splines and
correction is used, and when the network stops, is decided on counts that none of them has seen.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from pipeline.calibration.adacalib.compile_map import compile_map
from pipeline.calibration.adacalib.knot_examples import (
    InputScale,
    KnotEvidence,
    KnotExamples,
    Target,
    knot_evidence,
    make_examples,
    make_scale,
    without_common_error,
)
from pipeline.calibration.adacalib.knot_training import FitSettings, Heads, fit_heads, single_thread
from pipeline.calibration.baselines.binned import isotonic_of_cells
from pipeline.calibration.choice import Comparison
from pipeline.calibration.folds import Counts, Fold, all_counts, make_folds
from pipeline.calibration.prior.base_map import BaseMap, make_anchors, with_splines
from pipeline.calibration.statistics.grid import TARGET_CELLS, Grid, make_grid
from pipeline.calibration.statistics.logits import log_loss_from_logits
from pipeline.core.errors import NotEnoughDataError
from pipeline.formats.maps import PiecewiseLinearMap
from pipeline.formats.sort_keys import usable_threads
from pipeline.formats.tables import BinTable, CellTable

SPLINE_SHARES = (0.0, 0.5, 1.0)  # among which the out-of-sample loss chooses


@dataclass(frozen=True)
class AdaCalibFit:
    """A fitted AdaCalib and how it came about.

    Attributes:
        serving: the compiled map.
        base: anchors and splines fitted on all calibration days.
        comparisons: out-of-sample predictions of the folds' days, or of folds of split counts, by
            the baselines and by AdaCalib.
        chosen_bins: int64 [V], the candidate that serves each field value; 0: no bins of its own.
        correction_share: λ.
        checkpoint: how far the network was trained, share of `steps`.
        moved_knots: knots that had to be moved for monotonicity.
    """

    serving: PiecewiseLinearMap
    base: BaseMap
    comparisons: list[Comparison]
    chosen_bins: np.ndarray
    correction_share: float
    checkpoint: float
    moved_knots: int


def fit_adacalib(
    bins: BinTable, cells: CellTable, n_field_values: int, settings: FitSettings
) -> AdaCalibFit:
    """AdaCalib fitted on the two tables that `tabulate` makes of the calibration days.

    The cost depends on the field values, days and cells, not on the rows behind them. The result
    does not depend on the order of rows nor on the number of threads.

    Raises:
        NotEnoughDataError: no cell stands for an impression.
        TrainingError: the network's loss is not finite.
    """
    if not cells.impressions.sum():
        raise NotEnoughDataError(
            "AdaCalib needs rows with impressions, there are none; take more calibration days"
        )
    with single_thread():
        grid = make_grid(bins, cells, n_field_values)
        folds = make_folds(cells, settings.seed)
        everything = all_counts(cells)
        histories = [*(fold.history for fold in folds), everything]
        *bases, final = _base_maps(grid, folds, histories, settings.horizon_days)
        *found, found_of_all = map(partial(_evidence, grid), histories, [*bases, final])
        targets = [
            Target.of(grid, fold.target, base(grid.logit, cells.field_value_id))
            for fold, base in zip(folds, bases, strict=True)
        ]
        scale = make_scale(found, grid.observed)
        examples = make_examples(grid, found, [without_common_error(t) for t in targets], scale)
        heads = fit_heads(examples, settings)
        corrections, chosen = _served_corrections(heads, found_of_all, scale)
        serving, moved = compile_map(grid, final, corrections, chosen, settings.min_slope)
    comparisons = [
        comparison
        for i, part in enumerate(zip(folds, bases, targets, strict=True))
        for comparison in _comparisons(grid, *part, _of_fold(examples, heads.held_out, i))
    ]
    requested = np.array([knots.requested_bins for knots in grid.candidates])
    chosen_bins = np.where(grid.observed, requested[chosen], 0)
    return AdaCalibFit(
        serving, final, comparisons, chosen_bins, heads.share, heads.checkpoint, moved
    )


def _evidence(grid: Grid, history: Counts, base: BaseMap) -> KnotEvidence:
    traits = np.stack([base.anchor.offsets, np.log(base.anchor.slopes)], axis=1)
    return knot_evidence(grid, history, base.fitted(grid), traits)


def _losses(grid: Grid, fold: Fold, base: BaseMap) -> np.ndarray:
    """Summed log-loss of a fold's target counts under each of SPLINE_SHARES, in nats."""
    ids, counts = grid.cells.field_value_id, fold.target
    logits = (replace(base, spline_share=share)(grid.logit, ids) for share in SPLINE_SHARES)
    losses = (log_loss_from_logits(f, counts.responses, counts.impressions) for f in logits)
    return np.array([loss.sum() for loss in losses])


def _base_maps(
    grid: Grid, folds: Sequence[Fold], histories: Sequence[Counts], horizon_days: int | None
) -> list[BaseMap]:
    """The base map of each history, those of the folds first.

    Their share of splines is the one that predicts best over all folds.
    """

    def base_of(history: Counts) -> BaseMap:
        return with_splines(make_anchors(grid, history, horizon_days), grid, history)

    with ThreadPoolExecutor(usable_threads()) as pool:  # each history's sums are its own
        bases = list(pool.map(base_of, histories))
    losses = sum(map(partial(_losses, grid), folds, bases))
    return [replace(base, spline_share=SPLINE_SHARES[int(np.argmin(losses))]) for base in bases]


def _served_corrections(
    fitted: Heads, found: KnotEvidence, scale: InputScale
) -> tuple[list[np.ndarray], np.ndarray]:
    """Mean corrections [V, K] at the knots of each candidate, and the candidate [V] that is chosen.

    No randomness: the candidate with the greatest attention, averaged over the fits.
    """
    bins, value_inputs = scale(found)
    value = torch.from_numpy(value_inputs)
    with torch.no_grad():
        attention = torch.stack([head.choice(value) for head in fitted.heads]).mean(dim=0)
        corrections = []
        for columns in zip(bins, found.shares, strict=True):
            of_bins, shares = map(torch.from_numpy, columns)
            each = [head.at_knots(of_bins, shares, value) for head in fitted.heads]
            corrections.append(fitted.share * torch.stack(each).mean(dim=0).double().numpy())
    return corrections, attention.argmax(dim=-1).numpy()


def _of_fold(
    examples: KnotExamples, corrections: np.ndarray, fold: int
) -> tuple[np.ndarray, np.ndarray]:
    """Field values [v] of a fold's examples and their corrections [v, C]."""
    mine = examples.fold.numpy() == fold
    return examples.field_value_id.numpy()[mine], corrections[mine]


def _comparisons(
    grid: Grid, fold: Fold, base: BaseMap, cells: Target, corrected: tuple[np.ndarray, np.ndarray]
) -> Iterator[Comparison]:
    """What the baselines and AdaCalib predict for a fold's target cells, day by day."""
    shape = cells.logit.shape
    ids, logit = np.repeat(np.arange(shape[0]), shape[1]), cells.logit.astype(np.float64).ravel()
    adacalib = cells.anchored.astype(np.float64)
    adacalib[corrected[0]] += corrected[1]
    predicted = {
        "identity": logit,
        "isotonic": isotonic_of_cells(grid.cells, fold.history, shape[0])(logit, ids),
        "eb_platt": base.static(logit, ids),
        "adacalib": adacalib.ravel(),
    }
    for counts in _by_day(grid, fold):
        n, y = (
            grid.sums(grid.coarse, TARGET_CELLS, amount).ravel()
            for amount in (counts.impressions, counts.responses)
        )
        yield Comparison(predicted, ids, n, y)


def _by_day(grid: Grid, fold: Fold) -> list[Counts]:
    """Target counts of each day that the history does not have; all where folds split counts."""
    known, predicted = (c.impressions > 0 for c in (fold.history, fold.target))
    days = np.setdiff1d(grid.cells.day[predicted], grid.cells.day[known])
    return [fold.target.of_days(grid.cells.day == day) for day in days] or [fold.target]
