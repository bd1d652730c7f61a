"""What must be true of the field statistics, each rule over all rows at once and aware of groups.

A row with a value that is missing or not a number keeps no rule: every comparison with it is false.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Rule:
    """One thing that must be true of every row.

    Attributes:
        name: short name in reports.
        sentence: what is true of every row that keeps the rule.
        keeps: the frame and a limit → boolean [rows], true where the rule is kept.
        breach: a row that breaks it, as a named tuple → what is wrong there.
    """

    name: str
    sentence: str
    keeps: Callable[[pd.DataFrame, float], np.ndarray]
    breach: Callable[[Any], str]


def _same_group(frame: pd.DataFrame) -> np.ndarray:
    """Whether each row is of the same field value and candidate as the row before it."""
    group = frame[["field_value_id", "requested_bins"]].to_numpy(dtype=np.float64)
    same = np.zeros(len(frame), dtype=bool)
    same[1:] = (group[1:] == group[:-1]).all(axis=1)
    return same


def _ascending_groups(frame: pd.DataFrame) -> np.ndarray:
    """Whether each row's (field value, candidate) comes after or is that of the row before it."""
    value = frame["field_value_id"].to_numpy(dtype=np.float64)
    requested = frame["requested_bins"].to_numpy(dtype=np.float64)
    after = np.ones(len(frame), dtype=bool)
    after[1:] = (value[1:] > value[:-1]) | (
        (value[1:] == value[:-1]) & (requested[1:] >= requested[:-1])
    )
    return after


def _finite(frame: pd.DataFrame, _: float) -> np.ndarray:
    finite = np.ones(len(frame), dtype=bool)
    for name in frame:
        finite &= np.isfinite(frame[name].to_numpy(dtype=np.float64, na_value=np.nan))
    return finite


def _numbered(frame: pd.DataFrame, _: float) -> np.ndarray:
    same = _same_group(frame)
    start = np.maximum.accumulate(np.where(same, 0, np.arange(len(frame))))
    number = np.arange(len(frame)) - start
    rows = np.bincount(start, minlength=len(frame))[start]
    effective = frame["effective_bins"].to_numpy(dtype=np.float64)
    return (
        _ascending_groups(frame)
        & (frame["bin_id"].to_numpy(dtype=np.float64) == number)
        & (effective == rows)
        & (effective <= frame["requested_bins"].to_numpy(dtype=np.float64))
    )


def _increasing(frame: pd.DataFrame, _: float) -> np.ndarray:
    lower, upper = frame["lower_bound"].to_numpy(), frame["upper_bound"].to_numpy()
    return (lower < upper) | ((lower == upper) & (frame["effective_bins"] == 1).to_numpy())


def _contiguous(frame: pd.DataFrame, _: float) -> np.ndarray:
    upper_before = frame["upper_bound"].shift().to_numpy()
    return ~_same_group(frame) | (upper_before == frame["lower_bound"].to_numpy())


def _counted(frame: pd.DataFrame, _: float) -> np.ndarray:
    impressions, responses = frame["impressions"], frame["responses"]
    return ((impressions > 0) & (responses >= 0) & (responses <= impressions)).to_numpy()


def _posterior(frame: pd.DataFrame, _: float) -> np.ndarray:
    error = frame["posterior"] * frame["impressions"] - frame["responses"]
    return (error.abs() <= 1e-9 * frame["impressions"]).to_numpy()


def _mean_inside(frame: pd.DataFrame, _: float) -> np.ndarray:
    lower, upper = frame["lower_bound"].astype("f8"), frame["upper_bound"].astype("f8")
    slack = 1e-9 * (1 + np.maximum(lower.abs(), upper.abs()))
    mean = frame["logit_sum"] / frame["impressions"].where(frame["impressions"] > 0)
    return ((mean >= lower - slack) & (mean <= upper + slack)).to_numpy()


def evenly_shared(frame: pd.DataFrame, tolerance: float) -> np.ndarray:
    """A cut moves to an end of the tie it falls into, so no farther than ties near it are large.

    Two impressions are always granted: one for the rounding of ranks, one for a greatest logit that
    joined the bin before because no bound lies between.
    """
    same = _same_group(frame)
    impressions = frame["impressions"].to_numpy(dtype=np.float64)
    group = np.cumsum(~same) - 1
    even = np.bincount(group, impressions)[group] / frame["requested_bins"].to_numpy("f8")
    tie = frame["largest_tie"].to_numpy(dtype=np.float64)
    before = np.where(same, np.roll(tie, 1), 0)
    after = np.where(np.roll(same, -1), np.roll(tie, -1), 0)
    moved = 2 * np.maximum(tie, np.maximum(before, after))
    tied = moved > 2  # one impression at a logit is no tie
    slack = tolerance * even + 2 + np.where(tied, moved, 0)
    return np.abs(impressions - even) <= slack


def _probable(frame: pd.DataFrame, _: float) -> np.ndarray:
    total, slack = frame["probability_sum"], 1 + 1e-6
    return ((total >= 0) & (total <= slack * frame["impressions"])).to_numpy()


def _covered(frame: pd.DataFrame, _: float) -> np.ndarray:
    return (frame["rows"] >= 1).to_numpy()


def _expected(frame: pd.DataFrame, _: float) -> np.ndarray:
    return (frame["log_impressions"] > 0).to_numpy()


def _impressions_add_up(frame: pd.DataFrame, _: float) -> np.ndarray:
    return (frame["impressions"] == frame["log_impressions"]).to_numpy()


def _responses_add_up(frame: pd.DataFrame, _: float) -> np.ndarray:
    return (frame["responses"] == frame["log_responses"]).to_numpy()


def _cells_add_up(frame: pd.DataFrame, _: float) -> np.ndarray:
    impressions = frame["cell_impressions"] == frame["log_impressions"]
    return (impressions & (frame["cell_responses"] == frame["log_responses"])).to_numpy()


def _not_finite(row: Any) -> str:
    values = row._asdict()
    bad = [name for name, value in values.items() if pd.isna(value) or not np.isfinite(value)]
    return f"{bad[0]} is {values[bad[0]]}"


FINITE = Rule("finite", "every number is finite", _finite, _not_finite)
COUNTS = Rule(
    "counts",
    "there are impressions, and no more responses than impressions",
    _counted,
    lambda r: f"it has {r.responses} responses of {r.impressions} impressions",
)
BIN_RULES = (
    FINITE,
    Rule(
        "effective_bins",
        "the bins of a field value are numbered 0 … effective_bins - 1, no more than requested",
        _numbered,
        lambda r: (
            f"it says {r.effective_bins} effective of {r.requested_bins} requested bins, "
            "which is not how its bins are numbered"
        ),
    ),
    Rule(
        "increasing_bounds",
        "bounds increase strictly",
        _increasing,
        lambda r: f"its bounds {r.lower_bound} and {r.upper_bound} do not increase",
    ),
    Rule(
        "contiguous_bounds",
        "the upper bound of a bin is the lower bound of the next",
        _contiguous,
        lambda r: f"its lower bound {r.lower_bound} is not the upper bound of the bin before",
    ),
    COUNTS,
    Rule(
        "posterior",
        "the posterior is responses / impressions",
        _posterior,
        lambda r: f"its posterior {r.posterior} is not {r.responses} / {r.impressions}",
    ),
    Rule(
        "mean_logit",
        "the mean logit of a bin lies between its bounds",
        _mean_inside,
        lambda r: (
            f"its mean logit, {r.logit_sum} / {r.impressions}, is outside "
            f"[{r.lower_bound}, {r.upper_bound}]"
        ),
    ),
    Rule(
        "equal_frequency",
        "bins share the impressions of their field value evenly, as far as ties allow",
        evenly_shared,
        lambda r: (
            f"it has {r.impressions} impressions, which is not an even share and no tie explains it"
        ),
    ),
)
GROUP_RULES = (
    Rule(
        "coverage",
        "every field value with impressions has bins of every candidate",
        _covered,
        lambda r: f"the log has {r.log_impressions} impressions, the table no bins",
    ),
    Rule(
        "expected",
        "every field value in the table has impressions in the log, and its K is a candidate",
        _expected,
        lambda r: f"the table has {r.rows} bins where none are expected",
    ),
    Rule(
        "impressions_add_up",
        "the impressions of a field value's bins add up to the log's",
        _impressions_add_up,
        lambda r: f"its bins hold {r.impressions} impressions, the log {r.log_impressions}",
    ),
    Rule(
        "responses_add_up",
        "the responses of a field value's bins add up to the log's",
        _responses_add_up,
        lambda r: f"its bins hold {r.responses} responses, the log {r.log_responses}",
    ),
    Rule(
        "cells_add_up",
        "the cells of a field value add up to the log's impressions and responses",
        _cells_add_up,
        lambda r: (
            f"its cells hold {r.cell_responses} responses of {r.cell_impressions} "
            f"impressions, the log {r.log_responses} of {r.log_impressions}"
        ),
    ),
)
CELL_RULES = (
    FINITE,
    COUNTS,
    Rule(
        "probability_sum",
        "the probabilities of a cell add up to at most its impressions",
        _probable,
        lambda r: f"its probabilities add up to {r.probability_sum} in {r.impressions} impressions",
    ),
)
RULES = {rule.name: rule for rule in BIN_RULES + CELL_RULES + GROUP_RULES}
