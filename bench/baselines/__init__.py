"""The baselines behind one interface: scores of calibration rows → map(logit, field value id).

Every map is finite and does not decrease in the logit, also at logits and field values that the
calibration rows did not have.
"""

from importlib import import_module
from typing import Protocol

import numpy as np

from pipeline.formats.scores import Scores

# The module of each baseline, where it is the function of its name.
METHODS = {
    **dict.fromkeys(("identity", "platt", "temperature"), "global_maps"),
    **dict.fromkeys(("isotonic", "sir", "isotonic_per_value"), "binned"),
    "neucalib": "neural",
    **dict.fromkeys(("ratio_per_value", "eb_platt", "eb_platt_forward"), "per_value"),
    "logistic_interaction": "per_value",
}


class CalibrationMap(Protocol):
    """What a fitted baseline is; a PiecewiseLinearMap wherever the method allows one."""

    def __call__(self, uncalibrated_logit: np.ndarray, field_value_id: np.ndarray) -> np.ndarray:
        """The calibrated logit, float64 [n], of logits [n] at field value ids [n] in [0, V)."""
        ...


def fit(method: str, scores: Scores) -> CalibrationMap:
    """The map of one of METHODS, fitted on calibration rows; only that method's module is loaded.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    module = import_module(f"{__name__}.{METHODS[method]}")
    fitted: CalibrationMap = getattr(module, method)(scores)
    return fitted
