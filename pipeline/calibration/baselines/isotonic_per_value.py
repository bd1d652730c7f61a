"""Isotonic regression of every field value's own rows."""

import numpy as np

from pipeline.calibration.baselines import isotonic
from pipeline.calibration.statistics.logits import sigmoid
from pipeline.formats.maps import PiecewiseLinearMap, from_knots
from pipeline.formats.scores import Scores


def fit(scores: Scores) -> PiecewiseLinearMap:
    """One curve for each value, smoothed towards the curve of all values; the unseen have that one.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    everything = isotonic.fit(scores)
    rows = scores.take(scores.impressions > 0)
    rows = rows.take(np.argsort(rows.field_value_id, kind="stable"))
    logit = rows.uncalibrated_logit.astype(np.float64)
    rate = sigmoid(everything(logit, rows.field_value_id))
    shared = everything.knots[0], everything.segment_values[0, 1:]
    curves = [shared] * scores.n_field_values
    values, starts = np.unique(rows.field_value_id, return_index=True)
    columns = (logit, rows.impressions, rows.responses, rate)
    for value, *own in zip(values, *(np.split(c, starts[1:]) for c in columns), strict=True):
        if value > 0:
            curves[value] = isotonic.isotonic_curve(*own)
    flat = np.zeros(scores.n_field_values)
    return from_knots([k for k, _ in curves], [v for _, v in curves], flat, flat)
