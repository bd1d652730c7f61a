"""Raw days beside their recent days: errors, which stop a run, and warnings, which are reported."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from pipeline.quality import suites
from pipeline.quality.suites import CheckResult, Rule, Suite

CHANCE = 2.0  # of square roots of counts: four standard errors, as theirs is 1/2
RuleLimits = Mapping[str, Mapping[str, float | None]]


def day_frame(facts: Mapping[str, Mapping[str, Any]], recent_days: int) -> pd.DataFrame:
    """One row a day, ascending, with how far it is from its recent days.

    Args:
        facts: day → rows, impressions, responses, field_nulls and new_rows.
        recent_days: how many days of the log before a day are its recent ones.

    Returns:
        The facts; of the recent days `recent_impressions` (their median) and `recent_rate`, NaN on
        the first day, which has none; and a column for each rule of `recent days`, +inf where it is
        undefined. `response_rate_factor` is the least factor f for which √responses is at most
        CHANCE · √(1 + n / n_recent) outside √(expected ·/÷ f): the square root of a count has the
        standard error 1/2 whatever the count is, and the second term is that of the recent days'
        own rate.
    """
    days = sorted(facts)
    frame = pd.DataFrame([{"day": day, **facts[day]} for day in days])
    shown, responses = frame["impressions"], frame["responses"]
    before, responses_before = (
        column.shift().rolling(recent_days, min_periods=1) for column in (shown, responses)
    )
    total, usual = before.sum(), before.median()
    rate = responses_before.sum() / total
    expected, chance = shown * rate, CHANCE * np.sqrt(1 + shown / total)
    surely_more = (np.sqrt(responses) - chance).clip(lower=0) ** 2
    more = (surely_more / expected).mask(surely_more == 0, 0)
    less = expected / (np.sqrt(responses) + chance) ** 2
    factors = {
        "impressions_factor": np.maximum(shown / usual, usual / shown),
        "response_rate_factor": np.maximum(more, less),
        "new_value_share": frame["new_rows"] / frame["rows"],
    }
    return suites.with_not_finite(frame).assign(
        rate=responses / shown,
        recent_impressions=usual,
        recent_rate=rate,
        **{name: factor.fillna(np.inf) for name, factor in factors.items()},
    )


def column_frame(
    nulls: Mapping[str, Mapping[str, int]], rows: Mapping[str, int], recent_days: int
) -> pd.DataFrame:
    """One row for every day but the first and column: its share of nulls and the recent days'.

    Args:
        nulls: day → column → rows without a value.
        rows: day → rows.
        recent_days: as in `day_frame`.

    Returns:
        `day`, `column`, `share`, `recent_share` and their difference `null_share_rise`, +inf where
        it is undefined.
    """
    days = sorted(nulls)
    held = pd.Series({day: rows[day] for day in days}, dtype=np.float64)
    counts = pd.DataFrame({day: nulls[day] for day in days}, dtype=np.float64).T
    recent = counts.shift().rolling(recent_days, min_periods=1).sum()
    recent_share = recent.div(held.shift().rolling(recent_days, min_periods=1).sum(), axis=0)
    shares = {"share": counts.div(held.clip(lower=1), axis=0), "recent_share": recent_share}
    stacked = {name: share.iloc[1:].melt(ignore_index=False) for name, share in shares.items()}
    frame = pd.DataFrame({name: long["value"].to_numpy() for name, long in stacked.items()})
    frame["null_share_rise"] = (frame["share"] - frame["recent_share"]).fillna(np.inf)
    places = stacked["share"]
    return frame.assign(day=places.index, column=places["variable"].to_numpy())


def check_days(days: pd.DataFrame, columns: pd.DataFrame, limits: RuleLimits) -> list[CheckResult]:
    """Every check; no days, missing numbers, NaN and infinities all fail.

    Args:
        days: as `day_frame` makes it. The first day has no recent days and is compared with none.
        columns: as `column_frame` makes it.
        limits: rule of `recent days` or `columns` → severity → limit, None where there is none.
    """
    compared = days.iloc[1:].reset_index(drop=True)
    return suites.run_suites(
        [
            Suite("days", days, suites.RULES["raw days"]),
            Suite("days beside their recent days", compared, _limited("recent days", limits)),
            Suite("columns", columns, _limited("columns", limits)),
        ]
    )


def _limited(frame: str, limits: RuleLimits) -> list[Rule]:
    """The rules that have a limit; a share of new values must be below it, others may reach it."""
    return [
        told
        | {"severity": severity, "limit": limit, "max_value": limit}
        | {"strict_max": told["name"] == "new_value_share" and limit > 0}
        for told in suites.RULES[frame]
        for severity in suites.SEVERITIES
        if (limit := limits[told["name"]][severity]) is not None
    ]
