"""Empirical-Bayes splines: what an anchor, a line, leaves of a field value's curve.

spline_z(logit) = Σ_j hat_j(logit - m_z) · w_{z,j}, with m_z the field value's mean logit, linear
hat functions on knots shared by all, constant beyond the outer ones, and w_z ~ N(μ, Σ) with μ and Σ
estimated from all field values. Σ is what other field values teach: which shapes occur, and how
large they are, so that a value with few responses departs from its line only as far as its evidence
and theirs allow. A spline term has no line of its own: level and slope are the anchor's. EM around
Newton's modes, as for EB-Platt; with few values Σ is held near a smooth covariance
(inverse-Wishart).
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

KNOTS = 16  # knots of the hat functions
TYPICAL_SPREAD = 0.05  # variance of a weight before any evidence
TYPICAL_REACH = 1.0  # logits over which it changes
TRUSTED_VALUES = 30.0  # field values that the smooth covariance counts for
ROUNDS = 8


@dataclass(frozen=True)
class Splines:
    """A spline term for every field value, to be added to an anchored logit.

    Attributes:
        origin: float64 [V], m_z.
        knots: float64 [J], strictly ascending, relative to m_z.
        heights: float64 [V, J], w_z.
    """

    origin: np.ndarray
    knots: np.ndarray
    heights: np.ndarray

    def __call__(self, uncalibrated_logit: np.ndarray, field_value_id: np.ndarray) -> np.ndarray:
        """The spline term, float64 [n], at logits [n] of field value ids [n]."""
        left, share = _place(uncalibrated_logit - self.origin[field_value_id], self.knots)
        start, end = (self.heights[field_value_id, left + side] for side in (0, 1))
        return start + share * (end - start)


def _place(distance: np.ndarray, knots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Index of the knot at the left and share of the way to the next, within the outer knots."""
    left = np.clip(np.searchsorted(knots, distance, side="right") - 1, 0, len(knots) - 2)
    return left, np.clip((distance - knots[left]) / (knots[left + 1] - knots[left]), 0.0, 1.0)


def _hats(distance: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Values [L, C, J] of the hat functions at distances [L, C]."""
    left, share = _place(distance, knots)
    hats = np.zeros((*distance.shape, len(knots)))
    np.put_along_axis(hats, left[..., None], 1.0 - share[..., None], axis=2)
    np.put_along_axis(hats, left[..., None] + 1, share[..., None], axis=2)
    return hats


def _shared_knots(
    distance: np.ndarray, impressions: np.ndarray, anchored: np.ndarray
) -> np.ndarray:
    """Knots at equal shares, half by impressions and half by expected responses, kept apart."""
    expected = impressions * expit(anchored)
    weight = (impressions / impressions.sum() + expected / expected.sum()).ravel() / 2
    order = np.argsort(distance, axis=None, kind="stable")
    middle = np.cumsum(weight[order]) - weight[order] / 2
    knots = np.interp((np.arange(KNOTS) + 0.5) / KNOTS, middle, distance.ravel()[order])
    kept = [knots[0]]
    for knot in knots[1:]:
        if knot > kept[-1] + 1e-3:
            kept.append(knot)
    return np.array(kept if len(kept) > 1 else [kept[0], kept[0] + 1.0])


def _smooth(knots: np.ndarray) -> np.ndarray:
    distance = (knots[:, None] - knots) / TYPICAL_REACH
    return TYPICAL_SPREAD * (np.exp(-0.5 * distance**2) + 0.02 * np.eye(len(knots)))


def fit_splines(
    impressions: np.ndarray, responses: np.ndarray, anchored: np.ndarray, logit: np.ndarray
) -> Splines:
    """The spline terms that an anchored logit leaves.

    Args:
        impressions: float64 [V, C] of the cells of each field value, 0 where there is no cell.
        responses: float64 [V, C].
        anchored: float64 [V, C], anchored logit of the cells.
        logit: float64 [V, C], mean uncalibrated logit of the cells.
    """
    total = impressions.sum(axis=1)
    observed = np.flatnonzero(total > 0)
    origin = np.zeros(len(logit))
    origin[observed] = (impressions * logit).sum(axis=1)[observed] / total[observed]
    distance = (logit - origin[:, None])[observed]
    knots = _shared_knots(distance, impressions[observed], anchored[observed])
    hats = _hats(distance, knots)
    mean, modes = _posterior(
        hats, impressions[observed], responses[observed], anchored[observed], _smooth(knots)
    )
    heights = np.tile(mean, (len(logit), 1))
    heights[observed] = modes
    heights[0] = 0.0  # the row of unseen values keeps its line
    level, slope = _line(
        impressions, anchored, logit - origin[:, None], Splines(origin, knots, heights)
    )
    return Splines(origin, knots, heights - level[:, None] - slope[:, None] * knots)


def _line(
    impressions: np.ndarray, anchored: np.ndarray, distance: np.ndarray, splines: Splines
) -> tuple[np.ndarray, np.ndarray]:
    """Level and slope [V] of the line through each field value's spline term.

    Least squares, a cell [V, C] weighing as much as it says of a logit. The line is the anchor's:
    what a spline would have of it is the error of the anchor on the days that it was fitted on.
    """
    ids = np.repeat(np.arange(len(distance)), distance.shape[1])
    at = (distance + splines.origin[:, None]).ravel()
    term = splines(at, ids).reshape(distance.shape)
    probability = expit(anchored + term)
    weight = impressions * probability * (1.0 - probability)
    w, x, xx = ((weight * distance**k).sum(axis=1) for k in range(3))
    t, xt = (weight * term).sum(axis=1), (weight * distance * term).sum(axis=1)
    spread = w * xx - x**2
    wide = spread > 1e-9 * w * xx  # else all cells lie at one logit, and there is a level alone
    divisor = np.where(wide, spread, 1.0)
    level = np.where(wide, (xx * t - x * xt) / divisor, t / np.where(w > 0, w, 1.0))
    return level, np.where(wide, (w * xt - x * t) / divisor, 0.0)


def _posterior(
    hats: np.ndarray,
    impressions: np.ndarray,
    responses: np.ndarray,
    anchored: np.ndarray,
    smooth: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean [J] of the weights over field values and the mode [L, J] of each."""
    n_values, n_knots = len(hats), hats.shape[2]
    mean, covariance = np.zeros(n_knots), smooth
    modes = np.zeros((n_values, n_knots))
    for turn in range(ROUNDS):
        precision = np.linalg.inv(covariance)
        for _ in range(2 if turn else 8):
            logit = anchored + np.einsum("zcj,zj->zc", hats, modes)
            probability = expit(logit)
            expected = impressions * probability
            weighted = hats * (expected * (1.0 - probability))[..., None]
            information = np.matmul(weighted.transpose(0, 2, 1), hats) + precision
            gradient = (
                np.einsum("zcj,zc->zj", hats, responses - expected) - (modes - mean) @ precision
            )
            step = np.linalg.solve(information, gradient[..., None])[..., 0]
            modes = modes + np.clip(step, -1.0, 1.0)
            if np.abs(step).max() < 1e-3:
                break
        mean = modes.sum(axis=0) / (n_values + 1.0)  # one value of zero weights
        away = modes - mean
        scatter = np.einsum("zi,zj->ij", away, away) + np.linalg.inv(information).sum(axis=0)
        covariance = (scatter + TRUSTED_VALUES * smooth) / (n_values + TRUSTED_VALUES)
    return mean, modes
