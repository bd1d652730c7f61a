"""What the treatment did to each metric: tea-tasting on sums by unit, stratified by period."""

from collections.abc import Collection, Sequence
from typing import Any

import tea_tasting as tt
from tea_tasting.aggr import Aggregates, read_aggregates

LEAST_RATIO_PVALUE = 0.001
"""Below it a sample ratio is no accident."""

METRICS: dict[str, tuple[str, str | None, int]] = {
    "CTR": ("clicks", "impressions", 1),
    "CVR": ("responses", "clicks", 1),
    "response rate": ("responses", "impressions", 1),
    "GMV per unit": ("gmv", None, 1),
    "eCPM": ("revenue", "impressions", 1000),
    "revenue per unit": ("revenue", None, 1),
}
"""Numerator, denominator (None: the unit), and what an observation is multiplied by."""

SHOWN = {
    **{"effect": "rel_effect_size", "low": "rel_effect_size_ci_lower"},
    **{"high": "rel_effect_size_ci_upper", "pvalue": "pvalue", "pvalue_adj": "pvalue_adj"},
}
Arms = dict[int, Aggregates]
"""Moments of sums by unit: 0 of the control, 1 of the treatment."""


def moments(units: Any, columns: Collection[str]) -> dict[int, Aggregates]:
    """Count, means, variances and covariances of `columns` in each `cell`.

    Args:
        units: a row for each unit: a DuckDB relation or another table that Narwhals reads.
    """
    pairs = [(left, right) for left in columns for right in columns if left < right]
    return read_aggregates(
        units, "cell", has_count=True, mean_cols=columns, var_cols=columns, cov_cols=pairs
    )


def stratified(periods: Sequence[Arms]) -> Arms:
    """One pair of arms from several periods, each weighted by its units of both arms.

    The means are Σ w m, their variances Σ w² v / n; they are given as those of as many units as
    the arm has, so that whatever is made of the result is that of the stratified means.
    """
    units = [arms[0].count() + arms[1].count() for arms in periods]
    weights = [n / sum(units) for n in units]
    return {arm: _weighted([arms[arm] for arms in periods], weights) for arm in (0, 1)}


def _weighted(parts: Sequence[Aggregates], weights: Sequence[float]) -> Aggregates:
    count = sum(part.count() for part in parts)
    spread = [count * w * w / part.count() for w, part in zip(weights, parts, strict=True)]

    def total(which: str, factors: Sequence[float]) -> dict[Any, float | int]:
        columns = [getattr(part, which) for part in parts]
        return {k: sum(f * c[k] for f, c in zip(factors, columns, strict=True)) for k in columns[0]}

    return Aggregates(count, total("mean_", weights), total("var_", spread), total("cov_", spread))


def sample_ratio(arms: Arms, share: float) -> float:
    """The p-value of the units of two arms, of which the treatment should have `share`."""
    return float(tt.SampleRatio(share / (1 - share)).analyze(arms, 0, 1).pvalue)


def effects(arms: Arms, names: Collection[str], pre: bool = False) -> list[dict[str, Any]]:
    """Every metric with its relative effect, its 95 % interval and two p-values.

    Ratios by the delta method, a pre-period as covariate (CUPED) where it varies; `pvalue_adj` is
    Holm's over all metrics, which may depend on one another in any way.

    Args:
        arms: moments of the columns of METRICS, with `pre` also of `pre_…`.
        names: which metrics.
        pre: whether there is a pre-period.

    Returns:
        By metric `control`, `treatment`, `effect`, `low`, `high`, `pvalue`, `pvalue_adj` and
        whether it is `significant`; a metric that is constant in an arm has `effect` None alone.
    """
    defined = {
        name: _metric(arms, *METRICS[name][:2], pre)
        for name in names
        if all(arm.mean(METRICS[name][0]) > 0 < arm.var(METRICS[name][0]) for arm in arms.values())
    }
    adjusted: dict[str, Any] = {}
    if defined:
        results = tt.Experiment(defined).analyze(arms, 0)
        holm = tt.adjust_fwer(results, arbitrary_dependence=True, method="bonferroni")
        (adjusted,) = holm.values()
    return [
        {"metric": name} | (_row(adjusted[name], name) if name in defined else {"effect": None})
        for name in names
    ]


def _metric(arms: Arms, numerator: str, denominator: str | None, pre: bool) -> tt.RatioOfMeans:
    before = [f"pre_{column}" if column else None for column in (numerator, denominator)]
    known = pre and all(arm.mean(c) > 0 for arm in arms.values() for c in before if c)
    return tt.RatioOfMeans(numerator, denominator, *(before if known else ()))


def _row(result: dict[str, Any], name: str) -> dict[str, Any]:
    sides = {side: METRICS[name][2] * result[side] for side in ("control", "treatment")}
    shown = {key: result[theirs] for key, theirs in SHOWN.items()}
    return sides | shown | {"significant": bool(result["null_rejected"])}
