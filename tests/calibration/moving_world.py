"""Made-up daily counts of field values that move, and their true levels."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from pipeline.calibration.prior.daily import DailyCounts, usual_logits
from pipeline.calibration.prior.filter import KEPT, SHARED_KEPT, Filter, Variances
from pipeline.calibration.prior.forward import LARGEST, Guard, Pass, follow
from pipeline.formats.tables import FieldTree

STILL = {"shared_slow": 1e-9, "shared_fast": 1e-9, "shared_day": 1e-9}


@dataclass(frozen=True)
class MovingWorld:
    """Counts of a log, one row a day and value, and the truth behind them.

    Attributes:
        counts: of all days.
        level: float64 [days, V], true logit of each day; row 0 of values is the unseen one's.
        shown: float64 [V], impressions of a value on a day.
        variances: under which the values moved.
    """

    counts: DailyCounts
    level: np.ndarray
    shown: np.ndarray
    variances: Variances

    def model(self) -> Filter:
        """The filter that knows the variances."""
        return Filter(self.variances, *usual_logits(self.counts, FieldTree.flat(len(self.shown))))

    def followed(self, horizon_days: int = 1, guard: Guard | None = None) -> Pass:
        """All days followed; with a guard of no value but the whole."""
        guard = guard or Guard(np.zeros(0, np.int64))
        return follow(self.model(), self.counts, horizon_days, guard)

    def guard(self, *accepted: int) -> Guard:
        """A guard that looks at the largest values."""
        return Guard(1 + np.argsort(-self.shown[1:])[:LARGEST], accepted)


def moving_world(
    seed: int = 1,
    *,
    n_values: int = 300,
    days: int = 40,
    shown: float = 350.0,
    rate: float = 0.03,
    step: float = 0.0,
    step_day: int = 0,
    **variances: float,
) -> MovingWorld:
    """Field values that move as the filter believes; from `step_day` on all of them `step` higher.

    Args:
        shown: mean impressions of a value and day; they fall off as 1 / √rank.
        rate: of the logit about which values lie.
    """
    rng, v = np.random.default_rng(seed), Variances(**variances)
    usual = np.log(rate / (1 - rate)) + rng.normal(0, 0.5, n_values)
    movements = "slow", "fast"
    own = sum(_reverting(rng, getattr(v, name), kept, (days, n_values))
              for name, kept in zip(movements, KEPT, strict=True))  # fmt: skip
    shared = sum(_reverting(rng, getattr(v, f"shared_{name}"), kept, (days, 1))
                 for name, kept in zip(movements, SHARED_KEPT, strict=True))  # fmt: skip
    lasting = rng.normal(0, v.lasting**0.5, n_values)
    noise = rng.normal(0, v.day**0.5, (days, n_values))
    noise = noise + rng.normal(0, v.shared_day**0.5, (days, 1))
    raised = step * (np.arange(days) >= step_day)[:, None]
    level = usual + lasting + own + shared + noise + raised
    weight = 1 / np.sqrt(np.arange(1, n_values + 1))
    mean = shown * weight / weight.mean()
    counts = _counts(rng, mean, usual, level)
    grown = np.column_stack([np.zeros(days), level])
    return MovingWorld(counts, grown, np.append(0.0, mean), v)


def _reverting(
    rng: np.random.Generator, variance: float, kept: float, shape: tuple[int, int]
) -> np.ndarray:
    """A movement that reverts to its mean, [days, n]."""
    now = rng.normal(0, variance**0.5, shape[1])
    path = [now]
    for _ in range(shape[0] - 1):
        now = kept * now + rng.normal(0, (variance * (1 - kept**2)) ** 0.5, shape[1])
        path.append(now)
    return np.stack(path)


def _counts(
    rng: np.random.Generator, mean: np.ndarray, usual: np.ndarray, level: np.ndarray
) -> DailyCounts:
    impressions = rng.poisson(mean, level.shape)
    responses = rng.binomial(impressions, expit(level))
    day, value = np.nonzero(impressions)
    return DailyCounts(
        day.astype(np.int64) + 20_000,
        value.astype(np.int64) + 1,
        usual[value],
        impressions[day, value].astype(float),
        responses[day, value].astype(float),
    )
