"""Logistic regression with the interaction logit × field value, by scikit-learn."""

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from pipeline.calibration.baselines.counting import grouped
from pipeline.calibration.baselines.logistic import binary_rows
from pipeline.formats.maps import PiecewiseLinearMap, affine_map
from pipeline.formats.scores import Scores

CELLS = 40  # of every field value's grid: a line needs no finer one
LEAST_SLOPE = 0.01


def _design(logit: np.ndarray, field_value_id: np.ndarray, n_field_values: int) -> csr_matrix:
    """Columns: an indicator for each value, logit × indicator for each value, the logit itself."""
    n = len(logit)
    value = field_value_id.astype(np.int64)
    columns = np.stack([value, n_field_values + value, np.full(n, 2 * n_field_values)], axis=1)
    entries = np.stack([np.ones(n), logit, logit], axis=1)
    starts = np.arange(0, 3 * n + 1, 3)
    return csr_matrix((entries.ravel(), columns.ravel(), starts), (n, 2 * n_field_values + 1))


def fit(scores: Scores) -> PiecewiseLinearMap:
    """Common and own offsets and slopes on the centred logit, with scikit-learn's usual L2 penalty.

    The unseen value has the common ones. A slope that is not positive is raised to LEAST_SLOPE.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    cells = grouped(scores, CELLS)
    row, label, weight = binary_rows(cells)
    logit = cells.uncalibrated_logit.astype(np.float64)
    center = float(np.average(logit, weights=cells.impressions))
    design = _design(logit - center, cells.field_value_id, cells.n_field_values)
    model = LogisticRegression(max_iter=1000, tol=1e-5)
    model.fit(design[row], label, sample_weight=weight)
    offsets, slopes = np.split(model.coef_[0, :-1], 2)
    offsets[0] = slopes[0] = 0.0
    slopes = np.maximum(model.coef_[0, -1] + slopes, LEAST_SLOPE)
    return affine_map(float(model.intercept_[0]) + offsets - center, slopes, center)
