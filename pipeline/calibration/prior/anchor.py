"""The anchor: empirical-Bayes Platt scaling, an offset and a slope for every field value.

calibrated_logit = c + a_z + b_z · (uncalibrated_logit - c), with c the mean logit and b_z > 0.

(a_z, b_z) has a normal prior whose mean and covariance are estimated from all field values, so a
value with many responses follows its own and one with few the others. A value that was never seen
has the line of `unseen_line`: the prior's mean is the logit of a typical value, while rates spread
upwards, and of few values its spread is a guess.
"""

import numpy as np

from pipeline.calibration.prior.day_forecast import DayForecast, unseen_line
from pipeline.calibration.prior.quadrature import LEVEL, SLOPE
from pipeline.calibration.prior.random_slopes import (
    GroupedRows,
    SlopePrior,
    group_rows,
    modes,
    posterior,
)
from pipeline.formats.maps import PiecewiseLinearMap, affine_map
from pipeline.formats.tables import CellTable

LEAST_SLOPE = 0.05  # of the calibrated in the uncalibrated logit


def _raise_slopes(rows: GroupedRows, prior: SlopePrior, theta: np.ndarray) -> np.ndarray:
    """The modes with slopes of at least LEAST_SLOPE; where one is raised the offset follows."""
    low = theta[:, 1] < LEAST_SLOPE
    raised = theta.copy()
    if low.any():
        start = np.column_stack([theta[low, 0], np.full(low.sum(), LEAST_SLOPE)])
        raised[low] = modes(rows.take(low), prior.holding(LEAST_SLOPE), start)[0]
        raised[low, 1] = LEAST_SLOPE
    return raised


def fit_anchor(
    field_value_id: np.ndarray,
    logit: np.ndarray,
    impressions: np.ndarray,
    responses: np.ndarray,
    n_field_values: int,
) -> PiecewiseLinearMap:
    """The anchor of rows or grid cells: empirical-Bayes estimates of all (a_z, b_z).

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


def anchor_of_cells(cells: CellTable, n_field_values: int) -> PiecewiseLinearMap:
    """Empirical-Bayes Platt on cell rows, the days of a cell added up first.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    starts = np.flatnonzero(cells.starts)
    logit_sum = cells.impressions * (cells.logit_sum / cells.impressions)
    columns = (cells.impressions, cells.responses, logit_sum)
    n, y, x = (np.add.reduceat(column, starts) for column in columns)
    return fit_anchor(cells.field_value_id[starts], x / n, n, y, n_field_values)
