"""What AdaCalib corrects: an anchor that may drift, with a bend for every field value."""

from dataclasses import dataclass, replace

import numpy as np

from pipeline.calibration.anchor import Anchor, fit_anchor
from pipeline.calibration.curves import Curves, fit_curves, no_curves
from pipeline.calibration.drift import DriftingAnchor, fit_drifting_anchor
from pipeline.calibration.folds import Counts
from pipeline.calibration.statistics import TARGET_CELLS, Grid

DRIFT_DAYS = 3  # days of history from which a drift can be seen


@dataclass(frozen=True)
class Basis:
    """Still anchor, drifting anchor and bends of one history, and how much of each is used.

    Attributes:
        still: empirical-Bayes Platt.
        drifting: the forecast of the drifting anchor; None where there are too few days.
        curves: the bends that these leave.
        drift_share: weight of `drifting` against `still`, in [0, 1].
        bend_share: how much of the bends is added, in [0, 1].
    """

    still: Anchor
    drifting: DriftingAnchor | None
    curves: Curves
    drift_share: float = 0.0
    bend_share: float = 0.0

    @property
    def offsets(self) -> np.ndarray:
        """Offsets float64 [V] of the mixed anchor."""
        return self._mix(self.still.offsets, lambda anchor: anchor.offsets)

    @property
    def slopes(self) -> np.ndarray:
        """Slopes float64 [V] of the mixed anchor, > 0."""
        return self._mix(self.still.slopes, lambda anchor: anchor.slopes)

    def _mix(self, still: np.ndarray, part) -> np.ndarray:
        if self.drifting is None:
            return still
        return still + self.drift_share * (part(self.drifting.anchor) - still)

    def __call__(self, uncalibrated_logit: np.ndarray, field_value_id: np.ndarray) -> np.ndarray:
        """The anchored logit, float64 [n], of logits [n] at field value ids [n]."""
        centred = uncalibrated_logit - self.still.center
        line = self.offsets[field_value_id] + self.slopes[field_value_id] * centred
        bend = self.bend_share * self.curves(uncalibrated_logit, field_value_id)
        return self.still.center + line + bend

    def fitted(self, grid: Grid) -> np.ndarray:
        """The anchored logit of each cell row, float64 [n], that fits the row's own day."""
        ids = grid.cells.field_value_id
        level = self.still(grid.logit, ids)
        if self.drifting is not None:
            own_day = self.drifting.fitted(grid.logit, ids, grid.cells.day)
            level = level + self.drift_share * (own_day - level)
        return level + self.bend_share * self.curves(grid.logit, ids)


def make_anchors(grid: Grid, history: Counts, horizon_days: int) -> Basis:
    """Both anchors of a history, without bends; the drifting one in full where there is one."""
    cells, counts = grid.cells, (history.impressions, history.responses)
    columns = (cells.field_value_id, grid.logit, *counts)
    still = fit_anchor(*columns, grid.n_field_values)
    drifting = None
    if len(np.unique(cells.day[history.impressions > 0])) >= DRIFT_DAYS:
        drifting = fit_drifting_anchor(*columns, cells.day, still, horizon_days)
    return Basis(still, drifting, no_curves(grid.n_field_values), float(drifting is not None))


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
