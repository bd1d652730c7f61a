"""How well each version is calibrated on the rows that each arm served."""

from typing import Any

import numpy as np

from pipeline.metrics.calibration import deviance_terms, log_loss_terms
from pipeline.metrics.comparison import largest_field_values
from pipeline.metrics.counts import ResponseCounts
from pipeline.metrics.summary import pcoc_intervals
from pipeline.online.experiment_log import ExperimentLog

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
    return [_row(log, i, arm) for i in places for arm in log.arms]


def _row(log: ExperimentLog, place: int, arm: str) -> dict[str, Any]:
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
    listed = largest_field_values(counts.reshape(-1, len(names)), LISTED)
    wrong = [
        {"field_value": sorted(names)[row["field_value_id"]], **row}
        for row in listed
        if row["low"] > 1 or row["high"] < 1
    ]
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
