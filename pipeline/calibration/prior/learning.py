"""The filter's variances, learned from the log: those under which each day's counts were likeliest.

The log posterior of ln variances, Σ_days ln p(counts of the day | days before) and a normal prior
about the defaults of `Variances`. Seven days barely identify them, so what field values have of
their own is held near the defaults, which do well on logs of search ads (keywords) and of flights
(carriers); what all share differs more between logs and is freer, and so is how much of what
differs the children of a parent share. The search starts from the
defaults, never from what was found yesterday, and has a fixed number of steps: the same counts give
the same variances.
"""

from collections.abc import Mapping
from dataclasses import asdict

import numpy as np

from pipeline.calibration.prior.daily import DailyCounts
from pipeline.calibration.prior.filter import Filter, Variances
from pipeline.calibration.prior.quadrature import DayRows
from pipeline.formats.field_tree import FieldTree

SPREAD = {  # standard deviations of ln variance before any evidence; what is not named is held
    "lasting": 0.5,
    "slow": 0.5,
    "fast": 0.5,
    "shared_fast": 1.5,
}
NEWEST_DAYS = 28  # that are learned from; movements are slow, days are alike
OF_LEVELS = 1.0, 1.0  # what a level of parents has as a multiple of each one's own, and its spread
ROUNDS = 3
PROBE = 0.5  # standard deviations by which a variance is tried
LONGEST = 3.0  # the same, of a step


def learn_variances(
    counts: DailyCounts, usual: np.ndarray, center: float, tree: FieldTree
) -> Variances:
    """The variances that the counts suggest.

    Each round takes, for each variance by itself, the step to the top of the parabola through three
    of its values.

    Args:
        counts: of the days that are known.
        usual: float64 [V], x̄ of the field values.
        center: their mean.
        tree: what they belong to.
    """
    by_value = counts.take(counts.day > counts.day.max() - NEWEST_DAYS).by_value()
    first, last = int(by_value.days[0]), int(by_value.days[-1])
    days = {day: DayRows.of(by_value, day, usual) for day in range(first, last + 1)}
    size = len(SPREAD) + tree.depth
    place, probes = np.zeros(size), PROBE * np.eye(size)

    def height(at: np.ndarray) -> float:
        return _log_posterior(at, days, usual, center, tree)

    for _ in range(ROUNDS):
        here = height(place)
        ahead, behind = (np.array([height(at) for at in place + side * probes]) for side in (1, -1))
        bend = np.maximum(2.0 * here - ahead - behind, 1e-9)
        place = place + np.clip(PROBE / 2.0 * (ahead - behind) / bend, -LONGEST, LONGEST)
    return _variances(place)


def _variances(place: np.ndarray) -> Variances:
    """The variances that lie `place` standard deviations from the defaults."""
    typical, (level, spread) = asdict(Variances()), OF_LEVELS
    moved = zip(SPREAD.items(), place[: len(SPREAD)].tolist(), strict=True)
    found = {n: typical[n] * float(np.exp(s * x)) for (n, s), x in moved}
    levels = (level * np.exp(spread * place[len(SPREAD) :])).tolist()
    return Variances(**typical | found | {"levels": tuple(levels)})


def _log_posterior(
    place: np.ndarray,
    days: Mapping[int, DayRows],
    usual: np.ndarray,
    center: float,
    tree: FieldTree,
) -> float:
    model = Filter(_variances(place), usual, center, tree)
    beliefs, total = model.start(), -0.5 * float(place @ place)
    for day, rows in days.items():
        beliefs = model.moved(model.ahead(beliefs, 1), day)
        if len(rows.ids):
            beliefs, likelihood = model.update(beliefs, rows)
            total += likelihood
    return total
