"""Lines that differ by group: a logistic regression whose (offset, slope) have a normal prior.

logit = c + a_g + b_g · (x - c). The prior's mean and covariance are estimated from all groups by EM
(Dempster, Laird & Rubin 1977) around Newton's modes, with each group's posterior taken as normal
at its mode (Laplace; Breslow & Clayton 1993).
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from pipeline.calibration.statistics.grid import bounded, log_loss_from_logits
from pipeline.core.errors import NotEnoughDataError

# What is believed of a log before it is seen: (a, b) near (0, 1), with little force.
VAGUE_MEAN = np.array([0.0, 1.0])
VAGUE_PRECISION = np.diag([4.0**-2, 0.5**-2])
# Inverse-Wishart prior of the covariance: this one counts as the values that are missing to
# TRUSTED_VALUES, and as three (the least that is proper for two dimensions) where none is missing.
TYPICAL_COVARIANCE = np.diag([0.5**2, 0.1**2])
TRUSTED_VALUES = 30
PROPER = 3
LONGEST_JUMP = 16.0  # in EM steps


@dataclass(frozen=True)
class GroupedRows:
    """Rows that stand for impressions, sorted by group; every group has at least one row.

    Attributes:
        groups: int64 [U], ascending.
        starts: int64 [U], first row of each group.
        sizes: int64 [U], rows of each group.
        center: c.
        centred: float64 [n], x - c.
        impressions: float64 [n], > 0.
        responses: float64 [n].
    """

    groups: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    center: float
    centred: np.ndarray
    impressions: np.ndarray
    responses: np.ndarray

    def logit(self, theta: np.ndarray) -> np.ndarray:
        """The logit [n] of each row under (a, b) [U, 2] of its group."""
        offset, slope = (np.repeat(column, self.sizes) for column in theta.T)
        return self.center + offset + slope * self.centred

    def sums(self, *columns: np.ndarray) -> list[np.ndarray]:
        """Sums of each column over the rows of each group, float64 [U]."""
        return [np.add.reduceat(column, self.starts) for column in columns]

    def take(self, picked: np.ndarray) -> "GroupedRows":
        """The groups that a boolean mask [U] picks."""
        row = np.repeat(picked, self.sizes)
        columns = (column[row] for column in (self.centred, self.impressions, self.responses))
        sizes = self.sizes[picked]
        return GroupedRows(
            self.groups[picked], np.cumsum(sizes) - sizes, sizes, self.center, *columns
        )


def group_rows(columns: tuple[np.ndarray, ...], center: float | None) -> GroupedRows:
    """Rows (group, x, impressions, responses) that have impressions, sorted by group.

    Args:
        columns: the four columns, [n] each.
        center: c; None takes the impression-weighted mean of x.

    Raises:
        NotEnoughDataError: no row has impressions.
    """
    kept = np.flatnonzero(np.asarray(columns[2]) > 0)
    if not len(kept):
        raise NotEnoughDataError(
            "a line needs rows with impressions, there are none; give it more calibration days"
        )
    group = np.asarray(columns[0])[kept]
    rows = kept[np.argsort(group, kind="stable")]
    logit, impressions, responses = (np.asarray(c)[rows].astype(np.float64) for c in columns[1:])
    logit = bounded(logit)
    groups, starts, sizes = np.unique(
        np.asarray(columns[0])[rows], return_index=True, return_counts=True
    )
    if center is None:
        center = float(np.average(logit, weights=impressions))
    return GroupedRows(groups, starts, sizes, center, logit - center, impressions, responses)


@dataclass(frozen=True)
class _Curvature:
    """Binomial log-loss of each group at some (a, b), its gradient and second derivatives."""

    loss: np.ndarray  # float64 [U]
    gradient: np.ndarray  # float64 [U, 2]
    information: np.ndarray  # float64 [U, 2, 2]


def _curvature(rows: GroupedRows, theta: np.ndarray) -> _Curvature:
    logit = rows.logit(theta)
    expected = rows.impressions * expit(logit)
    residual, variance = expected - rows.responses, expected * expit(-logit)
    x = rows.centred
    loss, *gradient, aa, ab, bb = rows.sums(
        log_loss_from_logits(logit, rows.responses, rows.impressions),
        *(residual, residual * x, variance, variance * x, variance * x * x),
    )
    information = np.stack([aa, ab, ab, bb], axis=1).reshape(-1, 2, 2)
    return _Curvature(loss, np.stack(gradient, axis=1), information)


def inverse(matrices: np.ndarray) -> np.ndarray:
    """Inverses of symmetric positive definite matrices [..., 2, 2]."""
    a, b, d = matrices[..., 0, 0], matrices[..., 0, 1], matrices[..., 1, 1]
    scale, inverses = 1.0 / (a * d - b * b), np.empty_like(matrices)
    inverses[..., 0, 0], inverses[..., 1, 1] = d * scale, a * scale
    inverses[..., 0, 1] = inverses[..., 1, 0] = -b * scale
    return inverses


@dataclass(frozen=True)
class SlopePrior:
    """The normal distribution of (a, b) over groups.

    Attributes:
        mean: float64 [2].
        precision: float64 [2, 2], inverse of the covariance.
    """

    mean: np.ndarray
    precision: np.ndarray

    @classmethod
    def of(cls, numbers: np.ndarray) -> "SlopePrior":
        """The prior whose `numbers` these are."""
        mean, (aa, bb, ab) = numbers[:2], numbers[2:]
        return cls(mean, inverse(np.array([[aa, ab], [ab, bb]])))

    def numbers(self) -> np.ndarray:
        """(mean, variances, covariance), float64 [5]."""
        covariance = inverse(self.precision)
        return np.array([*self.mean, *np.diag(covariance), covariance[0, 1]])

    def loss(self, theta: np.ndarray) -> np.ndarray:
        """Minus the log density [U] of (a, b) [U, 2], up to a constant."""
        deviation = theta - self.mean
        return 0.5 * (deviation * (deviation @ self.precision)).sum(axis=1)

    def step(self, theta: np.ndarray, curvature: _Curvature) -> tuple[np.ndarray, np.ndarray]:
        """Newton's step from (a, b) [U, 2], and the posterior covariance there [U, 2, 2]."""
        covariance = inverse(curvature.information + self.precision)
        gradient = curvature.gradient + (theta - self.mean) @ self.precision
        return -np.einsum("uij,uj->ui", covariance, gradient), covariance

    def holding(self, slope: float) -> "SlopePrior":
        """This prior, given that the slope is as named (to a relative 1e-6)."""
        hold = np.array([0.0, 1e6 * self.precision[1, 1]])
        precision = self.precision + np.diag(hold)
        return SlopePrior(
            inverse(precision) @ (self.precision @ self.mean + hold * slope), precision
        )


def modes(rows: GroupedRows, prior: SlopePrior, theta: np.ndarray) -> tuple[np.ndarray, _Curvature]:
    """Posterior modes of (a, b) [U, 2], all groups at once, and the curvature there.

    Newton's method from `theta` [U, 2]; a group's step is halved where it overshoots.
    """
    curvature = _curvature(rows, theta)
    for _ in range(30):
        step, _ = prior.step(theta, curvature)
        objective = curvature.loss + prior.loss(theta)
        while np.abs(step).max() > 1e-6:
            there = _curvature(rows, theta + step)
            worse = there.loss + prior.loss(theta + step) > objective + 1e-9 * np.abs(objective)
            if not worse.any():
                break
            step[worse] /= 2
        else:
            break
        theta, curvature = theta + step, there
        if np.abs(step).max() < 1e-4:
            break
    return theta, curvature


def _em_step(prior: SlopePrior, theta: np.ndarray, curvature: _Curvature) -> SlopePrior:
    """A likelier prior, each value taken as normal around its mode."""
    n = len(theta)
    missing = max(TRUSTED_VALUES - n, PROPER)
    step, covariance = prior.step(theta, curvature)
    at = theta + np.clip(step, -1.0, 1.0)  # the normal holds near the mode only
    weighted = prior.precision @ at.sum(axis=0) + VAGUE_PRECISION @ VAGUE_MEAN
    mean = inverse(n * prior.precision + VAGUE_PRECISION) @ weighted
    scatter = (at - mean).T @ (at - mean) + covariance.sum(axis=0)
    return SlopePrior(mean, inverse((scatter + missing * TYPICAL_COVARIANCE) / (n + missing)))


def _jump(start: np.ndarray, once: np.ndarray, twice: np.ndarray) -> SlopePrior | None:
    """Where two EM steps lead to if they go on (SQUAREM, Varadhan & Roland 2008), or None.

    No jump is made to what is no covariance or has variances far from those after the two steps.
    """
    first, second = once - start, twice - 2 * once + start
    steepness = max(float(np.linalg.norm(second)), 1e-12)
    length = min(float(np.linalg.norm(first)) / steepness, LONGEST_JUMP)
    there = start + 2 * length * first + length**2 * second
    ratio = there[2:4] / twice[2:4]
    sensible = ratio.min() > 0.1 and ratio.max() < 10 and there[2] * there[3] > there[4] ** 2
    return SlopePrior.of(there) if sensible else None


def _estimate(prior: SlopePrior, theta: np.ndarray, curvature: _Curvature) -> SlopePrior:
    """The likeliest prior: EM, extrapolated after every two steps."""
    for _ in range(30):
        once = _em_step(prior, theta, curvature)
        twice = _em_step(once, theta, curvature)
        ahead = _jump(prior.numbers(), once.numbers(), twice.numbers())
        prior = twice if ahead is None else _em_step(ahead, theta, curvature)
        if np.abs(twice.numbers() - once.numbers()).max() < 1e-5:
            break
    return prior


def posterior(rows: GroupedRows) -> tuple[SlopePrior, np.ndarray, np.ndarray]:
    """The estimated prior, the modes [U, 2] under it, and the covariances [U, 2, 2] there."""
    prior = SlopePrior(VAGUE_MEAN, inverse(TYPICAL_COVARIANCE))
    theta = np.tile(VAGUE_MEAN, (len(rows.groups), 1))
    for _ in range(20):
        theta, curvature = modes(rows, prior, theta)
        previous, prior = prior, _estimate(prior, theta, curvature)
        if np.abs(prior.numbers() - previous.numbers()).max() < 1e-3:
            break
    theta, curvature = modes(rows, prior, theta)
    return prior, theta, prior.step(theta, curvature)[1]
