"""The state-space model behind the drifting anchor: who moved, how much, and what is noise.

All variances are estimated from all field values: Gauss-Newton modes inside, posterior means by one
more order of Laplace's expansion (few responses make a skew posterior, whose mode lies too high),
and outside the fixed point at which each variance component explains the movement that is left of
it (Harville 1977; MacKay 1992). `drift` says what the components mean.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipeline.calibration.prior.drift_kernels import MOST, Movements, Variances

TYPICAL_SPREAD = np.diag([0.25, 0.05])  # covariance of (a, ln b) before any evidence
TYPICAL_MOVEMENT = 0.005  # variance of each movement of a field value, likewise
TYPICAL_SHARED_MOVEMENT = 0.0005
SHARED_WORTH = 0.1  # days of evidence that TYPICAL_SHARED_MOVEMENT counts for
MISSING_WORTH = 0.05  # days of evidence that a day of a missing field value counts for
TRUSTED_VALUES = 30  # with fewer field values typical ones stand in for the missing
COEFFICIENT_SD = 0.3  # of the line in mean logit and log impressions
ROUNDS = 25
SKEWEST = 0.5  # logits between a mode and a mean; an expansion that gives more has failed


@dataclass(frozen=True)
class Observations:
    """Groups of impressions at one logit, by field value (row) and period; sorted by both."""

    row: np.ndarray  # int64 [n], index into the live field values
    period: np.ndarray  # int64 [n]
    centred: np.ndarray  # float64 [n], mean logit - center
    impressions: np.ndarray  # float64 [n]
    responses: np.ndarray  # float64 [n]
    center: float
    shape: tuple[int, int]  # field values, periods

    def logit(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The logit of each group under states [L, T + 1] and its derivative by ln b."""
        lever = np.exp(state[:, -1])[self.row] * self.centred
        return self.center + self.at_offset(state) + lever, lever

    def at_offset(self, state: np.ndarray) -> np.ndarray:
        """What states [L, T + 1] have for the offset of each group, [n]."""
        return state.ravel()[self._offset]

    def by_period(self, amounts: np.ndarray) -> np.ndarray:
        """Sums [..., L, T] of amounts [..., n]."""
        first, place = self._runs
        sums = np.zeros((*amounts.shape[:-1], self.shape[0] * self.shape[1]))
        sums[..., place] = np.add.reduceat(amounts, first, axis=-1)
        return sums.reshape(*amounts.shape[:-1], *self.shape)

    @cached_property
    def _offset(self) -> np.ndarray:
        """Where in states [L, T + 1] the offset of each group is, int64 [n]."""
        return self.row * (self.shape[1] + 1) + self.period

    @cached_property
    def _runs(self) -> tuple[np.ndarray, np.ndarray]:
        """The first group of each field value and period that has one, and its place in [L · T]."""
        key = self.row * self.shape[1] + self.period
        first = np.flatnonzero(np.r_[True, np.diff(key) != 0])
        return first, key[first]


@dataclass(frozen=True)
class Posterior:
    """Modes of all field values and what they leave open; states are (θ_1 … θ_T, ln b).

    Attributes:
        modes: float64 [L, T + 1].
        deviation: float64 [L, T + 1], posterior means minus prior means.
        covariance: float64 [L, T + 1, T + 1].
    """

    modes: np.ndarray
    deviation: np.ndarray
    covariance: np.ndarray


@dataclass
class Prior:
    """What is believed of field values: variances, the line of the mean, the shared movement."""

    spread: np.ndarray  # float64 [2, 2], covariance of (a, ln b)
    own: Variances  # of a field value's movements
    shared: Variances  # of the shared movements
    common: np.ndarray  # float64 [T], g
    coefficients: np.ndarray  # float64 [P, 2], of the line

    def mean(self, traits: np.ndarray) -> np.ndarray:
        """Prior means of the states, float64 [L, T + 1]."""
        line = traits @ self.coefficients
        return np.column_stack([line[:, :1] + self.common, line[:, 1]])

    def covariance(self, moves: Movements) -> np.ndarray:
        """Prior covariance of a state, float64 [T + 1, T + 1]."""
        lasting = _lasting(len(self.common))
        whole = lasting @ self.spread @ lasting.T + 1e-7 * np.eye(len(lasting))
        whole[:-1, :-1] += moves.mix(self.own.now)
        return whole


def _lasting(n_periods: int) -> np.ndarray:
    """How (a, ln b) enters a state, [T + 1, 2]."""
    return np.column_stack([np.r_[np.ones(n_periods), 0.0], np.r_[np.zeros(n_periods), 1.0]])


def _newton(
    observed: Observations, modes: np.ndarray, mean: np.ndarray, precision: np.ndarray, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Modes after some Gauss-Newton steps from `modes`, and posterior covariances [L, T+1, T+1]."""
    at = np.arange(modes.shape[1] - 1)
    for _ in range(steps):
        logit, lever = observed.logit(modes)
        expected = observed.impressions / (1.0 + np.exp(-logit))
        weight = expected * (1.0 - expected / observed.impressions)
        residual, cross = observed.responses - expected, weight * lever
        amounts = np.stack([residual, residual * lever, weight, cross, cross * lever])
        pull, of_slope, weight, cross, square = observed.by_period(amounts)
        hessian = np.repeat(precision[None], len(modes), axis=0)
        hessian[:, at, at] += weight
        hessian[:, at, -1] += cross
        hessian[:, -1, at] += cross
        hessian[:, -1, -1] += square.sum(axis=1)
        gradient = np.column_stack([pull, of_slope.sum(axis=1)])
        covariance = np.linalg.inv(hessian)
        step = np.einsum("zij,zj->zi", covariance, gradient - (modes - mean) @ precision)
        modes = modes + np.clip(step, -1.0, 1.0)
        if np.abs(step).max() < 1e-3:
            break
    return modes, covariance


def _skewness(observed: Observations, modes: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Posterior means minus modes [L, T + 1], to the third order of the log-likelihood.

    Σ ½ C g κ₃ gᵀCg over a state's groups (Tierney & Kadane 1986), C the posterior covariance, g the
    gradient of a group's logit, κ₃ = -n p (1 - p) (1 - 2p).
    """
    logit, lever = observed.logit(modes)
    expected = observed.impressions / (1.0 + np.exp(-logit))
    share = expected / observed.impressions
    third = -expected * (1.0 - share) * (1.0 - 2.0 * share)
    diagonal = np.diagonal(covariance, axis1=1, axis2=2)
    of_offset, with_slope, of_slope = (
        observed.at_offset(diagonal), observed.at_offset(covariance[:, :, -1]),
        diagonal[:, -1][observed.row],
    )  # fmt: skip
    third *= of_offset + lever * (2.0 * with_slope + lever * of_slope)
    pull, bend = observed.by_period(np.stack([third, third * lever]))
    shift = 0.5 * np.einsum("zij,zj->zi", covariance, np.column_stack([pull, bend.sum(axis=1)]))
    return np.clip(shift, -SKEWEST, SKEWEST)


def _update(
    prior: Prior, moves: Movements, traits: np.ndarray, posterior: Posterior, precision: np.ndarray
) -> Prior:
    """The prior under which these posteriors are likeliest (one round of the fixed point)."""
    n_rows, n_periods = len(traits), len(prior.common)
    missing = max(TRUSTED_VALUES - n_rows, 1)
    pull = posterior.deviation @ precision
    found = np.einsum("zi,zj->ij", pull, pull)
    possible = n_rows * precision - precision @ posterior.covariance.sum(axis=0) @ precision
    days = slice(0, n_periods)
    own = prior.own.explained(moves.within, found[days, days], possible[days, days],
                              typical=TYPICAL_MOVEMENT,
                              worth=MISSING_WORTH * missing * n_periods)  # fmt: skip
    lasting = _lasting(n_periods)
    surplus = lasting.T @ (found - possible) @ lasting
    spread = n_rows * prior.spread + prior.spread @ surplus @ prior.spread
    spread = (spread + missing * TYPICAL_SPREAD) / (n_rows + missing)
    held = np.sqrt(np.minimum(1.0, MOST / np.diag(spread)))
    spread = held[:, None] * spread * held
    common, shared = _shared(prior, moves, possible[days, days], pull[:, days].sum(axis=0))
    means = traits @ prior.coefficients + pull @ lasting @ prior.spread
    return Prior(spread, own, shared, common, _line(traits, means, spread))


def _shared(
    prior: Prior, moves: Movements, information: np.ndarray, score: np.ndarray
) -> tuple[np.ndarray, Variances]:
    """The shared movement's posterior mean [T] and its variances [J]."""
    precision = np.linalg.inv(moves.mix(prior.shared.now))
    covariance = np.linalg.inv(precision + information)
    common = covariance @ (information @ prior.common + score)
    pull = precision @ common
    possible = precision - precision @ covariance @ precision
    return common, prior.shared.explained(moves.within, np.outer(pull, pull), possible,
                                          typical=TYPICAL_SHARED_MOVEMENT,
                                          worth=SHARED_WORTH)  # fmt: skip


def _line(traits: np.ndarray, means: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Coefficients of (a, ln b) on the traits, held near zero except for the intercept."""
    lines = []
    for column in range(2):
        hold = np.full(traits.shape[1], spread[column, column] / COEFFICIENT_SD**2)
        hold[0] = 0.0
        lines.append(
            np.linalg.solve(traits.T @ traits + np.diag(hold), traits.T @ means[:, column])
        )
    return np.stack(lines, axis=1)


def traits_of(observed: Observations) -> np.ndarray:
    """Intercept, centred mean logit and log impressions of each field value, [L, 3]."""
    total = np.bincount(observed.row, observed.impressions)
    mean = np.bincount(observed.row, observed.impressions * observed.centred) / total
    size = np.log(total)
    return np.column_stack([np.ones(len(total)), mean - mean.mean(), size - size.mean()])


def fit_states(
    observed: Observations, moves: Movements, traits: np.ndarray
) -> tuple[Prior, Posterior]:
    """The prior that all field values suggest, and their posteriors under it.

    Args:
        observed: what happened.
        moves: how states may move.
        traits: float64 [L, P], what the prior mean is linear in.
    """
    n_periods = observed.shape[1]
    n_moves = len(moves.within)
    prior = Prior(
        TYPICAL_SPREAD, Variances(np.full(n_moves, TYPICAL_MOVEMENT)),
        Variances(np.full(n_moves, TYPICAL_SHARED_MOVEMENT)),
        np.zeros(n_periods), np.zeros((traits.shape[1], 2)),
    )  # fmt: skip
    modes = np.zeros((observed.shape[0], n_periods + 1))
    for turn in range(ROUNDS):
        mean, precision = prior.mean(traits), np.linalg.inv(prior.covariance(moves))
        modes, covariance = _newton(observed, modes, mean, precision, steps=2 if turn else 12)
        middle = modes + _skewness(observed, modes, covariance)
        posterior = Posterior(modes, middle - mean, covariance)
        if turn < ROUNDS - 1:
            prior = _update(prior, moves, traits, posterior, precision)
    return prior, posterior
