"""The suites of checks on raw days: errors, which stop a run, and warnings, which are reported."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from pipeline.quality.checks import Suite, quiet_context
from pipeline.quality.day_rules import ALL_DAY_RULES, COLUMN_RULES, DAY_RULES, RECENT_RULES
from pipeline.quality.rules import Rule

SEVERITIES = {"error": "critical", "warning": "warning"}  # ours, and great-expectations' word
SHOWN = 5  # days a sentence names


@dataclass(frozen=True)
class DayCheck:
    """One expectation of raw days and what came of it.

    Attributes:
        name: the rule; a key of the validate section where there is a limit.
        severity: "error" or "warning".
        limit: None where the rule has none.
        rows: how many days, or days and columns, were looked at.
        breaches: how many broke it.
        breach: one sentence with the days that did; None where none.
    """

    name: str
    severity: str
    limit: float | None
    rows: int
    breaches: int
    breach: str | None


def check_days(
    days: pd.DataFrame, columns: pd.DataFrame, limits: Mapping[str, Mapping[str, float | None]]
) -> list[DayCheck]:
    """Every check; no days, missing numbers, NaN and infinities all fail.

    Args:
        days: as `day_frame` makes it. The first day has no recent days and is compared with none.
        columns: as `column_frame` makes it.
        limits: rule of RECENT_RULES or COLUMN_RULES → severity → limit, None where there is none.
    """
    compared = days.iloc[1:]
    parts = (
        ("days", days, [_expectation(rule, "error", None) for rule in DAY_RULES]),
        ("days beside their recent days", compared, _limited(RECENT_RULES, limits)),
        ("columns", columns, _limited(COLUMN_RULES, limits)),
    )
    suites = [Suite(name, frame, [_some_rows(), *rules]) for name, frame, rules in parts]
    source = quiet_context().data_sources.add_pandas("log")
    return [check for suite in suites for check in _run(source, suite)]


def _limited(
    rules: Mapping[str, Rule], limits: Mapping[str, Mapping[str, float | None]]
) -> list[Any]:
    return [
        _expectation(rule, severity, limit)
        for name, rule in rules.items()
        for severity in SEVERITIES
        if (limit := limits[name][severity]) is not None
    ]


def _expectation(rule: Rule, severity: str, limit: float | None) -> Any:
    from pipeline.quality.expectations import ExpectRowsToKeepRule

    return ExpectRowsToKeepRule(
        rule=rule.name,
        limit=0.0 if limit is None else limit,
        description=rule.sentence,
        severity=SEVERITIES[severity],
        meta={"severity": severity, "limit": limit},
    )


def _some_rows() -> Any:
    """That there is something to look at, which no rule on rows can see."""
    import great_expectations.expectations as gxe

    return gxe.ExpectTableRowCountToBeBetween(
        min_value=1, description="there are rows", meta={"severity": "error", "limit": None}
    )


def _run(source: Any, suite: Suite) -> list[DayCheck]:
    import great_expectations as gx

    asset = source.add_dataframe_asset(suite.name)
    batch = asset.add_batch_definition_whole_dataframe("whole").get_batch(
        {"dataframe": suite.frame}
    )
    expected = gx.ExpectationSuite(suite.name, expectations=suite.expectations)
    results = batch.validate(expected, result_format="COMPLETE").results
    return [_check(suite, result) for result in results]


def _check(suite: Suite, result: Any) -> DayCheck:
    config = result.expectation_config
    name = config.kwargs.get("rule", config.type)
    broken = [] if result.success else result.result.get("details", {}).get("rows", [])
    breach = None if result.success else _breach(suite, result, name, broken)
    return DayCheck(
        name, config.meta["severity"], config.meta["limit"], len(suite.frame), len(broken), breach
    )


def _breach(suite: Suite, result: Any, name: str, broken: list[int]) -> str:
    config = result.expectation_config
    if not broken:
        said = result.exception_info if "observed_value" not in result.result else "there are none"
        return f"{suite.name}: it could not be told whether {config.description}: {said}"
    rows = suite.frame.iloc[broken[:SHOWN]].itertuples(index=False)
    rule, limit = ALL_DAY_RULES[name], config.meta["limit"]
    sentences = [f"{_place(row)}: {rule.breach(row)}" for row in rows]
    more = [f"and {len(broken) - SHOWN} more"] if len(broken) > SHOWN else []
    key = f" (validate.{name}.{config.meta['severity']} is {limit:g})" if limit is not None else ""
    return "; ".join([*sentences, *more]) + key


def _place(row: Any) -> str:
    return f"day {row.day}" + (f", column {row.column}" if hasattr(row, "column") else "")
