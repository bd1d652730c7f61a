"""The state-space model behind the drifting anchor: who moved, how much, and what is noise.

All variances are estimated from all field values: Gauss-Newton modes inside, posterior means by one
more order of Laplace's expansion (few responses make a skew posterior, whose mode lies too high),
and outside the fixed point at which each variance component explains the movement that is left of
it (Harville 1977; MacKay 1992). `drift` says what the components mean.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit

TIME_CONSTANTS = (3.0, 30.0)  # days in which a movement loses all but 1/e of itself
STEP_EXPONENT = 2.0  # greatest, of a variance's step: the plain fixed point (1) creeps towards zero
LEAST, MOST = (
    1e-6,
    100.0,
)  # variances in logits², beyond which two look the same
TYPICAL_SPREAD = np.diag([0.25, 0.05])  # covariance of (a, ln b) before any evidence
TYPICAL_MOVEMENT = 0.005  # variance of each movement of a field value, likewise
TYPICAL_SHARED_MOVEMENT = 0.0005
SHARED_PSEUDO_COUNT = 0.1  # days of evidence that TYPICAL_SHARED_MOVEMENT counts for
MISSING_PSEUDO_COUNT = 0.05  # days of evidence that a day of a missing field value counts for
TRUSTED_VALUES = 30  # with fewer field values typical ones stand in for the missing
COEFFICIENT_SD = 0.3  # of the line in mean logit and log impressions
ROUNDS = 25
SKEWEST = 0.5  # logits between a mode and a mean; an expansion that gives more has failed


@dataclass(frozen=True)
class DriftKernels:
    """Covariances over periods of unit variance, and their covariances with the forecast.

    Attributes:
        within: float64 [J, T, T]; the last one is noise of single periods.
        ahead: float64 [J, H, T], of each of the next H days.
    """

    within: np.ndarray
    ahead: np.ndarray

    def mix(self, variances: np.ndarray) -> np.ndarray:
        """Covariance [T, T] of the sum of movements with these variances [J]."""
        return np.einsum("j,jst->st", variances, self.within)


def drift_kernels(n_periods: int, days_per_period: int, horizon_days: int) -> DriftKernels:
    """The movements of one field value over `n_periods`, seen from its last day."""
    age = np.arange(n_periods)[::-1] * days_per_period
    lag = np.abs(age[:, None] - age)
    ahead = np.arange(1, horizon_days + 1)[:, None] + age
    within = [np.exp(-lag / tau) for tau in TIME_CONSTANTS]
    forecast = [np.exp(-ahead / tau) for tau in TIME_CONSTANTS]
    return DriftKernels(
        np.stack([*within, np.eye(n_periods)]), np.stack([*forecast, np.zeros(ahead.shape)])
    )


@dataclass(frozen=True)
class Variances:
    """Variances of the movements on their way to the fixed point.

    Attributes:
        now: float64 [J].
        before: logs of the variances of the round before and of what then was found over what could
            be; None in the first round.
    """

    now: np.ndarray
    before: tuple[np.ndarray, np.ndarray] | None = None

    def explained(
        self,
        kernels: np.ndarray,
        found: np.ndarray,
        possible: np.ndarray,
        *,
        typical: float,
        pseudo_count: float,
    ) -> "Variances":
        """Each variance times what was found of it over what could be; see Harville (1977).

        A typical variance counts as `pseudo_count` days of evidence. The exponent of the ratio is
        the secant's, in [1, STEP_EXPONENT]: a variance that the evidence determines answers a step
        in full, so that more than 1 would swing about the fixed point.
        """
        above = np.einsum("jst,st->j", kernels, found) + pseudo_count * typical / self.now**2
        below = np.einsum("jst,st->j", kernels, possible) + pseudo_count / self.now
        here, log_ratio = np.log(self.now), np.log(np.clip(above / below, 0.1, 10.0))
        exponent = np.full(len(log_ratio), STEP_EXPONENT)
        if self.before is not None:
            step, answer = here - self.before[0], self.before[1] - log_ratio
            known = np.abs(answer) > 1e-9
            exponent[known] = np.clip(step[known] / answer[known], 1.0, STEP_EXPONENT)
        return Variances(
            np.clip(np.exp(here + exponent * log_ratio), LEAST, MOST), (here, log_ratio)
        )


@dataclass(frozen=True)
class Observations:
    """Groups of impressions at one logit, by field value (row) and period; sorted by both."""

    row: np.ndarray  # int64 [n], index into the observed field values
    period: np.ndarray  # int64 [n]
    centred: np.ndarray  # float64 [n], mean logit - center
    impressions: np.ndarray  # float64 [n]
    responses: np.ndarray  # float64 [n]
    center: float
    shape: tuple[int, int]  # field values, periods

    def logit(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The logit of each group under states [L, T + 1] and its derivative by ln b."""
        slope_effect = np.exp(state[:, -1])[self.row] * self.centred
        return self.center + self.at_offset(state) + slope_effect, slope_effect

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
class StatePrior:
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

    def covariance(self, kernels: DriftKernels) -> np.ndarray:
        """Prior covariance of a state, float64 [T + 1, T + 1]."""
        lasting = _lasting(len(self.common))
        whole = lasting @ self.spread @ lasting.T + 1e-7 * np.eye(len(lasting))
        whole[:-1, :-1] += kernels.mix(self.own.now)
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
        logit, slope_effect = observed.logit(modes)
        expected = observed.impressions * expit(logit)
        weight = expected * (1.0 - expected / observed.impressions)
        residual, cross = observed.responses - expected, weight * slope_effect
        amounts = np.stack([residual, residual * slope_effect, weight, cross, cross * slope_effect])
        of_offset, of_slope, weight, cross, square = observed.by_period(amounts)
        hessian = np.repeat(precision[None], len(modes), axis=0)
        hessian[:, at, at] += weight
        hessian[:, at, -1] += cross
        hessian[:, -1, at] += cross
        hessian[:, -1, -1] += square.sum(axis=1)
        gradient = np.column_stack([of_offset, of_slope.sum(axis=1)])
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
    logit, slope_effect = observed.logit(modes)
    expected = observed.impressions * expit(logit)
    share = expected / observed.impressions
    third = -expected * (1.0 - share) * (1.0 - 2.0 * share)
    diagonal = np.diagonal(covariance, axis1=1, axis2=2)
    of_offset, with_slope, of_slope = (
        observed.at_offset(diagonal), observed.at_offset(covariance[:, :, -1]),
        diagonal[:, -1][observed.row],
    )  # fmt: skip
    third *= of_offset + slope_effect * (2.0 * with_slope + slope_effect * of_slope)
    offset, slope = observed.by_period(np.stack([third, third * slope_effect]))
    shift = 0.5 * np.einsum("zij,zj->zi", covariance, np.column_stack([offset, slope.sum(axis=1)]))
    return np.clip(shift, -SKEWEST, SKEWEST)


def _update(
    prior: StatePrior,
    kernels: DriftKernels,
    traits: np.ndarray,
    posterior: Posterior,
    precision: np.ndarray,
) -> StatePrior:
    """The prior under which these posteriors are likeliest (one round of the fixed point)."""
    n_rows, n_periods = len(traits), len(prior.common)
    missing = max(TRUSTED_VALUES - n_rows, 1)
    gradient = posterior.deviation @ precision
    found = np.einsum("zi,zj->ij", gradient, gradient)
    possible = n_rows * precision - precision @ posterior.covariance.sum(axis=0) @ precision
    days = slice(0, n_periods)
    own = prior.own.explained(kernels.within, found[days, days], possible[days, days],
                              typical=TYPICAL_MOVEMENT,
                              pseudo_count=MISSING_PSEUDO_COUNT * missing * n_periods)  # fmt: skip
    lasting = _lasting(n_periods)
    surplus = lasting.T @ (found - possible) @ lasting
    spread = n_rows * prior.spread + prior.spread @ surplus @ prior.spread
    spread = (spread + missing * TYPICAL_SPREAD) / (n_rows + missing)
    held = np.sqrt(np.minimum(1.0, MOST / np.diag(spread)))
    spread = held[:, None] * spread * held
    common, shared = _shared(prior, kernels, possible[days, days], gradient[:, days].sum(axis=0))
    means = traits @ prior.coefficients + gradient @ lasting @ prior.spread
    return StatePrior(spread, own, shared, common, _line(traits, means, spread))


def _shared(
    prior: StatePrior, kernels: DriftKernels, information: np.ndarray, score: np.ndarray
) -> tuple[np.ndarray, Variances]:
    """The shared movement's posterior mean [T] and its variances [J]."""
    precision = np.linalg.inv(kernels.mix(prior.shared.now))
    covariance = np.linalg.inv(precision + information)
    common = covariance @ (information @ prior.common + score)
    gradient = precision @ common
    possible = precision - precision @ covariance @ precision
    return common, prior.shared.explained(kernels.within, np.outer(gradient, gradient), possible,
                                          typical=TYPICAL_SHARED_MOVEMENT,
                                          pseudo_count=SHARED_PSEUDO_COUNT)  # fmt: skip


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
    observed: Observations, kernels: DriftKernels, traits: np.ndarray
) -> tuple[StatePrior, Posterior]:
    """The prior that all field values suggest, and their posteriors under it.

    Args:
        observed: what happened.
        kernels: how states may move.
        traits: float64 [L, P], what the prior mean is linear in.
    """
    n_periods = observed.shape[1]
    n_moves = len(kernels.within)
    prior = StatePrior(
        TYPICAL_SPREAD, Variances(np.full(n_moves, TYPICAL_MOVEMENT)),
        Variances(np.full(n_moves, TYPICAL_SHARED_MOVEMENT)),
        np.zeros(n_periods), np.zeros((traits.shape[1], 2)),
    )  # fmt: skip
    modes = np.zeros((observed.shape[0], n_periods + 1))
    for turn in range(ROUNDS):
        mean, precision = prior.mean(traits), np.linalg.inv(prior.covariance(kernels))
        modes, covariance = _newton(observed, modes, mean, precision, steps=2 if turn else 12)
        middle = modes + _skewness(observed, modes, covariance)
        posterior = Posterior(modes, middle - mean, covariance)
        if turn < ROUNDS - 1:
            prior = _update(prior, kernels, traits, posterior, precision)
    return prior, posterior
