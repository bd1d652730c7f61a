"""Money at stake: the value of the responses that are expected, against that of those that came."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pipeline.metrics.calibration import pcoc_terms
from pipeline.metrics.counts import ResponseCounts
from pipeline.metrics.significance import USUAL, Resampling, field_value_interval


@dataclass(frozen=True)
class Worth:
    """Expected and observed value of some rows.

    Attributes:
        expected: Σ impressions · p · value: what is paid where expected responses are billed.
        observed: Σ responses · value.
        pcoc: expected / observed, PCOC weighted by value; NaN without any.
        low, high: its interval; NaN where there is none.
    """

    expected: float
    observed: float
    pcoc: float
    low: float
    high: float


def worth(counts: ResponseCounts, resampling: Resampling = USUAL) -> Worth:
    """Expected and observed value of all rows, with the interval of `field_value_interval`.

    Args:
        counts: shape [days, V], of rows that count as often as a response of theirs is worth.
        resampling: how the interval is made. A single field value's is over days alone.
    """
    total = counts.sum()
    ends = field_value_interval(pcoc_terms, counts, resampling)
    sums = float(total.expected_responses), float(total.responses)
    return Worth(*sums, ends.value, ends.low, ends.high)


def worth_report(
    counts: Mapping[str, ResponseCounts],
    names: Sequence[str | None],
    listed: int,
    resampling: Resampling = USUAL,
) -> dict[str, Any]:
    """The worth of each method, and of whom what ships is wrong by most.

    Args:
        counts: by method, as in `worth`; `model` is what ships.
        names: of V field values.
        listed: how many field values at most, those where expected and observed value are furthest
            apart.
        resampling: as in `worth`.
    """
    of_model = counts["model"]
    total = of_model.sum(axis=0)
    apart = np.abs(total.expected_responses - total.responses)
    ids = np.argsort(-apart, kind="stable")[: min(listed, int((apart > 0).sum()))]
    return {
        "methods": {name: asdict(worth(each, resampling)) for name, each in counts.items()},
        "field_values": [
            {"field_value": names[i]} | asdict(worth(of_model.take(np.array([i])), resampling))
            for i in ids.tolist()
        ],
    }


def worth_columns(counts: ResponseCounts) -> dict[str, np.ndarray]:
    """`expected` and `observed` value of each field value over all days, float64 [V] each."""
    total = counts.sum(axis=0)
    return {"expected": total.expected_responses, "observed": total.responses}
