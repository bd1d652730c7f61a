"""The anchor: empirical-Bayes Platt scaling, an offset and a slope for every field value.

calibrated_logit = c + a_z + b_z · (uncalibrated_logit - c), with c the mean logit and b_z > 0.

(a_z, ln b_z) has a normal prior whose mean and covariance are estimated from all field values, so a
value with many responses follows its own and one with few the others. The prior is found by EM
(Dempster, Laird & Rubin 1977) around Newton's modes, with the posterior taken as normal at its mode
(Laplace; Breslow & Clayton 1993).
"""

from dataclasses import dataclass

import numpy as np

from pipeline.calibration.piecewise import PiecewiseLinearMap, affine_map
from pipeline.errors import NotEnoughDataError

# What is believed of a log before it is seen, worth one field value: near the base model's logit.
VAGUE_MEAN = np.zeros(2)
VAGUE_PRECISION = np.diag([4.0**-2, 0.5**-2])
# Spread of (a, ln b) among field values that stands in while they are few (inverse-Wishart prior).
TYPICAL_COVARIANCE = np.diag([0.5**2, 0.2**2])
TRUSTED_VALUES = 30
FOLDS = 5


@dataclass(frozen=True)
class Anchor:
    """An offset and a slope on the centred logit for every field value.

    Attributes:
        center: c, the impression-weighted mean logit of the calibration rows.
        offsets: float64 [V], a_z; row 0 and values without rows carry the unseen value's.
        slopes: float64 [V], b_z > 0.
        seen: bool [V], the values that had impressions of their own.
        prior_mean: float64 [2], mean of (a, ln b) over field values.
        prior_covariance: float64 [2, 2].
    """

    center: float
    offsets: np.ndarray
    slopes: np.ndarray
    seen: np.ndarray
    prior_mean: np.ndarray
    prior_covariance: np.ndarray

    def __call__(self, uncalibrated_logit: np.ndarray, field_value_id: np.ndarray) -> np.ndarray:
        """The anchored logit, float64 [n], of logits [n] at field value ids [n] in [0, V)."""
        centred = np.asarray(uncalibrated_logit, dtype=np.float64) - self.center
        return self.center + self.offsets[field_value_id] + self.slopes[field_value_id] * centred

    def as_map(self) -> PiecewiseLinearMap:
        """The same function as a serving map with one knot per field value."""
        return affine_map(self.offsets, self.slopes, self.center)


@dataclass(frozen=True)
class _Evidence:
    """Rows that stand for impressions, sorted by group; every group has at least one row."""

    groups: np.ndarray  # int64 [U], ascending
    starts: np.ndarray  # int64 [U], first row of each group
    sizes: np.ndarray  # int64 [U]
    center: float
    centred: np.ndarray  # float64 [n], logit - center
    impressions: np.ndarray  # float64 [n]
    responses: np.ndarray  # float64 [n]

    def logit(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The logit of each row under (a, ln b) of its group, and its derivative by ln b."""
        lever = np.repeat(np.exp(theta[:, 1]), self.sizes) * self.centred
        return self.center + np.repeat(theta[:, 0], self.sizes) + lever, lever

    def sums(self, *columns: np.ndarray) -> np.ndarray:
        """Sums over the rows of each group, float64 [columns, U]."""
        return np.add.reduceat(np.stack(columns), self.starts, axis=1)


@dataclass(frozen=True)
class _Curvature:
    """Binomial log-loss of each group at some (a, ln b), its gradient and Fisher information."""

    loss: np.ndarray  # float64 [U]
    gradient: np.ndarray  # float64 [U, 2]
    information: np.ndarray  # float64 [U, 2, 2]

    def where(self, better: np.ndarray, other: "_Curvature") -> "_Curvature":
        return _Curvature(
            np.where(better, self.loss, other.loss),
            np.where(better[:, None], self.gradient, other.gradient),
            np.where(better[:, None, None], self.information, other.information),
        )


def _evidence(
    group: np.ndarray,
    centred: np.ndarray,
    impressions: np.ndarray,
    responses: np.ndarray,
    center: float,
) -> _Evidence:
    order = np.argsort(group, kind="stable")
    groups, starts, sizes = np.unique(group[order], return_index=True, return_counts=True)
    columns = (column[order] for column in (centred, impressions, responses))
    return _Evidence(groups, starts, sizes, center, *columns)


def _curvature(evidence: _Evidence, theta: np.ndarray) -> _Curvature:
    logit, lever = evidence.logit(theta)
    odds = np.exp(-np.abs(logit))
    probability = np.where(logit >= 0, 1.0, odds) / (1.0 + odds)
    expected = evidence.impressions * probability
    loss = (
        evidence.impressions * (np.maximum(logit, 0) + np.log1p(odds)) - evidence.responses * logit
    )
    residual, variance = expected - evidence.responses, expected * (1.0 - probability)
    loss, *gradient, aa, ab, bb = evidence.sums(
        loss, residual, residual * lever, variance, variance * lever, variance * lever**2
    )
    return _Curvature(loss, np.stack(gradient, 1), np.stack([aa, ab, ab, bb], 1).reshape(-1, 2, 2))


def _inverse(matrices: np.ndarray) -> np.ndarray:
    """Inverses of symmetric positive definite matrices [..., 2, 2]."""
    a, b, d = matrices[..., 0, 0], matrices[..., 0, 1], matrices[..., 1, 1]
    adjugate = np.stack([d, -b, -b, a], axis=-1).reshape(matrices.shape)
    return adjugate / (a * d - b * b)[..., None, None]


def _apply(matrices: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    return np.einsum("...ij,...j->...i", matrices, vectors)


@dataclass(frozen=True)
class _Prior:
    mean: np.ndarray  # float64 [2] or [U, 2]
    precision: np.ndarray  # float64 [2, 2]

    def loss(self, theta: np.ndarray) -> np.ndarray:
        deviation = theta - self.mean
        return 0.5 * (deviation * (deviation @ self.precision)).sum(axis=1)

    def step(self, theta: np.ndarray, curvature: _Curvature) -> tuple[np.ndarray, np.ndarray]:
        """Newton's step from theta [U, 2] and the posterior covariance there [U, 2, 2]."""
        covariance = _inverse(curvature.information + self.precision)
        gradient = curvature.gradient + (theta - self.mean) @ self.precision
        return -_apply(covariance, gradient), covariance


def _modes(
    evidence: _Evidence, prior: _Prior, theta: np.ndarray, curvature: _Curvature
) -> tuple[np.ndarray, _Curvature]:
    """Posterior modes of (a, ln b), all groups at once: Newton, halved where it overshoots."""
    for _ in range(25):
        step, _ = prior.step(theta, curvature)
        objective = curvature.loss + prior.loss(theta)
        scale = np.ones(len(theta))
        for _ in range(10):
            trial = theta + scale[:, None] * step
            curvature_there = _curvature(evidence, trial)
            better = curvature_there.loss + prior.loss(trial) <= objective + 1e-9 * np.abs(
                objective
            )
            if better.all():
                break
            scale[~better] /= 2
        theta = np.where(better[:, None], trial, theta)
        curvature = curvature_there.where(better, curvature)
        if np.abs(step).max() < 1e-4:
            break
    return theta, curvature


def _estimate(prior: _Prior, theta: np.ndarray, curvature: _Curvature) -> _Prior:
    """The prior under which the values are likeliest, each taken as normal around its mode."""
    n = len(theta)
    missing = max(TRUSTED_VALUES - n, 1)
    mean, precision = prior.mean, prior.precision
    for _ in range(50):
        step, covariance = _Prior(mean, precision).step(theta, curvature)
        at = theta + step
        weight = n * precision + VAGUE_PRECISION
        mean = _inverse(weight) @ (precision @ at.sum(axis=0) + VAGUE_PRECISION @ VAGUE_MEAN)
        deviation = at - mean
        scatter = deviation.T @ deviation + covariance.sum(axis=0) + missing * TYPICAL_COVARIANCE
        precision = _inverse(scatter / (n + missing))
    return _Prior(mean, precision)


def _posterior(evidence: _Evidence) -> tuple[_Prior, np.ndarray]:
    """The estimated prior and the modes [U, 2] under it."""
    prior = _Prior(VAGUE_MEAN, _inverse(TYPICAL_COVARIANCE))
    theta = np.zeros((len(evidence.groups), 2))
    curvature = _curvature(evidence, theta)
    for _ in range(20):
        theta, curvature = _modes(evidence, prior, theta, curvature)
        previous, prior = prior, _estimate(prior, theta, curvature)
        moved = np.abs(_inverse(prior.precision) - _inverse(previous.precision)).max()
        if moved < 1e-3 and np.abs(prior.mean - previous.mean).max() < 1e-3:
            break
    return prior, _modes(evidence, prior, theta, curvature)[0]


def _unseen(evidence: _Evidence, prior: _Prior, theta: np.ndarray) -> np.ndarray:
    """(a, ln b) of a field value that was never seen: a Platt map fitted on held-out field values.

    The prior mean is the logit of a typical value; the mean *rate* of values is higher, because
    rates spread upwards. So each fold of values gets the prior mean of the others, and one Platt
    map is fitted on all these held-out logits. Rows of one value err together: a value with E
    expected responses counts as E / (1 + E s²) of them, s² the relative variance of rates.
    """
    n = len(evidence.groups)
    fold = np.arange(n) % min(FOLDS, n)
    totals = np.stack([theta[fold == k].sum(axis=0) for k in range(fold.max() + 1)])
    others = n - np.bincount(fold)
    held_out = (theta.sum(axis=0) - totals) / np.maximum(others, 1)[:, None]
    logit, _ = evidence.logit(held_out[fold])
    spread = np.expm1(np.minimum(_inverse(prior.precision)[0, 0], 5.0))
    (expected,) = evidence.sums(evidence.impressions / (1.0 + np.exp(-logit)))
    weight = np.repeat(1.0 / (1.0 + spread * expected), evidence.sizes)
    pooled = _Evidence(
        np.zeros(1, int), np.zeros(1, int), np.array([len(logit)]), evidence.center,
        logit - evidence.center, evidence.impressions * weight, evidence.responses * weight,
    )  # fmt: skip
    start = np.zeros((1, 2))
    vague = _Prior(VAGUE_MEAN, VAGUE_PRECISION)
    platt, _ = _modes(pooled, vague, start, _curvature(pooled, start))
    offset, log_slope = platt[0]
    mean = prior.mean if n > 1 else np.zeros(2)
    return np.array([offset + np.exp(log_slope) * mean[0], log_slope + mean[1]])


def fit_anchor(
    field_value_id: np.ndarray,
    logit: np.ndarray,
    impressions: np.ndarray,
    responses: np.ndarray,
    n_field_values: int,
    *,
    center: float | None = None,
) -> Anchor:
    """The anchor of rows or grid cells: empirical-Bayes estimates of all (a_z, b_z).

    A cell of a fine grid at its mean logit stands for its rows; the cost grows with the number of
    cells alone. Inputs are left as they were.

    Args:
        field_value_id: int [n] in [0, n_field_values); 0 = unseen or null. Rows of id 0 take part
            as one value among the others, but the map of id 0 is the unseen value's.
        logit: [n], uncalibrated log-odds (of a cell: the mean over its rows).
        impressions: float or int [n], >= 0; day weights may make them fractional.
        responses: float or int [n], 0 <= responses <= impressions.
        n_field_values: V.
        center: c; None takes the impression-weighted mean logit.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    rows = np.flatnonzero(np.asarray(impressions) > 0)
    if not len(rows):
        raise NotEnoughDataError(
            "the anchor needs calibration rows with impressions, there are none"
        )
    group, logit, impressions, responses = (
        np.asarray(column)[rows].astype(dtype)
        for column, dtype in (
            (field_value_id, np.int64), (logit, float), (impressions, float), (responses, float)
        )
    )  # fmt: skip
    if center is None:
        center = float(np.average(logit, weights=impressions))
    evidence = _evidence(group, logit - center, impressions, responses, center)
    prior, theta = _posterior(evidence)
    everywhere = np.tile(_unseen(evidence, prior, theta), (n_field_values, 1))
    seen = np.zeros(n_field_values, dtype=bool)
    seen[evidence.groups] = True
    seen[0] = False
    everywhere[seen] = theta[evidence.groups > 0]
    return Anchor(
        center,
        everywhere[:, 0],
        np.exp(everywhere[:, 1]),
        seen,
        prior.mean,
        _inverse(prior.precision),
    )
