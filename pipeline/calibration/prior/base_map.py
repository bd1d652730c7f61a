"""What AdaCalib corrects: an anchor that may drift, with a spline term for every field value."""

from dataclasses import dataclass, replace

import numpy as np

from pipeline.calibration.folds import Counts
from pipeline.calibration.prior.anchor import Anchor, fit_anchor
from pipeline.calibration.prior.drift import DriftingAnchor, fit_drifting_anchor
from pipeline.calibration.prior.splines import Splines, fit_splines, no_splines
from pipeline.calibration.statistics.grid import Grid
from pipeline.formats.tables import CellTable

DRIFT_DAYS = 3  # days of history from which a drift can be seen
DRIFT_RESPONSES = 10  # likewise, and as many impressions without a response
HORIZON_SHARE = 3  # where no horizon is given, the forecast reaches a third of the history ahead


@dataclass(frozen=True)
class BaseMap:
    """Static anchor, drifting anchor and splines of one history, and how much of these counts.

    Attributes:
        static: empirical-Bayes Platt.
        drifting: the forecast of the drifting anchor; None where too little shows one.
        splines: the spline terms that these leave.
        spline_share: how much of them is added, in [0, 1].
    """

    static: Anchor
    drifting: DriftingAnchor | None
    splines: Splines
    spline_share: float = 0.0

    @property
    def anchor(self) -> Anchor:
        """The anchor that serves: the drifting one's forecast where there is one."""
        return self.drifting.anchor if self.drifting else self.static

    def __call__(self, uncalibrated_logit: np.ndarray, field_value_id: np.ndarray) -> np.ndarray:
        """The anchored logit, float64 [n], of logits [n] at field value ids [n]."""
        spline = self.spline_share * self.splines(uncalibrated_logit, field_value_id)
        return self.anchor(uncalibrated_logit, field_value_id) + spline

    def fitted(self, grid: Grid) -> np.ndarray:
        """The anchored logit of each cell row, float64 [n], that fits the row's own day."""
        ids = grid.cells.field_value_id
        if self.drifting:
            level = self.drifting.fitted(grid.logit, ids, grid.cells.day)
        else:
            level = self.static(grid.logit, ids)
        return level + self.spline_share * self.splines(grid.logit, ids)


def make_anchors(grid: Grid, history: Counts, horizon_days: int | None) -> BaseMap:
    """Both anchors of a history, without splines.

    Args:
        grid: cells and knots.
        history: counts of each cell row.
        horizon_days: over how many days ahead the forecast is averaged; None: a third of the
            history's days, since who calibrates on many days also serves for many.
    """
    cells = grid.cells
    static = static_anchor(cells, history, grid.n_field_values)
    drifting = None
    n_days = len(np.unique(cells.day[history.impressions > 0]))
    responses = history.responses.sum()
    rarer = min(responses, history.impressions.sum() - responses)
    if n_days >= DRIFT_DAYS and rarer >= DRIFT_RESPONSES:
        horizon = horizon_days or n_days // HORIZON_SHARE
        drifting = fit_drifting_anchor(grid, history, static, horizon)
    return BaseMap(static, drifting, no_splines(grid.n_field_values))


def static_anchor(cells: CellTable, counts: Counts, n_field_values: int) -> Anchor:
    """Empirical-Bayes Platt on counts of the cell rows, the days of a cell added up first.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    new = (np.diff(cells.field_value_id) != 0) | (np.diff(cells.cell_id) != 0)
    starts = np.flatnonzero(np.r_[True, new])
    logit_sum = counts.impressions * (cells.logit_sum / cells.impressions)
    columns = (counts.impressions, counts.responses, logit_sum)
    n, y, x = (np.add.reduceat(column, starts) for column in columns)
    logit = x / np.where(n > 0, n, 1.0)
    return fit_anchor(cells.field_value_id[starts], logit, n, y, n_field_values)


def with_splines(base: BaseMap, grid: Grid, history: Counts) -> BaseMap:
    """The base map with the splines that its anchors leave in the history, in full."""
    splines = fit_splines(
        *grid.target_cells(history.impressions, history.responses, base.fitted(grid))
    )
    return replace(base, splines=splines, spline_share=1.0)
