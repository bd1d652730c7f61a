"""Empirical-Bayes Platt scaling in which old days fade; the half-life is learned too."""

from dataclasses import dataclass

import numpy as np

from pipeline.calibration.baselines.counting import response_rate
from pipeline.calibration.prior.anchor import Anchor, fit_anchor
from pipeline.calibration.statistics.bins import tabulate
from pipeline.calibration.statistics.logits import log_loss_from_logits
from pipeline.formats.maps import PiecewiseLinearMap
from pipeline.formats.scores import Scores
from pipeline.formats.tables import CellTable

CELLS = 40  # of every field value's grid: a line needs no finer one
HALF_LIVES = (2.0, 4.0, 8.0, 16.0, 32.0, np.inf)  # days
BURN_IN = 0.4  # share of the days that are never predicted
TARGET_DAYS = 10  # at most, spread evenly


@dataclass(frozen=True)
class _Days:
    """Grid cells by day; `cell` [n] numbers the (field value, cell) of each row."""

    table: CellTable
    cell: np.ndarray
    n_field_values: int

    def anchor(self, until: int, half_life: float) -> Anchor:
        """The anchor of the days before `until`, a day of age t counting 2^(-t / half-life)."""
        age = until - 1 - self.table.day
        weight = np.where(age >= 0, 0.5 ** (np.maximum(age, 0) / half_life), 0.0)
        columns = (self.table.impressions, self.table.responses, self.table.logit_sum)
        n, o, logit = (np.bincount(self.cell, weight * column) for column in columns)
        kept = n > 0
        value = np.zeros(len(n), dtype=np.int64)
        value[self.cell] = self.table.field_value_id
        return fit_anchor(value[kept], logit[kept] / n[kept], n[kept], o[kept], self.n_field_values)

    def loss(self, day: int, half_life: float) -> float:
        """Log-loss of one day under the anchor of the days before it."""
        rows = self.table.take(self.table.day == day)
        logit = self.anchor(day, half_life)(rows.logit_sum / rows.impressions, rows.field_value_id)
        return float(log_loss_from_logits(logit, rows.responses, rows.impressions).sum())


def _targets(days: np.ndarray) -> np.ndarray:
    """The days to be predicted, none where there is one day only."""
    later = days[max(1, round(BURN_IN * len(days))) :]
    at = np.linspace(0, len(later) - 1, min(len(later), TARGET_DAYS)).round()
    return later[at.astype(np.int64)]


def fit(scores: Scores) -> PiecewiseLinearMap:
    """The anchor under the half-life that predicted later calibration days best from earlier ones.

    The longest half-life wins a tie, and is taken where there are fewer than two days.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    response_rate(scores)  # refuses scores without impressions
    _, table = tabulate(scores, (1,), CELLS)
    key = table.field_value_id.astype(np.int64) * CELLS + table.cell_id
    days = _Days(table, np.unique(key, return_inverse=True)[1], scores.n_field_values)
    targets = _targets(np.unique(table.day))
    losses = [sum(days.loss(day, h) for day in targets) for h in reversed(HALF_LIVES)]
    half_life = HALF_LIVES[::-1][int(np.argmin(losses))]
    return days.anchor(int(table.day.max()) + 1, half_life).as_map()
