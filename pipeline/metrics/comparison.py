"""Methods against one another on the same test rows, single days, and the largest field values.

Field values that are new or rare, beside all rows.

Money at stake: the value of the responses that are expected, against that of those that came.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from pipeline.formats.days import day_name
from pipeline.metrics.calibration import deviance_terms, log_loss_terms, pcoc_terms
from pipeline.metrics.counts import ResponseCounts
from pipeline.metrics.significance import (
    USUAL,
    Interval,
    Resampling,
    field_value_interval,
    gain_interval,
    over_days,
)
from pipeline.metrics.summary import (
    GAINED,
    Measurement,
    few_days_pcoc,
    overall_pcoc,
    pcoc_intervals,
    summarise,
)


def gains(
    method: Measurement, reference: Measurement, resampling: Resampling = USUAL
) -> dict[str, Interval]:
    """The reference's metric minus the method's, of each of GAINED.

    Positive is better; each with its paired interval (see `gain_interval`).
    """
    return {
        name: gain_interval(statistic, method.counts, reference.counts, resampling)
        for name, statistic in GAINED.items()
    }


def compare(measured: dict[str, Measurement], resampling: Resampling = USUAL) -> dict[str, Any]:
    """What the evaluation report says of several methods on the same test rows.

    Args:
        measured: by method. Among them is "uncalibrated", against which gains are taken.
        resampling: how intervals are made.

    Returns:
        `methods`: `summarise` of each; `gains`: of each but the first, by metric, `value`,
        `low`, `high`, `over` and `days`; `truth`: of each, by metric, in simulated logs.
    """
    base = measured["uncalibrated"]
    others = {name: method for name, method in measured.items() if name != "uncalibrated"}
    return {
        "methods": {name: summarise(m, resampling) for name, m in measured.items()},
        "gains": {
            name: {metric: asdict(gain) for metric, gain in gains(m, base, resampling).items()}
            for name, m in others.items()
        },
        "truth": {
            metric: {name: m.truth[metric] for name, m in measured.items()} for metric in base.truth
        },
    }


DAILY = {"logloss": log_loss_terms, "field_deviance": deviance_terms, "pcoc": pcoc_terms}


def daily_metrics(counts: ResponseCounts) -> dict[str, np.ndarray]:
    """`logloss`, `field_deviance` and `pcoc` of every day, float64 [days]; NaN where undefined.

    Args:
        counts: shape [days, V].
    """
    return {name: terms(counts).ratio() for name, terms in DAILY.items()}


def age_cost(
    rolling: Measurement, frozen: Measurement, learned_until: int, resampling: Resampling = USUAL
) -> dict[str, Any]:
    """What it costs to learn no more: a method's frozen forecasts against its rolling ones.

    Args:
        rolling: every day by what was known on its morning.
        frozen: the same days by what was known on the morning of the first.
        learned_until: the last day whose labels the frozen forecasts have seen.
        resampling: how the interval is made.

    Returns:
        `cost`: frozen minus rolling LogLoss (nats per impression) with its interval; `by_day`: of
        each `day` (days since 1970-01-01) the `days_since_label` and both LogLosses.
    """
    losses = (daily_metrics(m.counts)["logloss"].tolist() for m in (rolling, frozen))
    names = ("day", "days_since_label", "rolling", "frozen")
    days = [day_name(day) for day in rolling.days.tolist()]
    columns = (days, (rolling.days - learned_until).tolist(), *losses)
    return {
        "cost": asdict(gain_interval(log_loss_terms, rolling.counts, frozen.counts, resampling)),
        "by_day": [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)],
    }


def points(counts: ResponseCounts) -> dict[str, float]:
    """Each of GAINED and `pcoc`, without intervals, of counts [days, V]."""
    statistics = GAINED | {"pcoc": pcoc_terms}
    return {name: float(over_days(s, counts).ratio()) for name, s in statistics.items()}


def pcoc_evidence(
    test: ResponseCounts, learning: list[dict[str, Any]], resampling: Resampling = USUAL
) -> dict[str, Any]:
    """PCOC with its interval over the test days and the calibration days that were forecast, too.

    Of what ships, by the same procedure: calibration days that it had not seen when it forecast
    them are evidence as well. Under `few_days` the test days' own interval, where these are so few
    that calibration days have to say how much days differ (`few_days_pcoc`).

    Args:
        test: shape [days, V].
        learning: `day`, `impressions`, `responses`, `expected_responses` and `expected_variance` of
            each such day.
        resampling: how the interval is made.
    """
    of_days = test.sum(axis=1).reshape(-1, 1)
    rows = {n: [row.get(n, 0.0) for row in learning] for n in vars(of_days)}
    before = ResponseCounts(**{n: np.array(row).reshape(-1, 1) for n, row in rows.items()})
    both = {n: np.append(row, vars(of_days)[n]) for n, row in rows.items()}
    return {
        **overall_pcoc(ResponseCounts(**both).reshape(-1, 1), resampling),
        "calibration_days": [row["day"] for row in learning],
        "few_days": few_days_pcoc(of_days, before, resampling),
    }


LISTED = ("impressions", "responses", "expected_responses")


def largest_field_values(
    counts: ResponseCounts,
    names: Sequence[str | None],
    listed: int,
    resampling: Resampling = USUAL,
) -> list[dict[str, Any]]:
    """PCOC of the field values with most impressions, each with a band; the largest first.

    The band is `pcoc_intervals`' at Bonferroni's confidence, so that all bands together hold their
    true values: 1 − (1 − confidence) / number of values.

    Args:
        counts: shape [days, V].
        names: of V field values.
        listed: how many field values at most.
        resampling: whose confidence and blocks are used.

    Returns:
        `field_value`, `field_value_id`, `impressions`, `responses`, `expected_responses`, `pcoc`
        (NaN without responses), `low` and `high` (inf without responses) of each.
    """
    total = counts.sum(axis=0)
    seen = np.flatnonzero(total.impressions > 0)
    ids = seen[np.argsort(-total.impressions[seen], kind="stable")][:listed]
    confidence = 1 - (1 - resampling.confidence) / max(1, len(ids))
    each = pcoc_intervals(counts.take(ids), replace(resampling, confidence=confidence))
    chosen = total.take(ids)
    sums = (getattr(chosen, name) for name in LISTED)
    keys = ("field_value", "field_value_id", *LISTED, "pcoc", "low", "high")
    columns = ([names[i] for i in ids], *(column.tolist() for column in (ids, *sums, *each)))
    return [dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)]


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
    """The metrics of each group of `ValueHistory.groups`, by method.

    Args:
        measured: by method, of the same rows and of the groups of `history`; one or more.
        history: of the days and field values of their counts.
        resampling: how PCOC's interval is made.

    Returns:
        Of each group `impressions`, `responses` and `methods`: of each `points`, `pcoc_low` and
        `pcoc_high` (see `pcoc_intervals`), and its `of_groups`. NaN where undefined.
    """
    found = {}
    for name, picked in history.groups().items():
        counts = {method: m.counts.where(picked) for method, m in measured.items()}
        total = next(iter(counts.values())).sum()
        found[name] = {
            "impressions": total.impressions.item(),
            "responses": total.responses.item(),
            "methods": {
                method: _of_group(each, resampling) | measured[method].of_groups[name]
                for method, each in counts.items()
            },
        }
    return found


def _of_group(counts: ResponseCounts, resampling: Resampling) -> dict[str, float]:
    ratio = overall_pcoc(counts, resampling)
    return points(counts) | {"pcoc_low": ratio["low"], "pcoc_high": ratio["high"]}


def worth(counts: ResponseCounts, resampling: Resampling = USUAL) -> dict[str, float]:
    """Expected and observed value of all rows, and how far they are apart.

    Args:
        counts: shape [days, V], of rows that count as often as a response of theirs is worth.
        resampling: how the interval is made. A single field value's is over days alone.

    Returns:
        `expected`: Σ impressions · p · value, what is paid where expected responses are billed;
        `observed`: Σ responses · value; `pcoc`: expected / observed, PCOC weighted by value, NaN
        without any, with `low` and `high` by `field_value_interval`.
    """
    total = counts.sum()
    ratio = field_value_interval(pcoc_terms, counts, resampling)
    return {
        "expected": float(total.expected_responses),
        "observed": float(total.responses),
        **{"pcoc": ratio.value, "low": ratio.low, "high": ratio.high},
    }


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
        listed: at most so many field values, those where expected and observed are furthest apart.
        resampling: as in `worth`.
    """
    of_model = counts["model"]
    total = of_model.sum(axis=0)
    apart = np.abs(total.expected_responses - total.responses)
    ids = np.argsort(-apart, kind="stable")[: min(listed, int((apart > 0).sum()))]
    return {
        "methods": {name: worth(each, resampling) for name, each in counts.items()},
        "field_values": [
            {"field_value": names[i]} | worth(of_model.take(np.array([i])), resampling)
            for i in ids.tolist()
        ],
    }


def worth_columns(counts: ResponseCounts) -> dict[str, np.ndarray]:
    """`expected` and `observed` value of each field value over all days, float64 [V] each."""
    total = counts.sum(axis=0)
    return {"expected": total.expected_responses, "observed": total.responses}
