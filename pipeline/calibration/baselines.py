"""The everyday baselines, isotonic regression and EB-Platt, fitted again each day on newest days.

Isotonic regression is on the logit, one curve for all field values (Zadrozny & Elkan 2002).
Empirical-Bayes Platt scaling has an offset and a slope for every field value:

calibrated_logit = c + a_z + b_z · (uncalibrated_logit - c), with c the mean logit and b_z > 0.

(a_z, b_z) has a normal prior whose mean and covariance are estimated from all field values, so a
value with many responses follows its own and one with few the others. A value that was never seen
has the line of `unseen_line`: the prior's mean is the logit of a typical value, while rates spread
upwards, and of few values its spread is a guess.

On how many days to fit is learned, forward in time: of WINDOWS the one whose maps of the days
before forecast the learning days best.
"""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import logit as log_odds

from pipeline.calibration.prior.day_forecast import DayForecast, unseen_line
from pipeline.calibration.prior.quadrature import LEVEL, SLOPE
from pipeline.calibration.prior.random_slopes import (
    GroupedRows,
    SlopePrior,
    group_rows,
    modes,
    posterior,
)
from pipeline.calibration.statistics.grid import (
    TARGET_CELLS,
    groups_of_cells,
    log_loss_from_logits,
    of_same_cell,
)
from pipeline.formats.maps import PiecewiseLinearMap, affine_map, identity_map, shared_map
from pipeline.formats.tables import CellTable

LEAST_SLOPE = 0.05  # of a baseline's calibrated in the uncalibrated logit


def isotonic_of_cells(cells: CellTable, n_field_values: int) -> PiecewiseLinearMap:
    """Isotonic regression on the fitting grid's cell rows, its plateaus tilted.

    A plateau would tie logits, which costs rank, and a map that does could not ship: every slope
    is at least LEAST_SLOPE.

    Args:
        cells: one row or more.
        n_field_values: V.
    """
    n, y = cells.impressions.astype(float), cells.responses.astype(float)
    rate = (y.sum() + 0.5) / (n.sum() + 1.0)
    knots, plateaus = isotonic_curve(cells.logit_sum / n, n, y, np.full(len(n), rate))
    values = increasing(knots, plateaus, np.ones(len(knots)), LEAST_SLOPE)
    return shared_map(knots, values, LEAST_SLOPE, LEAST_SLOPE, n_field_values)


def isotonic_curve(
    logit: np.ndarray, impressions: np.ndarray, responses: np.ndarray, rate: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Knots [m] and calibrated logits [m] of an isotonic regression that is finite everywhere.

    Every block of pooled rows is smoothed by impressions at the mean of `rate` over the block, as
    many as bring one of the rarer outcome, and blocks that no longer ascend are pooled again. A
    block is a plateau from its first logit to its last; between plateaus the logit is linear.

    Args:
        logit: float64 [n].
        impressions: [n], > 0.
        responses: [n].
        rate: float64 [n] in (0, 1), what a row's rate is smoothed towards.
    """
    at, group = np.unique(logit, return_inverse=True)
    n, o, e = (np.bincount(group, a) for a in (impressions, responses, impressions * rate))
    block = np.unique(ascending_rates(o, n), return_inverse=True)[1]
    n, o, e = (np.bincount(block, a) for a in (n, o, e))
    mean = e / n
    added = 1 / np.minimum(mean, 1 - mean)
    smoothed = ascending_rates(o + added * mean, n + added)[block]
    ends = np.ones(len(at), dtype=bool)
    ends[1:-1] = (smoothed[1:-1] != smoothed[:-2]) | (smoothed[1:-1] != smoothed[2:])
    return at[ends], log_odds(smoothed)[ends]


def ascending_rates(responses: np.ndarray, impressions: np.ndarray) -> np.ndarray:
    """Rates [n] that do not decrease, nearest to responses / impressions."""
    return isotonic_regression(responses / impressions, weights=impressions).x


def increasing(
    knots: np.ndarray, values: np.ndarray, weights: np.ndarray, min_slope: float
) -> np.ndarray:
    """`values` moved least so that every slope between knots is at least `min_slope` > 0.

    Isotonic regression works on value - min_slope · knot; adding the line back leaves no
    plateau, which would tie logits and cost ranking. Values that keep the rule come back bit for
    bit.

    Args:
        knots: float64 [n], strictly ascending logits.
        values: float64 [n], calibrated logits there.
        weights: float64 [n], > 0: how much a knot resists being moved.
        min_slope: least slope of the calibrated in the uncalibrated logit.
    """
    if (np.diff(values) >= min_slope * np.diff(knots)).all():
        return values
    line = min_slope * knots
    return isotonic_regression(values - line, weights=weights).x + line


def _raise_slopes(rows: GroupedRows, prior: SlopePrior, theta: np.ndarray) -> np.ndarray:
    """The modes with slopes of at least LEAST_SLOPE; where one is raised the offset follows."""
    low = theta[:, 1] < LEAST_SLOPE
    raised = theta.copy()
    if low.any():
        start = np.column_stack([theta[low, 0], np.full(low.sum(), LEAST_SLOPE)])
        raised[low] = modes(rows.take(low), prior.holding(LEAST_SLOPE), start)[0]
        raised[low, 1] = LEAST_SLOPE
    return raised


def fit_eb_platt(
    field_value_id: np.ndarray,
    logit: np.ndarray,
    impressions: np.ndarray,
    responses: np.ndarray,
    n_field_values: int,
) -> PiecewiseLinearMap:
    """EB-Platt of rows or grid cells: empirical-Bayes estimates of all (a_z, b_z).

    A map with one knot, c, the impression-weighted mean logit. The row of id 0 and those of field
    values without impressions are the unseen value's; every slope is at least LEAST_SLOPE.

    A cell of a fine grid at its mean logit stands for its rows; the cost grows with the number of
    cells alone. Inputs are left as they were.

    Args:
        field_value_id: int [n] in [0, n_field_values); 0 = unseen or null. Rows of id 0 take part
            as one value among the others, but the map of id 0 is the unseen value's.
        logit: [n], uncalibrated log-odds (of a cell: the mean over its rows).
        impressions: float or int [n], >= 0; day weights may make them fractional.
        responses: float or int [n], 0 <= responses <= impressions.
        n_field_values: V.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    rows = group_rows((field_value_id, logit, impressions, responses), None)
    prior, theta, spread = posterior(rows)
    lines = _raise_slopes(rows, prior, theta)
    level = np.array([rows.center, 0.0])
    total, shown = rows.sums(rows.impressions * rows.centred, rows.impressions)
    about = total / shown
    away = rows.centred - np.repeat(about, rows.sizes)
    reach = float(np.sqrt(np.average(away**2, weights=rows.impressions)))
    each = DayForecast(lines + level, spread, np.full(len(lines), rows.center))
    unseen = unseen_line(each, rows.center + about, rows.center, reach) - level
    everywhere = np.tile(np.maximum(unseen, [-np.inf, LEAST_SLOPE]), (n_field_values, 1))
    own = rows.groups > 0
    everywhere[rows.groups[own]] = lines[own]
    return affine_map(everywhere[:, LEVEL], everywhere[:, SLOPE], rows.center)


def eb_platt_of_cells(cells: CellTable, n_field_values: int) -> PiecewiseLinearMap:
    """Empirical-Bayes Platt on cell rows, the days of a cell added up first.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    starts = np.flatnonzero(cells.starts)
    logit_sum = cells.impressions * (cells.logit_sum / cells.impressions)
    columns = (cells.impressions, cells.responses, logit_sum)
    n, y, x = (np.add.reduceat(column, starts) for column in columns)
    return fit_eb_platt(cells.field_value_id[starts], x / n, n, y, n_field_values)


WINDOWS = (7, 14, 28)  # days
FitCells = Callable[[CellTable, int], PiecewiseLinearMap]

FITS: dict[str, FitCells] = {"isotonic": isotonic_of_cells, "eb_platt": eb_platt_of_cells}
"""The baselines that AdaCalib must beat to ship, from simple to complex."""


def windowed_map(
    fit: FitCells, cells: CellTable, n_field_values: int, last: int, window: int
) -> PiecewiseLinearMap:
    """A baseline's map by the newest days that are known; the identity where nothing is known yet.

    Args:
        fit: the baseline.
        cells: of all days.
        n_field_values: V.
        last: the newest day that is known.
        window: days that it is fitted on.
    """
    rows = (cells.day <= last) & (cells.day > last - window)
    if not rows.any():
        return identity_map(n_field_values)
    return fit(cells.take(rows), n_field_values)


def best_window(
    fit: FitCells, cells: CellTable, n_field_values: int, horizon_days: int, days: Sequence[int]
) -> int:
    """The window whose maps forecast `days` best; the longest wins a tie.

    Args:
        fit, cells, n_field_values: as in `windowed_map`.
        horizon_days: h: the map of day t knows days up to t - h.
        days: the learning days that are forecast, ascending; without any the longest window wins.
    """

    def loss(window: int, day: int) -> float:
        rows = cells.take(cells.day == day)
        served = windowed_map(fit, cells, n_field_values, day - horizon_days, window)
        logit = served(rows.logit_sum / rows.impressions, rows.field_value_id)
        return float(log_loss_from_logits(logit, rows.responses, rows.impressions).sum())

    return min(sorted(WINDOWS)[::-1], key=lambda window: sum(loss(window, day) for day in days))


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
