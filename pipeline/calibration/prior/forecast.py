"""The forecast of a drifting offset: the one whose probabilities are right in the mean.

A mean logit gives too low a mean probability (Jensen: the logistic function bends upwards where
responses are rare), and a posterior with few responses is skew. So what is served is neither the
mode nor the mean of a future offset but

    m + v / 2 · (1 - 2p),  which is logit E[sigmoid] to the second order,

with m and v the predictive mean and variance of the field value's logit on a coming day: what its
history leaves open, how far it may still move, noise of single days, and what all values share.
"""

import numpy as np

from pipeline.calibration.prior.drift_kernels import Movements
from pipeline.calibration.prior.state_space import Observations, Posterior, Prior

FARTHEST = 1.0  # logits by which spread may move a forecast; beyond, the expansion says nothing


def forecast_offsets(
    observed: Observations,
    moves: Movements,
    prior: Prior,
    posterior: Posterior,
    lasting: np.ndarray,
) -> np.ndarray:
    """Offsets [L] to serve, in the mean over the days ahead.

    Args:
        observed: the history.
        moves: its movements, with those of the days ahead.
        prior: as estimated.
        posterior: of each field value.
        lasting: float64 [L], prior mean of the lasting offset.
    """
    ahead = np.einsum("j,jht->ht", prior.own.now, moves.ahead) + prior.spread[0, 0]
    ahead = np.column_stack([ahead, np.full(len(ahead), prior.spread[0, 1])])
    weights = ahead @ np.linalg.inv(prior.covariance(moves))
    moved = prior.spread[0, 0] + prior.own.now.sum() - (weights * ahead).sum(axis=1).mean()
    lever, share = _levers(observed, posterior.modes)
    shared, shared_variance = _shared(moves, prior)
    variance = _left_open(posterior.covariance, weights, lever) + moved + shared_variance
    bent = np.clip(variance / 2 * (1.0 - 2.0 * share), -FARTHEST, FARTHEST)
    return lasting + shared + posterior.deviation @ weights.mean(axis=0) + bent


def _levers(observed: Observations, modes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean derivative of a field value's logit by ln b, and its response rate, [L] each."""
    logit, lever = observed.logit(modes)
    expected = observed.impressions / (1.0 + np.exp(-logit))
    impressions, responses, levers = (
        np.bincount(observed.row, amount)
        for amount in (observed.impressions, expected, expected * lever)
    )
    return levers / responses, responses / impressions


def _left_open(covariance: np.ndarray, weights: np.ndarray, lever: np.ndarray) -> np.ndarray:
    """Variance [L] of the forecast logit because the past states are not known for sure.

    Args:
        covariance: float64 [L, T + 1, T + 1], of the states.
        weights: float64 [H, T + 1], of the states in the forecasts.
        lever: float64 [L], what ln b adds to a field value's logit at its usual place.
    """
    of_offset = np.einsum("hi,zij,hj->z", weights, covariance, weights, optimize=True)
    with_slope = covariance[:, -1] @ weights.mean(axis=0)
    own = covariance[:, -1, -1] * lever**2
    return of_offset / len(weights) + 2.0 * lever * with_slope + own


def _shared(moves: Movements, prior: Prior) -> tuple[float, float]:
    """Mean and variance of the shared movement on a coming day."""
    ahead = np.einsum("j,jht->ht", prior.shared.now, moves.ahead)
    weights = np.linalg.solve(moves.mix(prior.shared.now), ahead.T).T
    left = prior.shared.now.sum() - (weights * ahead).sum(axis=1).mean()
    return float(weights.mean(axis=0) @ prior.common), float(left)
