"""How methods do on field values that are new or rare, beside all rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.metrics.calibration import log_loss_terms
from pipeline.metrics.counts import ResponseCounts
from pipeline.metrics.significance import USUAL, Resampling
from pipeline.metrics.summary import Measurement, overall_pcoc

FEW_RESPONSES = 50  # a rate known from fewer is known to a seventh at best
AGES = {"0": (0, 0), "1": (1, 1), "2": (2, 2), "3-6": (3, 6), "7+": (7, None)}  # first and last day


@dataclass(frozen=True)
class ValueHistory:
    """What was known of every field value on the morning of every day.

    Attributes:
        age: int [days, V], days since its first day in the log, which is 0; negative: none yet.
        known: bool [days, V], whether it had a map of its own.
        responses: float [days, V], of the days that its map had learned from.
    """

    age: np.ndarray
    known: np.ndarray
    responses: np.ndarray

    def groups(self) -> dict[str, np.ndarray]:
        """Name -> the days and field values of a group, bool [days, V].

        `all`; `unseen`, served by the unseen value's map; `rare`, known by fewer than FEW_RESPONSES
        responses; `age_…` days. A value may be in several.
        """
        ages = {
            f"age_{name}": (self.age >= first) & (last is None or self.age <= last)
            for name, (first, last) in AGES.items()
        }
        rare = self.known & (self.responses < FEW_RESPONSES)
        return {"all": np.ones_like(self.known), "unseen": ~self.known, "rare": rare} | ages


def measure_new_values(
    measured: Mapping[str, Measurement], history: ValueHistory, resampling: Resampling = USUAL
) -> dict[str, Any]:
    """LogLoss and PCOC of each group of `ValueHistory.groups`, by method.

    Args:
        measured: by method, of the same rows; one or more.
        history: of the days and field values of their counts.
        resampling: how PCOC's interval is made.

    Returns:
        Of each group `impressions`, `responses` and `methods`: of each `logloss` (nats per
        impression), `pcoc`, `pcoc_low` and `pcoc_high` (see `pcoc_intervals`). NaN where undefined.
    """
    found = {}
    for name, picked in history.groups().items():
        of_days = {
            method: m.counts.where(picked).sum(axis=1).reshape(-1, 1)
            for method, m in measured.items()
        }
        total = next(iter(of_days.values())).sum()
        found[name] = {
            "impressions": total.impressions.item(),
            "responses": total.responses.item(),
            "methods": {method: _summary(counts, resampling) for method, counts in of_days.items()},
        }
    return found


def _summary(counts: ResponseCounts, resampling: Resampling) -> dict[str, float]:
    value, low, high = overall_pcoc(counts, resampling).values()
    logloss = float(log_loss_terms(counts.sum(axis=0)).ratio())
    return {"logloss": logloss, "pcoc": value, "pcoc_low": low, "pcoc_high": high}
