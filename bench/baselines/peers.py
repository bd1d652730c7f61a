"""Baselines that are measured here alone: histogram binning, beta and gamma calibration, MCGrad."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, log_expit
from scipy.special import logit as log_odds

from bench.baselines import CalibrationMap
from bench.baselines.binned import BINS
from bench.baselines.global_maps import fit_logistic, platt
from bench.baselines.rows import global_bins
from pipeline.calibration.baselines import ascending_rates
from pipeline.calibration.paper.paper_rows import merged, response_rate
from pipeline.formats.maps import PiecewiseLinearMap
from pipeline.formats.scores import Scores

SHIFT = 1.0  # gamma's score of the least logit
ROUNDS = 20
COLUMNS = {
    "prediction_column_name": "probability",
    "categorical_feature_column_names": ["field_value"],
    "numerical_feature_column_names": [],
}
LEAST_LOGIT = -30.0  # and greatest: float64 probabilities keep logits in between apart
SEED = 1


def histogram(scores: Scores) -> PiecewiseLinearMap:
    """Steps at the rates of ten equal-frequency bins for all (Zadrozny & Elkan 2001).

    Each rate is smoothed by one impression at the mean rate. Bins whose rates decrease are pooled,
    so that a higher logit never gets a lower probability.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    rate = response_rate(scores)
    bins = global_bins(scores, BINS)
    levels = log_odds(ascending_rates(bins.responses + rate, bins.impressions + 1.0))
    inner = bins.lower_bound[1:].astype(np.float64)
    knots = np.append(inner, np.inf)  # one padding, so that a single bin has a column too
    anchors = np.concatenate([inner[:1] if len(inner) else [0.0], inner, [0.0]])
    rows = (knots, anchors, np.append(levels, levels[-1]), np.zeros(len(anchors)))
    return PiecewiseLinearMap(
        *(np.broadcast_to(row, (scores.n_field_values, len(row))) for row in rows)
    )


@dataclass(frozen=True)
class BetaMap:
    """calibrated_logit = a · ln p - b · ln(1 - p) + c with a, b ≥ 0 and p = expit(logit)."""

    slopes: np.ndarray  # a and b
    c: float

    def __call__(self, uncalibrated_logit: np.ndarray, field_value_id: np.ndarray) -> np.ndarray:
        """The calibrated logit, float64 [n]; the field value is not read."""
        logit = np.asarray(uncalibrated_logit, dtype=np.float64)
        return self.c + _log_probabilities(logit) @ self.slopes


def beta(scores: Scores) -> BetaMap:
    """Beta calibration with the likeliest a, b and c (Kull, Silva Filho & Flach 2017).

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    return BetaMap(
        *fit_logistic(_log_probabilities(scores.uncalibrated_logit.astype(np.float64)), scores)
    )


def _log_probabilities(logit: np.ndarray) -> np.ndarray:
    """(ln p, -ln(1 - p)) of the logits of p, float64 [n, 2]."""
    return np.column_stack([log_expit(logit), -log_expit(-logit)])


@dataclass(frozen=True)
class GammaMap:
    """calibrated_logit = c + slope at the least · first function + at the greatest · second."""

    least: float
    greatest: float
    slopes: np.ndarray
    c: float

    def __call__(self, uncalibrated_logit: np.ndarray, field_value_id: np.ndarray) -> np.ndarray:
        """The calibrated logit, float64 [n]; the field value is not read."""
        logit = np.asarray(uncalibrated_logit, dtype=np.float64)
        return self.c + _gamma_functions(logit, self.least, self.greatest) @ self.slopes


def gamma(scores: Scores) -> GammaMap:
    """Gamma calibration, the likeliest map whose slope is nowhere negative (Kweon et al. 2022).

    Scores of responses and of the others are taken as Gamma distributed, so that
    calibrated_logit = a · ln s + b · s + c with s = logit - least logit + 1. The slope a/s + b is
    kept ≥ 0 between the least and the greatest logit; beyond them the map goes on as a line.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    rows = scores.take(scores.impressions > 0)
    logit = rows.uncalibrated_logit.astype(np.float64)
    ends = (float(logit.min()), float(logit.max())) if len(rows) else (0.0, 0.0)
    return GammaMap(*ends, *fit_logistic(_gamma_functions(logit, *ends), rows))


def _gamma_functions(logit: np.ndarray, least: float, greatest: float) -> np.ndarray:
    """Functions [n, 2] that span ln s and s; the first has slope 1 at the least logit and 0 at the
    greatest, the second 0 and 1, so that their coefficients are the map's slopes at both ends.
    """
    low, high = SHIFT, SHIFT + greatest - least
    s = np.clip(logit - least + SHIFT, low, high)
    beyond = logit - least + SHIFT - s  # how far outside: < 0 left, > 0 right
    first = (np.log(s) - s / high) / (1 / low - 1 / high) if high > low else s
    return np.column_stack([first + np.minimum(beyond, 0), s - first + np.maximum(beyond, 0)])


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
    """MCGrad, gradient-boosted multicalibration (Tax et al. 2026), where its package is installed.

    Boosted trees read the logit and the field value and correct the logit round by round. Trees are
    held to be monotone in the logit. Twenty rounds, no early stopping: the package's defaults take
    minutes on a million rows. It refuses rows of one outcome; they get Platt's map.

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


Fit = Callable[[Scores], CalibrationMap]
FITS: dict[str, Fit] = {"histogram": histogram, "beta": beta, "gamma": gamma, "mcgrad": mcgrad}
