"""The whole analysis of an experiment: what can be claimed, what cannot, and why.

What the treatment did to each metric: tea-tasting on sums by unit, stratified by period.

How well each version is calibrated on the rows that each arm served.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import tea_tasting as tt
from tea_tasting.aggr import Aggregates, read_aggregates

from pipeline.core.errors import NotEnoughDataError
from pipeline.metrics.calibration import deviance_terms, log_loss_terms
from pipeline.metrics.comparison import largest_field_values
from pipeline.metrics.counts import ResponseCounts
from pipeline.metrics.summary import pcoc_intervals
from pipeline.online.experiment_log import ExperimentLog
from pipeline.report.page import SENTENCES

LISTED = 50  # field values that are looked at one by one, the largest
WORST = 5  # of them that are named
LARGEST = (
    "SELECT field_value FROM cells WHERE arm = ? GROUP BY ALL "
    f"ORDER BY sum(n) DESC, field_value LIMIT {LISTED}"
)
BY_VALUE = (  # every day and listed value of an arm, zeros where it has no rows
    "(SELECT DISTINCT arm, day FROM cells) CROSS JOIN (SELECT unnest($names) AS field_value) "
    "LEFT JOIN cells USING (arm, day, field_value)"
)


def traffic_calibration(log: ExperimentLog) -> list[dict[str, Any]]:
    """A row for each version and arm: PCOC with its interval, daily deviance, LogLoss, the worst.

    Every version is measured on the rows on which all have a probability. `wrong` are the largest
    field values whose Bonferroni band excludes 1, those that are wrong by most responses first.
    """
    places = range(len(log.versions))
    sums = ", ".join(
        f"sum(impressions * p{i}) AS e{i}, sum(impressions * p{i} * (1 - p{i})) AS v{i}, "
        f"-sum(responses * ln(greatest(p{i}, 1e-300)) + (impressions - responses) * "
        f"ln(greatest(1 - p{i}, 1e-16))) AS l{i}"
        for i in places
    )
    known = "".join(f" AND p{i} IS NOT NULL" for i in places)
    log.database.execute(
        f"CREATE TABLE cells AS SELECT arm, instant::DATE AS day, field_value, "
        f"sum(impressions) AS n, sum(responses) AS o, {sums} FROM logged "
        f"WHERE {log.during} AND arm IS NOT NULL AND impressions > 0{known} GROUP BY ALL"
    )
    return [_traffic_row(log, i, arm) for i in places for arm in log.arms]


def _traffic_row(log: ExperimentLog, place: int, arm: str) -> dict[str, Any]:
    days = _counts(log, place, arm, "cells", "day").reshape(-1, 1)
    cells, total = _counts(log, place, arm, "cells", "day, field_value"), days.sum().reshape(1)
    pcoc, low, high = (float(end[0]) for end in pcoc_intervals(days))
    return {
        "version": log.versions[place],
        "traffic": arm,
        "impressions": float(total.impressions[0]),
        "responses": float(total.responses[0]),
        "expected_responses": float(total.expected_responses[0]),
        **{"pcoc": pcoc, "low": low, "high": high},
        "daily_field_deviance": float(deviance_terms(cells).ratio()),
        "logloss": float(log_loss_terms(total).ratio()),
        "wrong": _wrong(log, place, arm) if log.field and len(cells.responses) else [],
    }


def _wrong(log: ExperimentLog, place: int, arm: str) -> list[dict[str, Any]]:
    names = [row[0] for row in log.database.execute(LARGEST, [arm]).fetchall()]
    counts = _counts(log, place, arm, BY_VALUE, "day, field_value", names=names)
    listed = largest_field_values(counts.reshape(-1, len(names)), sorted(names), LISTED)
    wrong = [row for row in listed if row["low"] > 1 or row["high"] < 1]
    return sorted(wrong, key=lambda row: -abs(row["expected_responses"] - row["responses"]))[:WORST]


def _counts(
    log: ExperimentLog, place: int, arm: str, table: str, groups: str, **given: list[str]
) -> ResponseCounts:
    """The sums of an arm's groups, float64 [groups], in their order."""
    columns = ("n", "o", f"e{place}", f"v{place}", f"l{place}")
    sums = ", ".join(f"coalesce(sum({column}), 0)::DOUBLE AS {column}" for column in columns)
    found = log.database.execute(
        f"SELECT {sums} FROM {table} WHERE arm = $arm GROUP BY {groups} ORDER BY {groups}",
        {"arm": arm, **given},
    ).fetchnumpy()
    return ResponseCounts(*(np.asarray(found[column]) for column in columns))


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
ROUNDING = 1e-9  # share of a numerator's variance
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
        if _varies(arms, *METRICS[name][:2])
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
    known = pre and _varies(arms, *before)
    return tt.RatioOfMeans(numerator, denominator, *(before if known else ()))


def _varies(arms: Arms, numerator: str | None, denominator: str | None) -> bool:
    """Whether a metric is above 0 in both arms, and differs between units by more than rounding:
    what is paid for every impression alike has an eCPM without variance.
    """
    return all(
        arm.mean(numerator) > 0 < arm.mean(denominator)
        and arm.ratio_var(numerator, denominator) * arm.mean(denominator) ** 2
        > ROUNDING * arm.var(numerator)
        for arm in arms.values()
    )


def _row(result: dict[str, Any], name: str) -> dict[str, Any]:
    sides = {side: METRICS[name][2] * result[side] for side in ("control", "treatment")}
    shown = {key: result[theirs] for key, theirs in SHOWN.items()}
    return sides | shown | {"significant": bool(result["null_rejected"])}


MONEY = {"gmv", "revenue"}
WITHHOLDING = ("not_randomised", "broken", "early")


def analyse(log: ExperimentLog, separate_budgets: bool = False) -> dict[str, Any]:
    """What a log says of its test: facts by name, as JSON carries them.

    Args:
        log: as `open_log` returns it.
        separate_budgets: whether no advertiser's budget was spent by both arms.

    Returns:
        `first_day`, `last_day` (mature), `planned_last_day`; `arms`: totals of each;
        `sample_ratio`: of each period; `effects` (see there), empty where `withheld` has reasons;
        `calibration` (see `traffic_calibration`); `notes`: what limits the claims, a sentence each.

    Raises:
        NotEnoughDataError: an arm has fewer than two units in a period.
    """
    days = {"first_day": log.first, "last_day": log.mature, "planned_last_day": log.last}
    found: dict[str, Any] = {name: str(day) for name, day in days.items()}
    found |= {"arms": [], "sample_ratio": [], "effects": []}
    counts = {"moved": 0, "together": 0, "empty": 0}
    if randomised := {"arm", "unit"} <= log.there:
        cells = _cells(log)
        found |= {"arms": _totals(log), "sample_ratio": _ratios(log, cells)}
        counts = _unit_counts(log)
    broken = ", ".join(
        "from {from} on {control:,} and {treatment:,}, planned share {share:g}, p = {pvalue:.2g}"
        .format(**ratio) for ratio in found["sample_ratio"] if ratio["broken"]
    )  # fmt: skip
    money = MONEY & set(log.summed)
    applies = {
        "not_randomised": not randomised,
        "broken": broken,
        "early": randomised and log.mature < log.last,
        "end": randomised,
        "maturity": True,
        "outside": log.outside,
        "selected": len(log.versions) == 1 and len(log.arms) == 2,
        "budgets": money and randomised and not separate_budgets,
        "apart": money and randomised and separate_budgets,
        "empty": counts["empty"],
        "no_empty": randomised and not counts["empty"],
        "moved": counts["moved"],
        "ramp": len(log.shares) > 1,
        "pre": randomised and log.pre,
    }
    ramp = ", ".join(f"{share:g} from {day}" for day, share in log.shares)
    said = {name: SENTENCES[name].format(log=log, broken=broken, ramp=ramp, **counts)
            for name, true in applies.items() if true}  # fmt: skip
    found["withheld"] = [sentence for name, sentence in said.items() if name in WITHHOLDING]
    found["notes"] = [sentence for name, sentence in said.items() if name not in WITHHOLDING]
    if not found["withheld"]:
        names = _metric_names(log, separate_budgets)
        found["effects"] = effects(stratified(cells), names, log.pre)
    return found | {"calibration": traffic_calibration(log) if log.versions else []}


def _cells(log: ExperimentLog) -> list[Arms]:
    """The moments of units in each period and arm."""
    columns = [*log.summed, *(f"pre_{column}" for column in log.summed if log.pre)]
    found = moments(log.sum_units(), columns)
    for place, (day, _) in enumerate(log.shares):
        counts = [found[c].count() if c in found else 0 for c in (2 * place, 2 * place + 1)]
        if min(counts) < 2:
            raise NotEnoughDataError(
                f"an effect needs 2 units of each arm in each period, that from {day} has "
                f"{counts[0]:,} and {counts[1]:,}; correct --share, or wait"
            )
    return [{0: found[2 * place], 1: found[2 * place + 1]} for place in range(len(log.shares))]


def _ratios(log: ExperimentLog, cells: list[Arms]) -> list[dict[str, Any]]:
    found = []
    for (day, share), arms in zip(log.shares, cells, strict=True):
        counts = {"control": arms[0].count(), "treatment": arms[1].count()}
        pvalue = sample_ratio(arms, share)
        broken = pvalue < LEAST_RATIO_PVALUE / len(cells)
        found.append(
            {"from": str(day), "share": share, **counts, "pvalue": pvalue, "broken": broken}
        )
    return found


def _metric_names(log: ExperimentLog, separate_budgets: bool) -> list[str]:
    """The metrics of what the log has; a rate of responses to impressions is CTR times CVR."""
    return [
        name
        for name, (numerator, denominator, _) in METRICS.items()
        if {numerator, denominator} <= {*log.summed, None}
        if separate_budgets or numerator not in MONEY
        if name != "response rate" or "clicks" not in log.there
    ]


def _totals(log: ExperimentLog) -> list[dict[str, Any]]:
    """Units and sums of each arm, in the order of the arms."""
    names = ["units", *log.summed]
    sums = ", ".join(f"sum({column})" for column in log.summed)
    query = f"SELECT count(*), {sums} FROM units GROUP BY treated ORDER BY treated"
    rows = log.database.execute(query).fetchall()
    return [
        {"arm": arm} | dict(zip(names, row, strict=True))
        for arm, row in zip(log.arms, rows, strict=True)
    ]


def _unit_counts(log: ExperimentLog) -> dict[str, int]:
    """Units that both arms served, at one instant, and units without impressions."""
    moved, together, empty = log.database.execute(
        "SELECT count(in0 - in1), count_if(in0 = in1), count_if(impressions = 0) FROM units"
    ).fetchall()[0]
    return {"moved": moved, "together": together, "empty": empty}
