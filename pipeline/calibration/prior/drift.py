"""The drifting anchor: empirical-Bayes Platt scaling whose offsets move from day to day.

calibrated_logit = c + θ_{z,t} + b_z · (uncalibrated_logit - c) on day t, with

    θ_{z,t} = a_z + u_{z,t} + w_{z,t} + g_t

a_z the field value's lasting offset, u_z mean-reverting movements (Ornstein-Uhlenbeck with the time
constants TIME_CONSTANTS), w_z noise of single days (it widens what a day can prove), and g what all
field values share on a day. (a_z, ln b_z) is normal around a line in the field value's mean logit
and log impressions. All variances are estimated from all field values (`state_space`). What is
served is the forecast over the next `horizon_days`. A value's half-life of old days follows from
its evidence: much data on the last days outweighs the old ones, little does not.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit
from scipy.special import logit as log_odds

from pipeline.calibration.folds import Counts
from pipeline.calibration.prior.anchor import Anchor
from pipeline.calibration.prior.state_space import (
    DriftKernels,
    Observations,
    Posterior,
    StatePrior,
    drift_kernels,
    fit_states,
    traits_of,
)
from pipeline.calibration.statistics.grid import Grid

LOGIT_GROUPS = 32  # groups of neighbouring cells kept apart within a value and day
MAX_PERIODS = 32  # days are merged until no more remain, which bounds the cost
FARTHEST = 1.0  # logits by which spread may move a forecast; beyond, the expansion says nothing


@dataclass(frozen=True)
class DriftingAnchor:
    """The forecast as an anchor, and the fitted offset of every past period.

    Attributes:
        anchor: offsets and slopes to serve from now on.
        offsets: float64 [V, T], θ of each period; values without history carry the forecast.
        first_day: day that starts period 0.
        days_per_period: days merged into a period.
    """

    anchor: Anchor
    offsets: np.ndarray
    first_day: int
    days_per_period: int

    def fitted(self, logit: np.ndarray, field_value_id: np.ndarray, day: np.ndarray) -> np.ndarray:
        """The calibrated logit that history suggests for its own days (later ones: the last's)."""
        period = (day - self.first_day) // self.days_per_period
        period = np.clip(period, 0, self.offsets.shape[1] - 1)
        centred = logit - self.anchor.center
        level = self.offsets[field_value_id, period]
        return self.anchor.center + level + self.anchor.slopes[field_value_id] * centred


def _observe(
    row: np.ndarray, period: np.ndarray, columns: tuple[np.ndarray, ...], center: float
) -> Observations:
    """Cells (logit, impressions, responses) grouped by field value, period and logit."""
    logit, impressions, responses = columns
    shape = (int(row.max()) + 1, int(period.max()) + 1)
    rank = _rank_within(row, logit, impressions)
    key = ((row * shape[1]) + period) * LOGIT_GROUPS + rank
    keys, place = np.unique(key, return_inverse=True)
    expected = impressions * expit(logit)
    n, y, e = (np.bincount(place, amount) for amount in (impressions, responses, expected))
    place_row, place_period = np.divmod(keys // LOGIT_GROUPS, shape[1])
    return Observations(place_row, place_period, log_odds(e / n) - center, n, y, center, shape)


def _rank_within(row: np.ndarray, logit: np.ndarray, impressions: np.ndarray) -> np.ndarray:
    """Group of each cell, < LOGIT_GROUPS, by its quantile among its value's impressions."""
    span = logit.max() - logit.min() + 1.0
    order = np.argsort(row * span + logit, kind="stable")  # quick, as cells are nearly in order
    total = np.bincount(row, impressions)
    before = np.cumsum(impressions[order]) - impressions[order] / 2
    start = np.cumsum(total) - total
    share = np.empty(len(row))
    share[order] = (before - start[row[order]]) / total[row[order]]
    return np.clip((share * LOGIT_GROUPS).astype(np.int64), 0, LOGIT_GROUPS - 1)


def fit_drifting_anchor(
    grid: Grid, history: Counts, static: Anchor, horizon_days: int
) -> DriftingAnchor:
    """The forecast offsets and slopes of all field values, and the fitted offsets of the past.

    Args:
        grid: the cells.
        history: counts of each cell row.
        static: the anchor without movement, fitted on the same counts: it gives the center, and the
            map of field values that were never seen.
        horizon_days: over how many days after the last one the forecast is averaged.
    """
    some = history.impressions > 0
    day, first_day = grid.cells.day[some], int(grid.cells.day[some].min())
    days_per_period = -(-(int(day.max()) - first_day + 1) // MAX_PERIODS)
    ids, row = np.unique(grid.cells.field_value_id[some], return_inverse=True)
    columns = grid.logit[some], history.impressions[some], history.responses[some]
    observed = _observe(row, (day - first_day) // days_per_period, columns, static.center)
    kernels = drift_kernels(observed.shape[1], days_per_period, horizon_days)
    prior, posterior = fit_states(observed, kernels, traits_of(observed))
    offsets, slopes = static.offsets.copy(), static.slopes.copy()
    past = np.repeat(offsets[:, None], observed.shape[1], axis=1)
    own = ids > 0
    offsets[ids[own]] = forecast_offsets(observed, kernels, prior, posterior)[own]
    slopes[ids[own]] = np.exp(posterior.modes[own, -1])
    past[ids[own]] = posterior.modes[own, :-1]
    anchor = replace(static, offsets=offsets, slopes=slopes)
    return DriftingAnchor(anchor, past, first_day, days_per_period)


def forecast_offsets(
    observed: Observations,
    kernels: DriftKernels,
    prior: StatePrior,
    posterior: Posterior,
) -> np.ndarray:
    """Offsets [L] to serve, in the mean over the days ahead: probabilities are right in the mean.

    A mean logit gives too low a mean probability (Jensen: the logistic function is convex where
    responses are rare), and a posterior with few responses is skew. So what is served is neither
    the mode nor the mean of a future offset but

        m + v / 2 · (1 - 2p),  which is logit E[expit] to the second order,

    with m and v the predictive mean and variance of the field value's logit on a coming day: what
    its history leaves open, how far it may still move, noise of single days, and what all values
    share.

    Args:
        observed: the history.
        kernels: its movements, with those of the days ahead.
        prior: as estimated.
        posterior: of each field value.
    """
    ahead = np.einsum("j,jht->ht", prior.own.now, kernels.ahead) + prior.spread[0, 0]
    ahead = np.column_stack([ahead, np.full(len(ahead), prior.spread[0, 1])])
    weights = ahead @ np.linalg.inv(prior.covariance(kernels))
    moved = prior.spread[0, 0] + prior.own.now.sum() - (weights * ahead).sum(axis=1).mean()
    slope_effect, share = _slope_effects(observed, posterior.modes)
    shared, shared_variance = _shared_forecast(kernels, prior)
    variance = _left_open(posterior.covariance, weights, slope_effect) + moved + shared_variance
    shift = np.clip(variance / 2 * (1.0 - 2.0 * share), -FARTHEST, FARTHEST)
    lasting = (traits_of(observed) @ prior.coefficients)[:, 0]
    return lasting + shared + posterior.deviation @ weights.mean(axis=0) + shift


def _slope_effects(observed: Observations, modes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean derivative of a field value's logit by ln b, and its response rate, [L] each."""
    logit, slope_effect = observed.logit(modes)
    expected = observed.impressions * expit(logit)
    impressions, responses, effects = (
        np.bincount(observed.row, amount)
        for amount in (observed.impressions, expected, expected * slope_effect)
    )
    return effects / responses, responses / impressions


def _left_open(covariance: np.ndarray, weights: np.ndarray, slope_effect: np.ndarray) -> np.ndarray:
    """Variance [L] of the forecast logit because the past states are not known for sure.

    Args:
        covariance: float64 [L, T + 1, T + 1], of the states.
        weights: float64 [H, T + 1], of the states in the forecasts.
        slope_effect: float64 [L], what ln b adds to a field value's logit at its usual place.
    """
    of_offset = np.einsum("hi,zij,hj->z", weights, covariance, weights, optimize=True)
    with_slope = covariance[:, -1] @ weights.mean(axis=0)
    own = covariance[:, -1, -1] * slope_effect**2
    return of_offset / len(weights) + 2.0 * slope_effect * with_slope + own


def _shared_forecast(kernels: DriftKernels, prior: StatePrior) -> tuple[float, float]:
    """Mean and variance of the shared movement on a coming day."""
    ahead = np.einsum("j,jht->ht", prior.shared.now, kernels.ahead)
    weights = np.linalg.solve(kernels.mix(prior.shared.now), ahead.T).T
    left = prior.shared.now.sum() - (weights * ahead).sum(axis=1).mean()
    return float(weights.mean(axis=0) @ prior.common), float(left)
