"""A calibrator's own record: what it forecast for earlier days, what came, and what to learn of it.

corrected_logit = c + a + b · (calibrated_logit - c), with c the mean calibrated logit of the record
and (a, b) fitted to it with a light pull to (0, 1). Old days fade by a half-life; which one, or no
correction at all, is decided by the LogLoss that each had on the days of the record itself.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from pipeline.calibration.prior.random_slopes import SlopePrior, group_rows, modes
from pipeline.calibration.statistics.grid import bounded, log_loss_from_logits

HALF_LIVES = (14.0, np.inf)  # days
LEAST_DAYS = 7  # of record, before anything is made of it
PULL = SlopePrior(np.array([0.0, 1.0]), np.diag([0.5**-2, 0.1**-2]))
NEW_SPREAD = 0.1  # variance of new field values' levels, logits²: one says no more than 10 of them
STRIPES = 64  # of a day's calibrated logits, which stand for its rows


class Correction(NamedTuple):
    """corrected = offset + slope · calibrated."""

    offset: float = 0.0
    slope: float = 1.0

    def __call__(self, calibrated_logit: np.ndarray) -> np.ndarray:
        """The corrected logit of calibrated logits of any shape."""
        return self.offset + self.slope * calibrated_logit


NONE = Correction()


@dataclass(frozen=True)
class _Forecasts:
    day: int
    logit: np.ndarray
    impressions: np.ndarray
    responses: np.ndarray
    losses: np.ndarray  # without correction, then by half-life


@dataclass
class Record:
    """The forecasts of one calibrator, day by day.

    Attributes:
        horizon_days: h; a correction for day t may know days up to t - h.
    """

    horizon_days: int
    days: list[_Forecasts] = field(default_factory=list)

    def add(
        self, day: int, calibrated_logit: np.ndarray, impressions: np.ndarray, responses: np.ndarray
    ) -> None:
        """What was forecast for the rows [n] of a day, without correction, and what came."""
        if not impressions.sum() > 0:
            return
        calibrated_logit = bounded(calibrated_logit)  # beyond, a row weighs nothing
        corrections = [NONE, *(self._fitted(day, half_life) for half_life in HALF_LIVES)]
        losses = [
            log_loss_from_logits(each(calibrated_logit), responses, impressions).sum()
            for each in corrections
        ]
        stripes = _stripes(calibrated_logit, impressions, responses)
        self.days.append(_Forecasts(day, *stripes, np.array(losses)))

    def correction(self, day: int) -> Correction:
        """What the record says of a day's forecasts."""
        known = [each for each in self.days if each.day <= day - self.horizon_days]
        if len(known) < LEAST_DAYS:
            return NONE
        best = int(np.argmin(sum(each.losses for each in known)))  # none wins a tie
        return NONE if best == 0 else self._fitted(day, HALF_LIVES[best - 1])

    def _fitted(self, day: int, half_life: float, least: int = LEAST_DAYS) -> Correction:
        known = [each for each in self.days if each.day <= day - self.horizon_days]
        if len(known) < least:
            return NONE
        weight = np.repeat(
            [0.5 ** ((day - each.day) / half_life) for each in known],
            [len(each.logit) for each in known],
        )
        logit, n, y = (
            np.concatenate([getattr(each, name) for each in known])
            for name in ("logit", "impressions", "responses")
        )
        rows = group_rows((np.zeros(len(logit), int), logit, weight * n, weight * y), None)
        (offset, slope), *_ = modes(rows, PULL, PULL.mean[None])[0]
        slope = max(float(slope), 0.1)
        return Correction(float(rows.center * (1.0 - slope) + offset), slope)


class FirstDays(Record):
    """What was forecast for field values that were new on their day, and came.

    New values tend to do better or worse than old ones, which survived, so they are corrected
    from the first such day on, by as much as the light pull lets so few say. A large one is still a
    single sample of how values differ: its rows count as random-effects meta-analysis weighs them
    (DerSimonian and Laird 1986), 1 / (1 + NEW_SPREAD · Σ impressions · p · (1 - p)).
    """

    def add_values(
        self,
        day: int,
        calibrated_logit: np.ndarray,
        impressions: np.ndarray,
        responses: np.ndarray,
        field_value_id: np.ndarray,
    ) -> None:
        """What was forecast for the rows [n] of a day's new values, and what came."""
        known = impressions * expit(calibrated_logit) * expit(-calibrated_logit)
        of_value = np.bincount(field_value_id, known)[field_value_id]
        weight = 1.0 / (1.0 + NEW_SPREAD * of_value)
        self.add(day, calibrated_logit, weight * impressions, weight * responses)

    def correction(self, day: int) -> Correction:
        """What the record says of a day's forecasts of new values."""
        return self._fitted(day, np.inf, least=1)


def _stripes(
    logit: np.ndarray, impressions: np.ndarray, responses: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean logit, impressions and responses of neighbouring logits with equal expected variance."""
    order = np.argsort(logit, kind="stable")
    weight = (impressions * expit(logit) * expit(-logit))[order]
    share = (np.cumsum(weight) - weight / 2) / weight.sum()
    stripe = (share * STRIPES).astype(np.int64)
    columns = (impressions[order], responses[order], (impressions * logit)[order])
    n, y, x = (np.bincount(stripe, column) for column in columns)
    kept = n > 0
    return x[kept] / n[kept], n[kept], y[kept]
