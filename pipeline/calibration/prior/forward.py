"""One pass over the days: every forecast that could have been made on its morning.

The guard: is the newest day's news too large to be news?

Δ = ln(Σ E_M / Σ E_M⁻) on the rows of day d, with M the forecasts for the day that is served next
after d was learned from and M⁻ the same without d: how far one day's labels move what is served. It
is counted in the standard deviations that M⁻ expects of it, so that a new field value, of which
nothing was known, may move by much, and held against those of the last sound days. A mean moves as
far as its variance shrinks, Var E[θ | day] = Var θ - E Var[θ | day], of which the last is taken as
it was found, and a row's expectation E by E (1 - p) times its logit; what the children of a parent
share counts as their own. A refused day is missing to the filter, and to every calibrator, until it
is landed again or accepted by name.

The filter's variances, learned from the log: those under which each day's counts were likeliest.

The log posterior of ln variances, Σ_days ln p(counts of the day | days before) and a normal prior
about the defaults of `Variances`. Seven days barely identify them, so what field values have of
their own is held near the defaults, which do well on logs of search ads (keywords) and of flights
(carriers); what all share differs more between logs and is freer, and so is how much of what
differs the children of a parent share. The search starts from the
defaults, never from what was found yesterday, and has a fixed number of steps: the same counts give
the same variances.
"""

from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import TypeAlias

import numpy as np
from scipy.special import expit, ndtr, stdtrit

from pipeline.calibration.prior.branches import of_own
from pipeline.calibration.prior.daily import DailyCounts
from pipeline.calibration.prior.day_forecast import DayForecast
from pipeline.calibration.prior.filter import Beliefs, Filter, Variances
from pipeline.calibration.prior.quadrature import LEVEL, SLOPE, DayRows
from pipeline.formats.tables import FieldTree

FLOOR = float(np.log(1.05))  # a move that no day is refused for
DEVIATIONS = 4.0  # of the sound days' moves
SOUND_DAYS = 28  # newest, that a day is held against
LEAST_DAYS = 6  # of them, besides the first day, before any day is refused
LARGEST = 10  # field values that are looked at by themselves
Learned: TypeAlias = tuple[Beliefs, Beliefs]  # without a day, and with it
Served: TypeAlias = tuple[DayForecast, DayForecast]


@dataclass(frozen=True)
class Move:
    """How far a day moved what is served.

    Attributes:
        day: days since 1970-01-01.
        field_value_id: whose forecasts; None: of all rows.
        moved: Δ, a log ratio.
        limit: beyond which the day is refused; inf while too few sound days are known.
        refused: whether it is.
    """

    day: int
    field_value_id: int | None
    moved: float
    limit: float
    refused: bool


@dataclass
class Guard:
    """The moves of the days so far.

    Attributes:
        largest: int64 [k], the field values that are looked at by themselves.
        accepted: days that are never refused.
        sound: of each sound day float64 [1 + k]: Δ of all rows and of each value in deviations that
            were expected, NaN without rows; of accepted ones, too, so that what follows passes.
        moves: of every day, of all rows and of every value for which it was refused.
    """

    largest: np.ndarray
    accepted: Collection[int] = ()
    sound: list[np.ndarray] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)

    def admits(self, day: int, rows: DailyCounts, served: Served, expected: np.ndarray) -> bool:
        """Whether a day is learned from; what was found is kept.

        Args:
            day: the day.
            rows: of the day.
            served: forecasts of the day that is served next, M⁻ and M.
            expected: float64 [1 + k], standard deviations of Δ (`expected_moves`).
        """
        moved = self._moved(rows, served)
        limits = np.maximum(self._limits() * expected, FLOOR)
        far = np.flatnonzero(np.abs(moved) > limits)
        refused = bool(len(far)) and day not in self.accepted
        names = [None, *self.largest.tolist()]
        for place in sorted({0, *far.tolist()}):
            found = float(moved[place]), float(limits[place])
            self.moves.append(Move(day, names[place], *found, refused and place in far))
        if not refused:
            self.sound.append(moved / expected)
        return not refused

    def _moved(self, rows: DailyCounts, served: Served) -> np.ndarray:
        """float64 [1 + k]: Δ of all rows and of each value; NaN where it has none."""
        sums = []
        for forecast in served:
            expected = rows.impressions * expit(forecast(rows.logit, rows.field_value_id))
            of_values = [expected[rows.field_value_id == each].sum() for each in self.largest]
            sums.append(np.array([expected.sum(), *of_values]))
        with np.errstate(invalid="ignore"):
            return np.log(sums[1] / sums[0])

    def _limits(self) -> np.ndarray:
        """float64 [1 + k], in expected deviations: the root mean square of the sound days' times
        Student's t at the confidence that 4 normal deviations have, of each of the k values at that
        of all of them together; of all rows no more than 2.5 times the largest sound move, of a
        value no less than twice its own.

        The first day taught all that was not known: how far it moved says nothing of later ones.
        """
        if len(self.sound) <= LEAST_DAYS:
            return np.full(1 + len(self.largest), np.inf)
        sound = np.abs(np.stack(self.sound[1:][-SOUND_DAYS:]))
        known = np.isfinite(sound).sum(axis=0)
        of_each = ndtr(-DEVIATIONS) / max(len(self.largest), 1)
        tail = np.r_[ndtr(-DEVIATIONS), np.full(len(self.largest), of_each)]
        with np.errstate(invalid="ignore"):
            spread = np.sqrt(np.nansum(sound**2, axis=0) / known)
        limits = spread * -stdtrit(np.maximum(known, 1), tail)
        largest = np.nanmax(np.where(np.isfinite(sound), sound, 0.0), axis=0)
        limits[0] = min(limits[0], 2.5 * largest[0])
        # one value's moves are no bell curve
        limits[1:] = np.maximum(limits[1:], 2.0 * largest[1:])
        return np.where(known >= LEAST_DAYS, limits, np.inf)


def expected_moves(
    model: Filter, beliefs: Learned, without: DayForecast, rows: DailyCounts, values: np.ndarray
) -> np.ndarray:
    """Standard deviations of Δ, of all rows and of some values, as expected before the day is seen:
    float64 [1 + k], inf where a value has no rows.

    Args:
        model: the filter.
        beliefs: of the day that is served next.
        without: the forecast by the first of them, M⁻.
        rows: of the day.
        values: int64 [k], ids.
    """
    pull, expectation = _pulls(model, without, rows)
    own, own_after = (of_own(model.spread(each)) for each in beliefs)
    shared, shared_after = (each.shared_covariance for each in beliefs)
    of_each = np.einsum("vi,vij,vj->v", pull, own - own_after, pull)
    along = np.einsum("vi,vis->vs", pull, model.loadings)
    along = np.vstack([along.sum(axis=0), along[values]])
    variance = np.r_[of_each.sum(), of_each[values]]
    variance += np.einsum("ks,st,kt->k", along, shared - shared_after, along)
    with np.errstate(divide="ignore"):
        return np.sqrt(np.maximum(variance, 1e-12)) / np.r_[expectation.sum(), expectation[values]]


def _pulls(
    model: Filter, forecast: DayForecast, rows: DailyCounts
) -> tuple[np.ndarray, np.ndarray]:
    """Derivatives of each value's expected responses by its (level, slope), [V, 2]; these, [V]."""
    ids, n = rows.field_value_id, len(model.usual)
    p = expit(forecast(rows.logit, ids))
    by_level = rows.impressions * p * (1.0 - p)
    by_slope = by_level * (rows.logit - model.usual[ids])
    pull = np.stack([np.bincount(ids, each, n) for each in (by_level, by_slope)], axis=1)
    return pull, np.bincount(ids, rows.impressions * p, n)


@dataclass(frozen=True)
class Pass:
    """What a pass over the days comes to.

    Attributes:
        forecasts: day -> forecast of the day made horizon_days before, from the first day with rows
            to horizon_days after the last, or to the last that was asked for.
        fitted: day -> float64 [V, 2], (level, slope) after the day, of the days that were learned.
        model: the filter.
        guard: how far each day moved what is served.
    """

    forecasts: dict[int, DayForecast]
    fitted: dict[int, np.ndarray]
    model: Filter
    guard: Guard

    def fitted_logit(
        self, logit: np.ndarray, field_value_id: np.ndarray, day: np.ndarray
    ) -> np.ndarray:
        """The calibrated logit that fits each row's own day, float64 [n]."""
        known = np.array(sorted(self.fitted))
        each = np.stack([self.fitted[d] for d in known.tolist()])
        state = each[np.searchsorted(known, day), field_value_id]
        return state[:, LEVEL] + state[:, SLOPE] * (logit - self.model.usual[field_value_id])


def follow(
    model: Filter, counts: DailyCounts, horizon_days: int, guard: Guard, until: int = 0
) -> Pass:
    """Follow the counts from their first day to their last, or to a later day's forecast.

    A day without rows is only predicted; so is one that the guard refuses.

    Args:
        model: the filter.
        counts: the log by day.
        horizon_days: h, 1 or more: the forecast of a day knows the days up to h before it.
        guard: which days are refused.
        until: the last day that is forecast, if it is later than h after the last day.
    """
    first, last = int(counts.days[0]), max(int(counts.days[-1]), until - horizon_days)
    beliefs = model.start()
    forecasts = {
        first + k: model.forecast(model.ahead(beliefs, k + 1)) for k in range(horizon_days)
    }
    fitted = {}
    for day in range(first, last + 1):
        beliefs = model.moved(model.ahead(beliefs, 1), day)
        before = model.ahead(beliefs, horizon_days)
        served = model.forecast(before)
        rows = DayRows.of(counts, day, model.usual)
        if len(rows.ids):
            after, _ = model.update(beliefs, rows)
            learned, of_day = (before, model.ahead(after, horizon_days)), counts.of_day(day)
            with_day = model.forecast(learned[1])
            expected = expected_moves(model, learned, served, of_day, guard.largest)
            if guard.admits(day, of_day, (served, with_day), expected):
                beliefs, served = after, with_day
                fitted[day] = model.lines(beliefs)
        forecasts[day + horizon_days] = served
    return Pass(forecasts, fitted, model, guard)


SPREAD = {  # standard deviations of ln variance before any evidence; what is not named is held
    "lasting": 0.5,
    "slow": 0.5,
    "fast": 0.5,
    "slope": 0.5,
    "shared_fast": 1.5,
}
NEWEST_DAYS = 28  # that are learned from; movements are slow, days are alike
OF_LEVELS = 1.0, 1.0  # what a level of parents has as a multiple of each one's own, and its spread
OF_LEVEL_DAYS = 0.01, 1.5  # what it has of single days, and its spread
ROUNDS = 3
PROBE = 0.5  # standard deviations by which a variance is tried
LONGEST = 3.0  # the same, of a step
SHARES = 1.0, 0.5, 0.25, 0.125  # of a step, of which the first that leads up is taken


def learn_variances(
    counts: DailyCounts, usual: np.ndarray, center: float, tree: FieldTree
) -> Variances:
    """The variances that the counts suggest.

    Each round takes, for each variance by itself, the step to the top of the parabola through three
    of its values; of all steps together the share that leads up. Where there are parents, a day's
    move may be that of a level or of the next: steps of all variances at once would count it
    several times, so they are taken in turn.

    Args:
        counts: of the days that are known.
        usual: float64 [V], x̄ of the field values.
        center: their mean.
        tree: what they belong to.
    """
    by_value = counts.take(counts.day > counts.day.max() - NEWEST_DAYS).by_value()
    first, last = int(by_value.days[0]), int(by_value.days[-1])
    days = {day: DayRows.of(by_value, day, usual) for day in range(first, last + 1)}
    size = len(SPREAD) + 2 * tree.depth
    place, each = np.zeros(size), np.eye(size)

    def height(at: np.ndarray) -> float:
        """Log posterior of the variances that lie `at` standard deviations from the defaults."""
        model = Filter(_variances(at), usual, center, tree)
        beliefs, total = model.start(), -0.5 * float(at @ at)
        for day, rows in days.items():
            beliefs = model.moved(model.ahead(beliefs, 1), day)
            if len(rows.ids):
                beliefs, likelihood = model.update(beliefs, rows)
                total += likelihood
        return total

    here = height(place)
    for of_turn in ROUNDS * ([*each[:, None]] if tree.depth else [each]):
        probes = PROBE * of_turn
        ahead, behind = (np.array([height(at) for at in place + side * probes]) for side in (1, -1))
        bend = np.maximum(2.0 * here - ahead - behind, 1e-9)
        step = np.clip(PROBE / 2.0 * (ahead - behind) / bend, -LONGEST, LONGEST) @ of_turn
        for share in SHARES:  # where variances stand in for one another the whole step is too long
            if (there := height(place + share * step)) > here:
                place, here = place + share * step, there
                break
    return _variances(place)


def _variances(place: np.ndarray) -> Variances:
    """The variances that lie `place` standard deviations from the defaults."""
    typical = asdict(Variances())
    moved = zip(SPREAD.items(), place[: len(SPREAD)].tolist(), strict=True)
    found = {n: typical[n] * float(np.exp(s * x)) for (n, s), x in moved}
    levels, days = (
        (middle * np.exp(spread * part)).tolist()
        for (middle, spread), part in zip(
            (OF_LEVELS, OF_LEVEL_DAYS), np.split(place[len(SPREAD) :], 2), strict=True
        )
    )
    return Variances(**typical | found | {"levels": tuple(levels), "level_days": tuple(days)})
