"""Baselines that learn an offset, or an offset and a slope, of every field value."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_matrix
from scipy.special import expit, gammaln
from sklearn.linear_model import LogisticRegression

from bench.baselines.rows import binary_rows, grouped
from pipeline.calibration.baselines import fit_eb_platt
from pipeline.calibration.paper.paper_rows import response_rate
from pipeline.calibration.statistics.bins import tabulate
from pipeline.calibration.statistics.grid import log_loss_from_logits
from pipeline.formats.maps import PiecewiseLinearMap, affine_map
from pipeline.formats.scores import Scores
from pipeline.formats.tables import CellTable

CELLS = 160  # of every field value's grid
FEW_CELLS = 40  # the same, where a line needs no finer grid
HALF_LIVES = (2.0, 4.0, 8.0, 16.0, 32.0, np.inf)  # days
BURN_IN = 0.4  # share of the days that are never predicted
TARGET_DAYS = 10  # at most, spread evenly
LEAST_SLOPE = 0.01


def ratio_per_value(scores: Scores) -> PiecewiseLinearMap:
    """calibrated_logit = logit + ln ratio_z with ratio_z = ρ (O_z + k) / (ρ E_z + k).

    O and E are observed and expected responses, ρ = ΣO / ΣE is the ratio of all rows, k the
    strength of the shrinkage: the posterior mean under a Gamma prior (empirical Bayes, as in
    Clayton & Kaldor 1987). Unseen values have the mean ratio of the values that were seen.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    response_rate(scores)  # refuses scores without impressions
    weights = scores.impressions * expit(scores.uncalibrated_logit.astype(np.float64))
    expected = np.bincount(scores.field_value_id, weights, scores.n_field_values)
    observed = np.bincount(scores.field_value_id, scores.responses, scores.n_field_values)
    overall = (observed.sum() + 0.5) / (expected.sum() + 0.5)
    expected *= overall
    seen = expected > 0
    k = _shrinkage(observed[seen], expected[seen])
    ratio = overall * (observed + k) / (expected + k)
    ratio[0] = ratio[~seen] = ratio[seen].mean()
    return affine_map(np.log(ratio), np.ones(scores.n_field_values))


def _shrinkage(observed: np.ndarray, expected: np.ndarray) -> float:
    """The likeliest shape k of the Gamma distribution of ratios with mean 1.

    O given E is then negative binomial of mean E: values differ little where k is large.
    """

    def loss(log_shape: float) -> float:
        k = np.exp(log_shape)
        failure = k * np.log1p(expected / k) + observed * np.log1p(k / expected)
        return float((gammaln(k) - gammaln(observed + k) + failure).sum())

    return float(np.exp(minimize_scalar(loss, bounds=(-5.0, 10.0), method="bounded").x))


def eb_platt(scores: Scores) -> PiecewiseLinearMap:
    """Empirical-Bayes Platt scaling of the rows' grid cells, all days alike.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    cells = grouped(scores, CELLS)
    counts = (cells.impressions, cells.responses)
    return fit_eb_platt(
        cells.field_value_id, cells.uncalibrated_logit, *counts, scores.n_field_values
    )


@dataclass(frozen=True)
class _DailyCells:
    """Grid cells by day; `cell` [n] numbers the (field value, cell) of each row."""

    table: CellTable
    cell: np.ndarray
    n_field_values: int

    def eb_platt(self, until: int, half_life: float) -> PiecewiseLinearMap:
        """The map of the days before `until`, a day of age t counting 2^(-t / half-life)."""
        age = until - 1 - self.table.day
        weight = np.where(age >= 0, 0.5 ** (np.maximum(age, 0) / half_life), 0.0)
        columns = (self.table.impressions, self.table.responses, self.table.logit_sum)
        n, o, logit = (np.bincount(self.cell, weight * column) for column in columns)
        kept = n > 0
        value = np.zeros(len(n), dtype=np.int64)
        value[self.cell] = self.table.field_value_id
        return fit_eb_platt(
            value[kept], logit[kept] / n[kept], n[kept], o[kept], self.n_field_values
        )

    def loss(self, day: int, half_life: float) -> float:
        """Log-loss of one day under the map of the days before it."""
        rows = self.table.take(self.table.day == day)
        logit = self.eb_platt(day, half_life)(
            rows.logit_sum / rows.impressions, rows.field_value_id
        )
        return float(log_loss_from_logits(logit, rows.responses, rows.impressions).sum())


def _predicted_days(days: np.ndarray) -> np.ndarray:
    """The days to be predicted, none where there is one day only."""
    later = days[max(1, round(BURN_IN * len(days))) :]
    at = np.linspace(0, len(later) - 1, min(len(later), TARGET_DAYS)).round()
    return later[at.astype(np.int64)]


def eb_platt_forward(scores: Scores) -> PiecewiseLinearMap:
    """Empirical-Bayes Platt scaling in which old days fade, by a half-life that is learned too.

    It is the one that predicted later calibration days best from earlier ones. The longest wins a
    tie, and is taken where there are fewer than two days.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    response_rate(scores)  # refuses scores without impressions
    _, table = tabulate(scores, (1,), FEW_CELLS)
    key = table.field_value_id.astype(np.int64) * FEW_CELLS + table.cell_id
    cells = _DailyCells(table, np.unique(key, return_inverse=True)[1], scores.n_field_values)
    predicted = _predicted_days(np.unique(table.day))
    losses = [sum(cells.loss(day, h) for day in predicted) for h in reversed(HALF_LIVES)]
    half_life = HALF_LIVES[::-1][int(np.argmin(losses))]
    return cells.eb_platt(int(table.day.max()) + 1, half_life)


def logistic_interaction(scores: Scores) -> PiecewiseLinearMap:
    """Logistic regression with the interaction logit × field value, by scikit-learn.

    Common and own offsets and slopes on the centred logit, with its usual L2 penalty. The unseen
    value has the common ones. A slope that is not positive is raised to LEAST_SLOPE.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    cells = grouped(scores, FEW_CELLS)
    row, label, weight = binary_rows(cells)
    logit = cells.uncalibrated_logit.astype(np.float64)
    center = float(np.average(logit, weights=cells.impressions))
    design = _interactions(logit - center, cells.field_value_id, cells.n_field_values)
    model = LogisticRegression(max_iter=1000, tol=1e-5)
    model.fit(design[row], label, sample_weight=weight)
    offsets, slopes = np.split(model.coef_[0, :-1], 2)
    offsets[0] = slopes[0] = 0.0
    slopes = np.maximum(model.coef_[0, -1] + slopes, LEAST_SLOPE)
    return affine_map(float(model.intercept_[0]) + offsets - center, slopes, center)


def _interactions(logit: np.ndarray, field_value_id: np.ndarray, n_field_values: int) -> csr_matrix:
    """Columns: an indicator for each value, logit × indicator for each value, the logit itself."""
    n = len(logit)
    value = field_value_id.astype(np.int64)
    columns = np.stack([value, n_field_values + value, np.full(n, 2 * n_field_values)], axis=1)
    entries = np.stack([np.ones(n), logit, logit], axis=1)
    starts = np.arange(0, 3 * n + 1, 3)
    return csr_matrix((entries.ravel(), columns.ravel(), starts), (n, 2 * n_field_values + 1))
