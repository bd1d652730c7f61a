"""One pass over the days: every forecast that could have been made on its morning."""

from dataclasses import dataclass

import numpy as np

from pipeline.calibration.prior.daily import DailyCounts
from pipeline.calibration.prior.day_forecast import DayForecast
from pipeline.calibration.prior.filter import Filter
from pipeline.calibration.prior.guard import Guard
from pipeline.calibration.prior.quadrature import LEVEL, SLOPE, DayRows


@dataclass(frozen=True)
class Pass:
    """What a pass over the days comes to.

    Attributes:
        forecasts: day -> forecast of the day made horizon_days before, from the first day with rows
            to horizon_days after the last, or to the last that was asked for.
        fitted: day -> float64 [V, 2], (level, slope) after the day, of the days that were learned.
        usual: float64 [V], x̄.
    """

    forecasts: dict[int, DayForecast]
    fitted: dict[int, np.ndarray]
    usual: np.ndarray

    def fitted_logit(
        self, logit: np.ndarray, field_value_id: np.ndarray, day: np.ndarray
    ) -> np.ndarray:
        """The calibrated logit that fits each row's own day, float64 [n]."""
        known = np.array(sorted(self.fitted))
        each = np.stack([self.fitted[d] for d in known.tolist()])
        state = each[np.searchsorted(known, day), field_value_id]
        return state[:, LEVEL] + state[:, SLOPE] * (logit - self.usual[field_value_id])


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
        served = model.forecast(model.ahead(beliefs, horizon_days))
        rows = DayRows.of(counts, day, model.usual)
        if len(rows.ids):
            after, _ = model.update(beliefs, rows)
            with_day = model.forecast(model.ahead(after, horizon_days))
            if guard.admits(day, served, with_day, counts.of_day(day)):
                beliefs, served = after, with_day
                fitted[day] = model.lines(beliefs)
        forecasts[day + horizon_days] = served
    return Pass(forecasts, fitted, model.usual)
