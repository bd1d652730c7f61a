"""How the offsets of field values move from day to day: kernels, and their variances."""

from dataclasses import dataclass

import numpy as np

TIME_CONSTANTS = (3.0, 30.0)  # days in which a movement loses all but 1/e of itself
HASTE = 2.0  # greatest exponent of a variance's step: the plain fixed point (1) creeps towards zero
LEAST, MOST = 1e-6, 100.0  # variances in logits², beyond which one cannot be told from another


@dataclass(frozen=True)
class Movements:
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


def movements(n_periods: int, days_per_period: int, horizon_days: int) -> Movements:
    """The movements of one field value over `n_periods`, seen from its last day."""
    age = np.arange(n_periods)[::-1] * days_per_period
    lag = np.abs(age[:, None] - age)
    ahead = np.arange(1, horizon_days + 1)[:, None] + age
    within = [np.exp(-lag / tau) for tau in TIME_CONSTANTS]
    forecast = [np.exp(-ahead / tau) for tau in TIME_CONSTANTS]
    return Movements(
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
        worth: float,
    ) -> "Variances":
        """Each variance times what was found of it over what could be, with `worth` typical days.

        The exponent of that ratio is the secant's, in [1, HASTE]: a variance that the evidence
        determines answers a step in full, so that more than 1 would swing about the fixed point.
        """
        above = np.einsum("jst,st->j", kernels, found) + worth * typical / self.now**2
        below = np.einsum("jst,st->j", kernels, possible) + worth / self.now
        here, pull = np.log(self.now), np.log(np.clip(above / below, 0.1, 10.0))
        exponent = np.full(len(pull), HASTE)
        if self.before is not None:
            step, answer = here - self.before[0], self.before[1] - pull
            told = np.abs(answer) > 1e-9
            exponent[told] = np.clip(step[told] / answer[told], 1.0, HASTE)
        return Variances(np.clip(np.exp(here + exponent * pull), LEAST, MOST), (here, pull))
