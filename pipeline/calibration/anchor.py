"""The anchor: empirical-Bayes Platt scaling, an offset and a slope for every field value.

calibrated_logit = c + a_z + b_z · (uncalibrated_logit - c), with c the mean logit and b_z > 0.

(a_z, b_z) has a normal prior whose mean and covariance are estimated from all field values, so a
value with many responses follows its own and one with few the others. The prior is found by EM
(Dempster, Laird & Rubin 1977) around Newton's modes, with the posterior taken as normal at its mode
(Laplace; Breslow & Clayton 1993).
"""

from dataclasses import dataclass

import numpy as np

from pipeline.calibration.piecewise import PiecewiseLinearMap, affine_map
from pipeline.errors import NotEnoughDataError

# What is believed of a log before it is seen: (a, b) near (0, 1), with little force.
VAGUE_MEAN = np.array([0.0, 1.0])
VAGUE_PRECISION = np.diag([4.0**-2, 0.5**-2])
# Inverse-Wishart prior of the covariance: this one counts as the values that are missing to
# TRUSTED_VALUES, and as three (the least that is proper for two dimensions) where none is missing.
TYPICAL_COVARIANCE = np.diag([0.5**2, 0.1**2])
TRUSTED_VALUES = 30
PROPER = 3
FOLDS = 5
LONGEST_JUMP = 16.0  # in EM steps


@dataclass(frozen=True)
class Anchor:
    """An offset and a slope on the centred logit for every field value.

    Attributes:
        center: c, the impression-weighted mean logit of the calibration rows.
        offsets: float64 [V], a_z; row 0 and values without impressions carry the unseen value's.
        slopes: float64 [V], b_z >= the least slope.
        seen: bool [V], the values that had impressions of their own.
        prior_mean: float64 [2], mean of (a, b) over field values.
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
    sizes: np.ndarray  # int64 [U], rows of each group
    center: float
    centred: np.ndarray  # float64 [n], logit - center
    impressions: np.ndarray  # float64 [n]
    responses: np.ndarray  # float64 [n]

    def logit(self, theta: np.ndarray) -> np.ndarray:
        """The logit [n] of each row under (a, b) [U, 2] of its group."""
        offset, slope = (np.repeat(column, self.sizes) for column in theta.T)
        return self.center + offset + slope * self.centred

    def sums(self, *columns: np.ndarray) -> list[np.ndarray]:
        """Sums of each column over the rows of each group, float64 [U]."""
        return [np.add.reduceat(column, self.starts) for column in columns]

    def take(self, picked: np.ndarray) -> "_Evidence":
        """The groups that a boolean mask [U] picks."""
        row = np.repeat(picked, self.sizes)
        columns = (column[row] for column in (self.centred, self.impressions, self.responses))
        sizes = self.sizes[picked]
        return _Evidence(
            self.groups[picked], np.cumsum(sizes) - sizes, sizes, self.center, *columns
        )


def _evidence(columns: tuple[np.ndarray, ...], center: float | None) -> _Evidence:
    """Rows (field value id, logit, impressions, responses) with impressions, sorted by value."""
    kept = np.flatnonzero(np.asarray(columns[2]) > 0)
    if not len(kept):
        raise NotEnoughDataError(
            "an anchor needs rows with impressions, there are none; give it more calibration days"
        )
    group = np.asarray(columns[0])[kept]
    rows = kept[np.argsort(group, kind="stable")]
    logit, impressions, responses = (np.asarray(c)[rows].astype(np.float64) for c in columns[1:])
    groups, starts, sizes = np.unique(
        np.asarray(columns[0])[rows], return_index=True, return_counts=True
    )
    if center is None:
        center = float(np.average(logit, weights=impressions))
    return _Evidence(groups, starts, sizes, center, logit - center, impressions, responses)


@dataclass(frozen=True)
class _Curvature:
    """Binomial log-loss of each group at some (a, b), its gradient and second derivatives."""

    loss: np.ndarray  # float64 [U]
    gradient: np.ndarray  # float64 [U, 2]
    information: np.ndarray  # float64 [U, 2, 2]


def _curvature(evidence: _Evidence, theta: np.ndarray) -> _Curvature:
    logit = evidence.logit(theta)
    odds = np.exp(-np.abs(logit))
    probability = np.where(logit >= 0, 1.0, odds) / (1.0 + odds)
    expected = evidence.impressions * probability
    softplus = np.maximum(logit, 0.0) + np.log1p(odds)
    residual, variance = expected - evidence.responses, expected * (1.0 - probability)
    x = evidence.centred
    loss, *gradient, aa, ab, bb = evidence.sums(
        evidence.impressions * softplus - evidence.responses * logit,
        *(residual, residual * x, variance, variance * x, variance * x * x),
    )
    information = np.stack([aa, ab, ab, bb], axis=1).reshape(-1, 2, 2)
    return _Curvature(loss, np.stack(gradient, axis=1), information)


def _inverse(matrices: np.ndarray) -> np.ndarray:
    """Inverses of symmetric positive definite matrices [..., 2, 2]."""
    a, b, d = matrices[..., 0, 0], matrices[..., 0, 1], matrices[..., 1, 1]
    adjugate = np.stack([d, -b, -b, a], axis=-1).reshape(matrices.shape)
    return adjugate / (a * d - b * b)[..., None, None]


@dataclass(frozen=True)
class _Prior:
    mean: np.ndarray  # float64 [2]
    precision: np.ndarray  # float64 [2, 2]

    @classmethod
    def of(cls, numbers: np.ndarray) -> "_Prior":
        """The prior whose `numbers` these are."""
        mean, (aa, bb, ab) = numbers[:2], numbers[2:]
        return cls(mean, _inverse(np.array([[aa, ab], [ab, bb]])))

    def numbers(self) -> np.ndarray:
        """(mean, variances, covariance), float64 [5]."""
        covariance = _inverse(self.precision)
        return np.array([*self.mean, *np.diag(covariance), covariance[0, 1]])

    def loss(self, theta: np.ndarray) -> np.ndarray:
        """Minus the log density [U] of (a, b) [U, 2], up to a constant."""
        deviation = theta - self.mean
        return 0.5 * (deviation * (deviation @ self.precision)).sum(axis=1)

    def step(self, theta: np.ndarray, curvature: _Curvature) -> tuple[np.ndarray, np.ndarray]:
        """Newton's step from (a, b) [U, 2], and the posterior covariance there [U, 2, 2]."""
        covariance = _inverse(curvature.information + self.precision)
        gradient = curvature.gradient + (theta - self.mean) @ self.precision
        return -np.einsum("uij,uj->ui", covariance, gradient), covariance

    def holding(self, slope: float) -> "_Prior":
        """This prior, given that the slope is as named (to a relative 1e-6)."""
        hold = np.array([0.0, 1e6 * self.precision[1, 1]])
        precision = self.precision + np.diag(hold)
        return _Prior(_inverse(precision) @ (self.precision @ self.mean + hold * slope), precision)


def _modes(evidence: _Evidence, prior: _Prior, theta: np.ndarray) -> tuple[np.ndarray, _Curvature]:
    """Posterior modes of (a, b), all groups at once: Newton, halved where it overshoots."""
    curvature = _curvature(evidence, theta)
    for _ in range(30):
        step, _ = prior.step(theta, curvature)
        objective = curvature.loss + prior.loss(theta)
        while np.abs(step).max() > 1e-6:
            there = _curvature(evidence, theta + step)
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


def _em_step(prior: _Prior, theta: np.ndarray, curvature: _Curvature) -> _Prior:
    """A likelier prior, each value taken as normal around its mode."""
    n = len(theta)
    missing = max(TRUSTED_VALUES - n, PROPER)
    step, covariance = prior.step(theta, curvature)
    at = theta + np.clip(step, -1.0, 1.0)  # the normal holds near the mode only
    pull = prior.precision @ at.sum(axis=0) + VAGUE_PRECISION @ VAGUE_MEAN
    mean = _inverse(n * prior.precision + VAGUE_PRECISION) @ pull
    scatter = (at - mean).T @ (at - mean) + covariance.sum(axis=0)
    return _Prior(mean, _inverse((scatter + missing * TYPICAL_COVARIANCE) / (n + missing)))


def _jump(start: np.ndarray, once: np.ndarray, twice: np.ndarray) -> _Prior | None:
    """Where two EM steps lead to if they go on (SQUAREM, Varadhan & Roland 2008), or None.

    No jump is made to what is no covariance or has variances far from those after the two steps.
    """
    first, bend = once - start, twice - 2 * once + start
    steepness = max(float(np.linalg.norm(bend)), 1e-12)
    length = min(float(np.linalg.norm(first)) / steepness, LONGEST_JUMP)
    there = start + 2 * length * first + length**2 * bend
    ratio = there[2:4] / twice[2:4]
    sensible = ratio.min() > 0.1 and ratio.max() < 10 and there[2] * there[3] > there[4] ** 2
    return _Prior.of(there) if sensible else None


def _estimate(prior: _Prior, theta: np.ndarray, curvature: _Curvature) -> _Prior:
    """The likeliest prior: EM, extrapolated after every two steps."""
    for _ in range(30):
        once = _em_step(prior, theta, curvature)
        twice = _em_step(once, theta, curvature)
        ahead = _jump(prior.numbers(), once.numbers(), twice.numbers())
        prior = twice if ahead is None else _em_step(ahead, theta, curvature)
        if np.abs(twice.numbers() - once.numbers()).max() < 1e-5:
            break
    return prior


def _posterior(evidence: _Evidence) -> tuple[_Prior, np.ndarray]:
    """The estimated prior and the modes [U, 2] under it."""
    prior = _Prior(VAGUE_MEAN, _inverse(TYPICAL_COVARIANCE))
    theta = np.tile(VAGUE_MEAN, (len(evidence.groups), 1))
    for _ in range(20):
        theta, curvature = _modes(evidence, prior, theta)
        previous, prior = prior, _estimate(prior, theta, curvature)
        if np.abs(prior.numbers() - previous.numbers()).max() < 1e-3:
            break
    return prior, _modes(evidence, prior, theta)[0]


def _raise_slopes(
    evidence: _Evidence, prior: _Prior, theta: np.ndarray, min_slope: float
) -> np.ndarray:
    """The modes with slopes of at least `min_slope`; where one is raised the offset follows."""
    low = theta[:, 1] < min_slope
    raised = theta.copy()
    if low.any():
        start = np.column_stack([theta[low, 0], np.full(low.sum(), min_slope)])
        raised[low] = _modes(evidence.take(low), prior.holding(min_slope), start)[0]
        raised[low, 1] = min_slope
    return raised


def _unseen(evidence: _Evidence, prior: _Prior, theta: np.ndarray, min_slope: float) -> np.ndarray:
    """(a, b) of a field value that was never seen: a Platt map fitted on held-out field values.

    The prior mean is the logit of a typical value; the mean *rate* of values is higher, because
    rates spread upwards. So each fold of values gets the prior mean of the others, and one Platt
    map is fitted on all these held-out logits. Rows of one value err together: a value with E
    expected responses counts as E / (1 + E s²) of them, s² the relative variance of rates.
    """
    n = len(evidence.groups)
    fold = np.arange(n) % FOLDS
    held_out = np.stack(
        [theta[fold != k].mean(axis=0) if n > 1 else VAGUE_MEAN for k in range(min(FOLDS, n))]
    )
    logit = evidence.logit(held_out[fold])
    spread = np.expm1(min(prior.numbers()[2], 10.0))
    (expected,) = evidence.sums(evidence.impressions / (1.0 + np.exp(-logit)))
    weight = np.repeat(1.0 / (1.0 + spread * expected), evidence.sizes)
    columns = (evidence.impressions * weight, evidence.responses * weight)
    pooled = _evidence((np.zeros(len(logit), int), logit, *columns), evidence.center)
    platt = _Prior(VAGUE_MEAN, VAGUE_PRECISION)
    start = VAGUE_MEAN[None]
    modes, _ = _modes(pooled, platt, start)
    (offset, slope) = _raise_slopes(pooled, platt, modes, min_slope)[0]
    typical = prior.mean if n > 1 else VAGUE_MEAN
    return np.array([offset + slope * typical[0], max(slope * typical[1], min_slope)])


def fit_anchor(
    field_value_id: np.ndarray,
    logit: np.ndarray,
    impressions: np.ndarray,
    responses: np.ndarray,
    n_field_values: int,
    *,
    center: float | None = None,
    min_slope: float = 0.05,
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
        min_slope: least b_z, > 0.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    evidence = _evidence((field_value_id, logit, impressions, responses), center)
    prior, theta = _posterior(evidence)
    everywhere = np.tile(_unseen(evidence, prior, theta, min_slope), (n_field_values, 1))
    own = evidence.groups > 0
    everywhere[evidence.groups[own]] = _raise_slopes(evidence, prior, theta, min_slope)[own]
    seen = np.zeros(n_field_values, dtype=bool)
    seen[evidence.groups[own]] = True
    covariance = _inverse(prior.precision)
    return Anchor(evidence.center, everywhere[:, 0], everywhere[:, 1], seen, prior.mean, covariance)
