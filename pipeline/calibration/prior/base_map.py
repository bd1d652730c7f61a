"""What AdaCalib corrects: an anchor that may drift, with a bend for every field value."""

from dataclasses import dataclass, replace

import numpy as np

from pipeline.calibration.adacalib.features import TARGET_CELLS, Grid
from pipeline.calibration.adacalib.folds import Counts
from pipeline.calibration.prior.anchor import Anchor, fit_anchor
from pipeline.calibration.prior.drift import DriftingAnchor, fit_drifting_anchor
from pipeline.calibration.prior.splines import Curves, fit_curves, no_curves
from pipeline.formats.tables import CellTable

DRIFT_DAYS = 3  # days of history from which a drift can be seen
DRIFT_RESPONSES = 10  # likewise, and as many impressions without a response
HORIZON_SHARE = 3  # unless told, the forecast reaches a third of the history's days ahead


@dataclass(frozen=True)
class Basis:
    """Still anchor, drifting anchor and bends of one history, and how much of the bends is used.

    Attributes:
        still: empirical-Bayes Platt.
        drifting: the forecast of the drifting anchor; None where too little shows one.
        curves: the bends that these leave.
        bend_share: how much of the bends is added, in [0, 1].
    """

    still: Anchor
    drifting: DriftingAnchor | None
    curves: Curves
    bend_share: float = 0.0

    @property
    def anchor(self) -> Anchor:
        """The anchor that serves: the drifting one's forecast where there is one."""
        return self.drifting.anchor if self.drifting else self.still

    def __call__(self, uncalibrated_logit: np.ndarray, field_value_id: np.ndarray) -> np.ndarray:
        """The anchored logit, float64 [n], of logits [n] at field value ids [n]."""
        bend = self.bend_share * self.curves(uncalibrated_logit, field_value_id)
        return self.anchor(uncalibrated_logit, field_value_id) + bend

    def fitted(self, grid: Grid) -> np.ndarray:
        """The anchored logit of each cell row, float64 [n], that fits the row's own day."""
        ids = grid.cells.field_value_id
        if self.drifting:
            level = self.drifting.fitted(grid.logit, ids, grid.cells.day)
        else:
            level = self.still(grid.logit, ids)
        return level + self.bend_share * self.curves(grid.logit, ids)


def make_anchors(grid: Grid, history: Counts, horizon_days: int | None) -> Basis:
    """Both anchors of a history, without bends.

    Args:
        grid: cells and knots.
        history: counts of each cell row.
        horizon_days: over how many days ahead the forecast is averaged; None: a third of the
            history's days, since who calibrates on many days also serves for many.
    """
    cells = grid.cells
    still = still_anchor(cells, history.impressions, history.responses, grid.n_field_values)
    drifting = None
    n_days = len(np.unique(cells.day[history.impressions > 0]))
    responses = history.responses.sum()
    rarer = min(responses, history.impressions.sum() - responses)
    if n_days >= DRIFT_DAYS and rarer >= DRIFT_RESPONSES:
        columns = (cells.field_value_id, grid.logit, history.impressions, history.responses)
        drifting = fit_drifting_anchor(
            *columns, cells.day, still=still, horizon_days=horizon_days or n_days // HORIZON_SHARE
        )
    return Basis(still, drifting, no_curves(grid.n_field_values))


def still_anchor(
    cells: CellTable, impressions: np.ndarray, responses: np.ndarray, n_field_values: int
) -> Anchor:
    """Empirical-Bayes Platt on counts [n] of the cell rows, the days of a cell added up first."""
    new = (np.diff(cells.field_value_id) != 0) | (np.diff(cells.cell_id) != 0)
    starts = np.flatnonzero(np.r_[True, new])
    logit_sum = impressions * (cells.logit_sum / cells.impressions)
    n, y, x = (np.add.reduceat(a, starts) for a in (impressions, responses, logit_sum))
    logit = x / np.where(n > 0, n, 1.0)
    return fit_anchor(cells.field_value_id[starts], logit, n, y, n_field_values)


def with_curves(basis: Basis, grid: Grid, history: Counts) -> Basis:
    """The basis with the bends that its anchors leave in the history, in full."""
    n, y, anchored, logit = (
        grid.sums(grid.coarse, TARGET_CELLS, amount)
        for amount in (
            history.impressions,
            history.responses,
            history.impressions * basis.fitted(grid),
            history.impressions * grid.logit,
        )
    )
    total = np.where(n > 0, n, 1.0)
    return replace(basis, curves=fit_curves(logit / total, n, y, anchored / total), bend_share=1.0)
