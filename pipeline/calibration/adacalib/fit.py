"""AdaCalib, variant crossfit: residual knots on an anchor, all learned out of sample.

calibrated_logit = anchor_z(logit) + λ · correction_z(logit)

The anchor is empirical-Bayes Platt scaling whose offsets may drift and to which bends are added
(`basis`). The correction is piecewise linear between knots at the mean logits of the field value's
bins; a network gives it at each knot from posterior statistics of the bin and the value, and a
Gumbel choice decides between the candidate bin counts (paper, sections 3.1 and 3.2). It bends a
curve without lifting it: the level of a field value is the anchor's. How much of bends and
correction is used, and when the network stops, is decided on counts that none of them has seen.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import torch

from pipeline.calibration.adacalib.compile_map import compile_map
from pipeline.calibration.adacalib.examples import Examples, Scale, make_examples, make_scale
from pipeline.calibration.adacalib.features import (
    TARGET_CELLS,
    Evidence,
    Grid,
    Target,
    evidence,
    make_grid,
    target,
    without_common_error,
)
from pipeline.calibration.adacalib.folds import Counts, Fold, all_counts, make_folds
from pipeline.calibration.adacalib.training import FitSettings, Heads, fit_heads, single_thread
from pipeline.calibration.prior.base_map import Basis, make_anchors, with_curves
from pipeline.calibration.statistics.bins import tabulate
from pipeline.calibration.statistics.sort_keys import usable_threads
from pipeline.core.errors import NotEnoughDataError
from pipeline.formats.maps import PiecewiseLinearMap
from pipeline.formats.scores import Scores
from pipeline.formats.tables import BinTable, CellTable

BEND_SHARES = (0.0, 0.5, 1.0)  # among which the out-of-sample loss chooses


@dataclass(frozen=True)
class Settings:
    """How AdaCalib is fitted; see params.yaml, section calibrate.

    Attributes:
        horizon_days: days after the last one over which a field value's offset is forecast; None: a
            third of the calibration days.
        steps: gradient steps of the network at most.
        learning_rate: of AdamW.
        weight_decay: of AdamW.
        temperatures: of the Gumbel choice, first and last step, > 0.
        min_slope: least slope of the calibrated in the uncalibrated logit.
        seed: of initial weights, batches, Gumbel noise and count folds.
        folds: "forward": what is learned out of sample is learned on days after the history;
            "leave_day_out": on days between.
    """

    horizon_days: int | None = None
    steps: int = 100
    learning_rate: float = 0.003
    weight_decay: float = 0.0001
    temperatures: tuple[float, float] = (1.0, 0.1)
    min_slope: float = 0.05
    seed: int = 1
    folds: Literal["forward", "leave_day_out"] = "forward"

    def network(self) -> FitSettings:
        """What the network's fit needs of them."""
        return FitSettings(
            self.steps, self.learning_rate, self.weight_decay, self.temperatures, self.seed
        )


@dataclass(frozen=True)
class HeldOut:
    """A fold's target cells and the logits predicted for them by what had not seen them.

    Attributes:
        target: counts and uncalibrated logits of the cells.
        still: float64 [V, C], logit by empirical-Bayes Platt.
        adacalib: float64 [V, C], logit by AdaCalib.
        fold: history and target counts of the cell rows.
        by_day: impressions and responses, float64 [V, C] each, of each day of the target; one pair
            of all where folds split counts.
        days: int [D], the days of the target; empty where folds split counts.
        basis: anchors and bends of the history.
    """

    target: Target
    still: np.ndarray
    adacalib: np.ndarray
    fold: Fold
    by_day: list[tuple[np.ndarray, np.ndarray]]
    days: np.ndarray
    basis: Basis


@dataclass(frozen=True)
class Fitted:
    """A fitted AdaCalib and how it came about.

    Attributes:
        serving: the compiled map.
        basis: anchors and bends fitted on all calibration days.
        held_out: the folds' out-of-sample predictions.
        chosen_bins: int64 [V], the candidate that serves each field value; 0: no bins of its own.
        correction_share: λ.
        checkpoint: how far the network was trained, share of `steps`.
        moved_knots: knots that had to be moved for monotonicity.
    """

    serving: PiecewiseLinearMap
    basis: Basis
    held_out: list[HeldOut]
    chosen_bins: np.ndarray
    correction_share: float
    checkpoint: float
    moved_knots: int


def fit_adacalib(
    bins: BinTable, cells: CellTable, n_field_values: int, settings: Settings
) -> Fitted:
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
        folds = make_folds(cells, settings.seed, settings.folds)
        everything = Fold(all_counts(cells), all_counts(cells))
        *bases, final = _choose_bases(grid, folds, everything, settings)
        found = [_evidence(grid, fold, basis) for fold, basis in zip(folds, bases, strict=True)]
        targets = [
            target(grid, f.target, _anchored(grid, f, b)) for f, b in zip(folds, bases, strict=True)
        ]
        scale = make_scale(found, grid.live)
        examples = make_examples(grid, found, [without_common_error(t) for t in targets], scale)
        heads = fit_heads(examples, settings.network())
        found_of_all = _evidence(grid, everything, final)
        corrections, chosen = _served_corrections(heads, found_of_all, scale)
        serving, moved = compile_map(grid, final, corrections, chosen, settings.min_slope)
    held_out = _held_out(
        grid, list(zip(folds, bases, targets, strict=True)), examples, heads.held_out
    )
    requested = np.array([knots.requested_bins for knots in grid.candidates])
    chosen_bins = np.where(grid.live, requested[chosen], 0)
    return Fitted(serving, final, held_out, chosen_bins, heads.share, heads.checkpoint, moved)


def _anchored(grid: Grid, fold: Fold, basis: Basis) -> np.ndarray:
    """The anchored logit of each cell row: the forecast, or what its day's neighbours suggest."""
    return basis.fitted(grid) if fold.between else basis(grid.logit, grid.cells.field_value_id)


def _evidence(grid: Grid, fold: Fold, basis: Basis) -> Evidence:
    traits = np.stack([basis.anchor.offsets, np.log(basis.anchor.slopes)], axis=1)
    return evidence(grid, fold.history, basis.fitted(grid), traits)


def _losses(grid: Grid, fold: Fold, basis: Basis) -> np.ndarray:
    """Summed log-loss of a fold's target counts under each of BEND_SHARES, in nats."""
    none, whole = (_anchored(grid, fold, replace(basis, bend_share=s)) for s in (0.0, 1.0))
    bend, counts = whole - none, fold.target
    return np.array([
        np.sum(counts.impressions * np.logaddexp(0.0, logit) - counts.responses * logit)
        for logit in (none + share * bend for share in BEND_SHARES)
    ])  # fmt: skip


def _choose_bases(
    grid: Grid, folds: Sequence[Fold], everything: Fold, settings: Settings
) -> list[Basis]:
    """The basis of each fold's history, then of everything.

    Their share of bends is the one that predicts best over all folds.
    """

    def basis_of(fold: Fold) -> Basis:
        basis = make_anchors(grid, fold.history, settings.horizon_days)
        return with_curves(basis, grid, fold.history)

    with ThreadPoolExecutor(usable_threads()) as pool:  # each history's sums are its own
        bases = list(pool.map(basis_of, [*folds, everything]))
    losses = sum(map(partial(_losses, grid), folds, bases[:-1]))
    return [replace(basis, bend_share=BEND_SHARES[int(np.argmin(losses))]) for basis in bases]


def _served_corrections(
    fitted: Heads, found: Evidence, scale: Scale
) -> tuple[list[np.ndarray], np.ndarray]:
    """Mean corrections [V, K] at the knots of each candidate, and the candidate [V] that is chosen.

    No randomness: the candidate with the greatest attention, averaged over the fits.
    """
    bins, value = scale(found)
    shares = [torch.from_numpy(share) for share in found.shares]
    with torch.no_grad():
        attention = torch.stack([head.choice(value) for head in fitted.heads]).mean(dim=0)
        corrections = [
            torch.stack([head.at_knots(b, s, value) for head in fitted.heads]).mean(dim=0)
            for b, s in zip(bins, shares, strict=True)
        ]
    kept = [fitted.share * c.double().numpy() for c in corrections]
    return kept, attention.argmax(dim=-1).numpy()


def _held_out(
    grid: Grid,
    known: Sequence[tuple[Fold, Basis, Target]],
    examples: Examples,
    corrections: np.ndarray,
) -> list[HeldOut]:
    """The folds' target cells with both predictions; corrections [S, C] are in examples' order."""
    rows = []
    for i, (fold, basis, cells) in enumerate(known):
        mine = examples.fold.numpy() == i
        predicted = cells.anchored.astype(np.float64)
        predicted[examples.field_value_id.numpy()[mine]] += corrections[mine]
        ids = np.repeat(np.arange(len(predicted))[:, None], predicted.shape[1], axis=1)
        logit = cells.logit.astype(np.float64)
        days = _days(grid, fold)
        by_day = _by_day(grid, fold.target, days)
        still = basis.still(logit, ids)
        rows.append(HeldOut(cells, still, predicted, fold, by_day, days, basis))
    return rows


def _days(grid: Grid, fold: Fold) -> np.ndarray:
    """The days that are in the target and not in the history."""
    known, predicted = (c.impressions > 0 for c in (fold.history, fold.target))
    return np.setdiff1d(grid.cells.day[predicted], grid.cells.day[known])


def _by_day(grid: Grid, counts: Counts, days: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Impressions and responses [V, C] of the target cells on each day; see `HeldOut`."""
    each = [counts.of_days(grid.cells.day == one) for one in days] if len(days) else [counts]
    return [
        (
            grid.sums(grid.coarse, TARGET_CELLS, one.impressions),
            grid.sums(grid.coarse, TARGET_CELLS, one.responses),
        )
        for one in each
    ]


def fit(
    scores: Scores,
    candidates: Sequence[int] = (5, 10, 20),
    grid_cells: int = 160,
    settings: Settings | None = None,
) -> PiecewiseLinearMap:
    """AdaCalib's map fitted on the calibration days' scores.

    Args:
        scores: rows of the calibration days, any order.
        candidates: bin counts among which each field value chooses.
        grid_cells: cells of the fitting grid, a multiple of every candidate.
        settings: how it is fitted.
    """
    bins, cells = tabulate(scores, candidates, grid_cells)
    return fit_adacalib(bins, cells, scores.n_field_values, settings or Settings()).serving
