"""The guard: is the newest day's news too large to be news?

Δ = ln(Σ E_M / Σ E_M⁻) on the rows of day d, with M the forecasts for the day that is served next
after d was learned from and M⁻ the same without d: how far one day's labels move what is served. It
is held against the moves of the last sound days. A refused day is missing to the filter, and to
every calibrator, until it is landed again or accepted by name.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
from scipy.special import expit, ndtr, ndtri

from pipeline.calibration.prior.daily import DailyCounts
from pipeline.calibration.prior.day_forecast import DayForecast

FLOOR = float(np.log(1.05))  # a move that no day is refused for
DEVIATIONS = 4.0  # of the sound days' moves
SOUND_DAYS = 28  # newest, that a day is held against
LEAST_DAYS = 7  # of them, before any day is refused
LARGEST = 10  # field values that are looked at by themselves


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
        sound: of each sound day float64 [1 + k]: Δ of all rows and of each value, NaN without rows.
        moves: of every day, of all rows and of every value for which it was refused.
    """

    largest: np.ndarray
    accepted: Collection[int] = ()
    sound: list[np.ndarray] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)

    def admits(
        self,
        day: int,
        without: DayForecast,
        with_day: DayForecast,
        rows: DailyCounts,
    ) -> bool:
        """Whether a day is learned from; what was found is kept.

        Args:
            day: the day.
            without, with_day: forecasts of the day that is served next, M⁻ and M.
            rows: of the day.
        """
        moved = self._moved(without, with_day, rows)
        limits = self._limits()
        far = np.flatnonzero(np.abs(moved) > limits)
        refused = bool(len(far)) and day not in self.accepted
        names = [None, *self.largest.tolist()]
        for place in sorted({0, *far.tolist()}):
            found = float(moved[place]), float(limits[place])
            self.moves.append(Move(day, names[place], *found, refused and place in far))
        if not refused:
            self.sound.append(moved)
        return not refused

    def _moved(self, without: DayForecast, with_day: DayForecast, rows: DailyCounts) -> np.ndarray:
        """float64 [1 + k]: Δ of all rows and of each value; NaN where it has none."""
        sums = []
        for forecast in (without, with_day):
            expected = rows.impressions * expit(forecast(rows.logit, rows.field_value_id))
            of_values = [expected[rows.field_value_id == each].sum() for each in self.largest]
            sums.append(np.array([expected.sum(), *of_values]))
        with np.errstate(invalid="ignore"):
            return np.log(sums[1] / sums[0])

    def _limits(self) -> np.ndarray:
        """float64 [1 + k], never below FLOOR: of all rows 4 s, and no more than half again the
        largest sound move; of each of the k values 4 s at the confidence that all of them together
        have, and no less than twice its largest sound move."""
        if len(self.sound) < LEAST_DAYS:
            return np.full(1 + len(self.largest), np.inf)
        sound = np.abs(np.stack(self.sound[-SOUND_DAYS:]))
        known = np.isfinite(sound).sum(axis=0)
        with np.errstate(invalid="ignore"):
            spread = np.sqrt(np.nansum(sound**2, axis=0) / known)
        of_values = -ndtri(ndtr(-DEVIATIONS) / max(len(self.largest), 1))
        limits = spread * np.r_[DEVIATIONS, np.full(len(self.largest), of_values)]
        largest = np.nanmax(np.where(np.isfinite(sound), sound, 0.0), axis=0)
        limits[0] = min(limits[0], 1.5 * largest[0])
        limits[1:] = np.maximum(
            limits[1:], 2.0 * largest[1:]
        )  # one value's moves are no bell curve
        return np.where(known >= LEAST_DAYS, np.maximum(limits, FLOOR), np.inf)
