"""Empirical-Bayes Platt scaling: the anchor alone, all calibration days alike."""

from pipeline.calibration.baselines.counting import grouped
from pipeline.calibration.prior.anchor import fit_anchor
from pipeline.formats.maps import PiecewiseLinearMap
from pipeline.formats.scores import Scores

CELLS = 160  # of every field value's grid


def fit(scores: Scores) -> PiecewiseLinearMap:
    """The anchor of the rows' grid cells.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    cells = grouped(scores, CELLS)
    counts = (cells.impressions, cells.responses)
    return fit_anchor(
        cells.field_value_id, cells.uncalibrated_logit, *counts, scores.n_field_values
    ).as_map()
