"""The drifting anchor: empirical-Bayes Platt scaling whose offsets move from day to day.

calibrated_logit = c + θ_{z,t} + b_z · (uncalibrated_logit - c) on day t, with

    θ_{z,t} = a_z + u_{z,t} + w_{z,t} + g_t

a_z the field value's lasting offset, u_z mean-reverting movements (Ornstein-Uhlenbeck with the time
constants TIME_CONSTANTS), w_z noise of single days (it widens what a day can prove), and g what all
field values share on a day. (a_z, ln b_z) is normal around a line in the field value's mean logit
and log impressions. All variances are estimated from all field values (`states`). What is served
is the forecast over the next `horizon_days` (`forecast`). A value's half-life of old days follows
from its evidence: much data on the last days outweighs the old ones, little does not.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.calibration.prior.anchor import Anchor
from pipeline.calibration.prior.drift_kernels import movements
from pipeline.calibration.prior.forecast import forecast_offsets
from pipeline.calibration.prior.state_space import Observations, fit_states, traits_of

LOGIT_GROUPS = 32  # groups of neighbouring cells kept apart within a value and day
MAX_PERIODS = 32  # days are merged until no more remain, which bounds the cost


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


def observe(
    field_value_id: np.ndarray,
    logit: np.ndarray,
    impressions: np.ndarray,
    responses: np.ndarray,
    day: np.ndarray,
    *,
    center: float,
) -> tuple[Observations, np.ndarray, int]:
    """Cells grouped by value, period and logit; the live ids; days per period."""
    first, n_days = int(day.min()), int(day.max() - day.min()) + 1
    days_per_period = -(-n_days // MAX_PERIODS)
    period = (day - first) // days_per_period
    live, row = np.unique(field_value_id, return_inverse=True)
    shape = (len(live), int(period.max()) + 1)
    rank = _rank_within(row, logit, impressions)
    key = ((row * shape[1]) + period) * LOGIT_GROUPS + rank
    keys, place = np.unique(key, return_inverse=True)
    probability = impressions / (1.0 + np.exp(-logit))
    n, y, p = (np.bincount(place, amount) for amount in (impressions, responses, probability))
    centred = np.log(p / (n - p)) - center
    place_row, place_period = np.divmod(keys // LOGIT_GROUPS, shape[1])
    return (
        Observations(place_row, place_period, centred, n, y, center, shape),
        live,
        days_per_period,
    )


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
    field_value_id: np.ndarray,
    logit: np.ndarray,
    impressions: np.ndarray,
    responses: np.ndarray,
    day: np.ndarray,
    *,
    still: Anchor,
    horizon_days: int,
) -> DriftingAnchor:
    """The forecast offsets and slopes of all field values.

    Args:
        field_value_id: int [n] of grid cells or rows in [0, V).
        logit: float64 [n], mean uncalibrated logit.
        impressions: float64 [n], >= 0.
        responses: float64 [n].
        day: int [n].
        still: the anchor without movement, fitted on the same cells: it gives the center and the
            map of field values that were never seen.
        horizon_days: over how many days after the last one the forecast is averaged.
    """
    some = impressions > 0
    observed, live, days_per_period = observe(
        field_value_id[some],
        logit[some],
        impressions[some],
        responses[some],
        day[some],
        center=still.center,
    )
    n_periods = observed.shape[1]
    moves = movements(n_periods, days_per_period, horizon_days)
    prior, posterior = fit_states(observed, moves, traits_of(observed))
    lasting = (traits_of(observed) @ prior.coefficients)[:, 0]
    forecast = forecast_offsets(observed, moves, prior, posterior, lasting)
    first_day = int(day[some].min())
    return _served(
        still, live, forecast, posterior.modes, first_day=first_day, days_per_period=days_per_period
    )


def _served(
    still: Anchor,
    live: np.ndarray,
    forecast: np.ndarray,
    modes: np.ndarray,
    *,
    first_day: int,
    days_per_period: int,
) -> DriftingAnchor:
    """The forecasts put into the still anchor's rows, which keep the map of unseen values."""
    offsets, slopes = still.offsets.copy(), still.slopes.copy()
    past = np.repeat(offsets[:, None], modes.shape[1] - 1, axis=1)
    own = live > 0
    offsets[live[own]], slopes[live[own]] = forecast[own], np.exp(modes[own, -1])
    past[live[own]] = modes[own, :-1]
    anchor = Anchor(
        still.center, offsets, slopes, still.seen, still.prior_mean, still.prior_covariance
    )
    return DriftingAnchor(anchor, past, first_day, days_per_period)
