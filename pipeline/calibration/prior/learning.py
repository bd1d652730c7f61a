"""The filter's variances, learned from the log: those under which each day's counts were likeliest.

The log posterior of ln variances, Σ_days ln p(counts of the day | days before) and a normal prior
about the defaults of `Variances`. Seven days barely identify them, so what field values have of
their own is held near the defaults, which do well on logs of search ads (keywords) and of flights
(carriers); what all share differs more between logs and is freer. The search starts from the
defaults, never from what was found yesterday, and has a fixed number of steps: the same counts give
the same variances.
"""

from collections.abc import Mapping
from dataclasses import asdict

import numpy as np

from pipeline.calibration.prior.daily import DailyCounts
from pipeline.calibration.prior.filter import Filter, Variances
from pipeline.calibration.prior.quadrature import DayRows

SPREAD = {  # standard deviations of ln variance before any evidence; what is not named is held
    "lasting": 0.5,
    "slow": 0.5,
    "fast": 0.5,
    "shared_fast": 1.5,
}
NEWEST_DAYS = 28  # that are learned from; movements are slow, days are alike
ROUNDS = 3
PROBE = 0.5  # standard deviations by which a variance is tried
LONGEST = 3.0  # the same, of a step


def learn_variances(counts: DailyCounts, usual: np.ndarray, center: float) -> Variances:
    """The variances that the counts suggest.

    Each round takes, for each variance by itself, the step to the top of the parabola through three
    of its values.

    Args:
        counts: of the days that are known.
        usual: float64 [V], x̄ of the field values.
        center: their mean.
    """
    by_value = counts.take(counts.day > counts.day.max() - NEWEST_DAYS).by_value()
    first, last = int(by_value.days[0]), int(by_value.days[-1])
    days = {day: DayRows.of(by_value, day, usual) for day in range(first, last + 1)}
    place, probes = np.zeros(len(SPREAD)), PROBE * np.eye(len(SPREAD))

    def height(at: np.ndarray) -> float:
        return _log_posterior(at, days, usual, center)

    for _ in range(ROUNDS):
        here = height(place)
        ahead, behind = (np.array([height(at) for at in place + side * probes]) for side in (1, -1))
        bend = np.maximum(2.0 * here - ahead - behind, 1e-9)
        place = place + np.clip(PROBE / 2.0 * (ahead - behind) / bend, -LONGEST, LONGEST)
    return _variances(place)


def _variances(place: np.ndarray) -> Variances:
    """The variances that lie `place` standard deviations from the defaults."""
    typical = asdict(Variances())
    moved = zip(SPREAD.items(), place.tolist(), strict=True)
    return Variances(**typical | {n: typical[n] * float(np.exp(s * x)) for (n, s), x in moved})


def _log_posterior(
    place: np.ndarray, days: Mapping[int, DayRows], usual: np.ndarray, center: float
) -> float:
    model = Filter(_variances(place), usual, center)
    beliefs, total = model.start(), -0.5 * float(place @ place)
    for rows in days.values():
        beliefs = model.ahead(beliefs, 1)
        if len(rows.ids):
            beliefs, likelihood = model.update(beliefs, rows)
            total += likelihood
    return total
