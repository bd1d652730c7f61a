"""What the checks of raw days look at: each day's counts, with those of its recent days beside."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd


def day_frame(facts: Mapping[str, Mapping[str, Any]], recent_days: int) -> pd.DataFrame:
    """One row a day, ascending.

    Args:
        facts: day → rows, impressions, responses, field_nulls and new_rows.
        recent_days: how many days of the log before a day are its recent ones.

    Returns:
        The facts, and of the recent days (NaN on the first, which has none): `recent_impressions`,
        the median, `recent_total` and `recent_responses`, sums.
    """
    days = sorted(facts)
    frame = pd.DataFrame([{"day": day, **facts[day]} for day in days])
    before = frame[["impressions", "responses"]].shift().rolling(recent_days, min_periods=1)
    frame["recent_impressions"] = before["impressions"].median()
    frame["recent_total"] = before["impressions"].sum()
    frame["recent_responses"] = before["responses"].sum()
    return frame


def column_frame(
    nulls: Mapping[str, Mapping[str, int]], rows: Mapping[str, int], recent_days: int
) -> pd.DataFrame:
    """One row for every day but the first and column, with `recent_share`: its nulls on the recent
    days.

    Args:
        nulls: day → column → rows without a value.
        rows: day → rows.
        recent_days: as in `day_frame`.
    """
    days = sorted(nulls)
    counts = pd.DataFrame([nulls[day] for day in days], dtype=np.float64)
    held = pd.Series([rows[day] for day in days], dtype=np.float64)
    sums = counts.shift().rolling(recent_days, min_periods=1).sum()
    share = sums.div(held.shift().rolling(recent_days, min_periods=1).sum(), axis=0)
    long = [
        pd.DataFrame(
            {
                "day": days[1:],
                "column": name,
                "rows": held[1:],
                "nulls": counts[name][1:],
                "recent_share": share[name][1:],
            }
        )
        for name in counts
    ]
    return pd.concat(long, ignore_index=True)
