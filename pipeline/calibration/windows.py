"""The everyday baselines as they are refreshed: fitted again each day on the newest days.

How many days is learned, forward in time: of WINDOWS the one whose maps of the days before forecast
the learning days best.
"""

from collections.abc import Callable, Sequence

import numpy as np

from pipeline.calibration.folds import Counts, all_counts
from pipeline.calibration.isotonic import isotonic_of_cells
from pipeline.calibration.prior.anchor import anchor_of_cells
from pipeline.calibration.statistics.grid import TARGET_CELLS, groups_of_cells, of_same_cell
from pipeline.calibration.statistics.logits import log_loss_from_logits
from pipeline.formats.maps import PiecewiseLinearMap, identity_map
from pipeline.formats.tables import CellTable

WINDOWS = (7, 14, 28)  # days
FitCells = Callable[[CellTable, Counts, int], PiecewiseLinearMap]


def _eb_platt(cells: CellTable, counts: Counts, n_field_values: int) -> PiecewiseLinearMap:
    return anchor_of_cells(cells, counts, n_field_values).as_map()


FITS: dict[str, FitCells] = {"isotonic": isotonic_of_cells, "eb_platt": _eb_platt}
"""The baselines that AdaCalib must beat to ship, from simple to complex."""


class Windowed:
    """A baseline that is fitted on the newest days before each day that it serves.

    Args:
        fit: the baseline.
        cells: of all days.
        n_field_values: V.
        horizon_days: h: the map of day t knows days up to t - h.
        window: days that it is fitted on.
    """

    def __init__(
        self, fit: FitCells, cells: CellTable, n_field_values: int, horizon_days: int, window: int
    ) -> None:
        self.fit, self.cells, self.n_field_values = fit, cells, n_field_values
        self.horizon_days, self.window = horizon_days, window

    def __call__(self, day: int) -> PiecewiseLinearMap:
        """The map that serves a day; the identity where nothing is known yet."""
        last = day - self.horizon_days
        rows = (self.cells.day <= last) & (self.cells.day > last - self.window)
        if not rows.any():
            return identity_map(self.n_field_values)
        some = self.cells.take(rows)
        return self.fit(some, all_counts(some), self.n_field_values)


def best_window(
    fit: FitCells, cells: CellTable, n_field_values: int, horizon_days: int, days: Sequence[int]
) -> Windowed:
    """The baseline with the window that forecast `days` best; the longest wins a tie.

    Args:
        fit, cells, n_field_values, horizon_days: as in `Windowed`.
        days: the learning days that are forecast, ascending; without any the longest window wins.
    """
    each = [Windowed(fit, cells, n_field_values, horizon_days, w) for w in sorted(WINDOWS)[::-1]]
    losses = [sum(_loss(windowed, cells, day) for day in days) for windowed in each]
    return each[int(np.argmin(losses))]


def _loss(windowed: Windowed, cells: CellTable, day: int) -> float:
    rows = cells.take(cells.day == day)
    logit = windowed(day)(rows.logit_sum / rows.impressions, rows.field_value_id)
    return float(log_loss_from_logits(logit, rows.responses, rows.impressions).sum())


def coarse(cells: CellTable, learned: np.ndarray) -> CellTable:
    """The cells in TARGET_CELLS groups of neighbours for each field value, by day.

    Args:
        cells: of all days.
        learned: bool [n], the rows that decide which cells are neighbours.
    """
    groups = groups_of_cells(cells.take(learned), TARGET_CELLS)
    group = of_same_cell(cells, learned, groups).astype(np.int64)
    first, n_days = int(cells.day.min()), int(cells.day.max() - cells.day.min()) + 1
    key = (cells.field_value_id.astype(np.int64) * TARGET_CELLS + group) * n_days
    keys, place = np.unique(key + cells.day - first, return_inverse=True)
    sums = (
        np.bincount(place, column)
        for column in (cells.impressions, cells.responses, cells.logit_sum, cells.probability_sum)
    )
    value, cell = np.divmod(keys // n_days, TARGET_CELLS)
    return CellTable(value, cell, keys % n_days + first, *sums)
