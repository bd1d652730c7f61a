"""MCGrad, gradient-boosted multicalibration (Tax et al. 2026), where its package is installed.

Boosted trees read the logit and the field value and correct the logit round by round. Trees are
held to be monotone in the logit. The package (`pip install mcgrad`) is no dependency.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.special import logit as log_odds

from pipeline.calibration.baselines import CalibrationMap
from pipeline.calibration.baselines.global_maps import platt
from pipeline.calibration.baselines.rows import merged
from pipeline.formats.scores import Scores

ROUNDS = 20
COLUMNS = {
    "prediction_column_name": "probability",
    "categorical_feature_column_names": ["field_value"],
    "numerical_feature_column_names": [],
}
LEAST_LOGIT = -30.0  # and greatest: float64 probabilities keep logits in between apart
SEED = 1


def _frame(logit: np.ndarray, field_value_id: np.ndarray) -> pd.DataFrame:
    inside = np.clip(logit.astype(np.float64), LEAST_LOGIT, -LEAST_LOGIT)
    return pd.DataFrame({"probability": expit(inside), "field_value": field_value_id.astype(str)})


@dataclass(frozen=True)
class McGradMap:
    """The fitted package's prediction as a logit; logits beyond ±30 count as ±30."""

    model: Any

    def __call__(self, uncalibrated_logit: np.ndarray, field_value_id: np.ndarray) -> np.ndarray:
        """The calibrated logit, float64 [n]."""
        frame = _frame(np.asarray(uncalibrated_logit), np.asarray(field_value_id))
        calibrated = log_odds(self.model.predict(frame, **COLUMNS))
        return np.clip(calibrated, LEAST_LOGIT, -LEAST_LOGIT)


def mcgrad(scores: Scores) -> CalibrationMap:
    """Twenty rounds, no early stopping: its defaults take minutes on a million rows.

    The package refuses rows of one outcome; they get Platt's map.

    Raises:
        ModuleNotFoundError: the package mcgrad is not installed.
        NotEnoughDataError: no row stands for an impression.
    """
    from mcgrad.methods import MCGrad

    if scores.responses.sum() in (0, scores.impressions.sum()):
        return platt(scores)
    scores = merged(replace(scores, day=np.zeros_like(scores.day)))
    counts = np.concatenate([scores.responses, scores.impressions - scores.responses])
    kept = np.flatnonzero(counts)
    row = kept % len(scores)
    frame = _frame(scores.uncalibrated_logit[row], scores.field_value_id[row])
    frame = frame.assign(label=kept < len(scores), weight=counts[kept].astype(np.float64))
    model = MCGrad(
        monotone_t=True, num_rounds=ROUNDS, early_stopping=False, random_state=SEED,
        lightgbm_params={"num_threads": 1},
    )  # fmt: skip
    model.fit(frame, label_column_name="label", weight_column_name="weight", **COLUMNS)
    return McGradMap(model)
