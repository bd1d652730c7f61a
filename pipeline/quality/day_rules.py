"""What must be true of raw days beside their recent days, each rule over all days at once.

Every rule is a comparison with a limit, so a day whose number is missing or not finite keeps none.
"""

from typing import Any

import numpy as np
import pandas as pd

from pipeline.quality.rules import Rule

CHANCE = 2.0  # of square roots of counts: four standard errors, as theirs is 1/2


def _numbers(frame: pd.DataFrame, name: str) -> np.ndarray:
    return frame[name].to_numpy(dtype=np.float64, na_value=np.nan)


def _held(frame: pd.DataFrame, _: float) -> np.ndarray:
    finite = [np.isfinite(_numbers(frame, name)) for name in ("rows", "impressions", "responses")]
    return np.logical_and.reduce([*finite, _numbers(frame, "impressions") >= 1])


def _has_field(frame: pd.DataFrame, _: float) -> np.ndarray:
    return _numbers(frame, "field_nulls") < _numbers(frame, "rows")


def _like_recent_impressions(frame: pd.DataFrame, factor: float) -> np.ndarray:
    shown, usual = _numbers(frame, "impressions"), _numbers(frame, "recent_impressions")
    return (shown >= usual / factor) & (shown <= usual * factor)


def _like_recent_rate(frame: pd.DataFrame, factor: float) -> np.ndarray:
    """Whether √responses is at most CHANCE · √(1 + n / n_recent) outside √(expected ·/÷ factor).

    The square root of a count has the standard error 1/2 whatever the count is; the second term is
    that of the recent days' own rate.
    """
    shown, recent = _numbers(frame, "impressions"), _numbers(frame, "recent_total")
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = shown * _numbers(frame, "recent_responses") / recent
        chance = CHANCE * np.sqrt(1 + shown / recent)
    found = np.sqrt(_numbers(frame, "responses"))
    low, high = np.sqrt(expected / factor) - chance, np.sqrt(expected * factor) + chance
    return (found >= low) & (found <= high)


def _known_values(frame: pd.DataFrame, limit: float) -> np.ndarray:
    return _numbers(frame, "new_rows") < np.maximum(limit * _numbers(frame, "rows"), 1)


def _as_many_nulls(frame: pd.DataFrame, limit: float) -> np.ndarray:
    share = _numbers(frame, "nulls") / np.maximum(_numbers(frame, "rows"), 1)
    return share <= _numbers(frame, "recent_share") + limit


def _rate(responses: float, impressions: float) -> str:
    return f"{responses / impressions:.3g}" if impressions else "undefined"


def _null_share(row: Any) -> str:
    return (
        f"{row.nulls / max(row.rows, 1):.1%} of the rows have no value, on the recent days "
        f"{row.recent_share:.1%}"
    )


DAY_RULES = (
    Rule(
        "day_holds_rows",
        "every day has impressions, and its counts are numbers",
        _held,
        lambda r: f"it has {r.impressions} impressions and {r.responses} responses",
    ),
    Rule(
        "day_has_field",
        "every day has rows with a field value",
        _has_field,
        lambda r: f"none of its {r.rows} rows has a field value",
    ),
)
RECENT_RULES = {
    "impressions_factor": Rule(
        "impressions_factor",
        "a day has about as many impressions as the recent days",
        _like_recent_impressions,
        lambda r: (
            f"it has {r.impressions:,} impressions, the recent days {r.recent_impressions:,.0f} "
            "(median)"
        ),
    ),
    "response_rate_factor": Rule(
        "response_rate_factor",
        "a day's response rate is about that of the recent days",
        _like_recent_rate,
        lambda r: (
            f"its response rate is {_rate(r.responses, r.impressions)} ({r.responses:,} of "
            f"{r.impressions:,}), that of the recent days "
            f"{_rate(r.recent_responses, r.recent_total)}"
        ),
    ),
    "new_value_share": Rule(
        "new_value_share",
        "a day's field values are known from the recent days",
        _known_values,
        lambda r: (
            f"{r.new_rows:,} of its {r.rows:,} rows have a field value that no recent day has"
        ),
    ),
}
COLUMN_RULES = {
    "null_share_rise": Rule(
        "null_share_rise",
        "a column has about as many rows without a value as on the recent days",
        _as_many_nulls,
        _null_share,
    ),
}
ALL_DAY_RULES = {rule.name: rule for rule in DAY_RULES} | RECENT_RULES | COLUMN_RULES
