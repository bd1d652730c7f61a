"""The rules as great-expectations knows them: one expectation and its metric, on pandas batches."""

from typing import Any, ClassVar

import numpy as np
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.execution_engine import ExecutionEngine, PandasExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider

from pipeline.quality.day_rules import ALL_DAY_RULES
from pipeline.quality.rules import RULES

KNOWN = RULES | ALL_DAY_RULES


class RowsBreakingRule(TableMetricProvider):
    """Positions of the rows that break a rule."""

    metric_name = "table.rows_breaking_rule"
    value_keys = ("rule", "limit")

    @metric_value(engine=PandasExecutionEngine)
    def _pandas(
        cls,  # noqa: N805 - great-expectations makes a class method of it
        execution_engine: PandasExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any],
    ) -> np.ndarray:
        frame, _, _ = execution_engine.get_compute_domain(
            metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE
        )
        rule = KNOWN[metric_value_kwargs["rule"]]
        return np.flatnonzero(~rule.keeps(frame, metric_value_kwargs["limit"]))


class ExpectRowsToKeepRule(BatchExpectation):
    """Every row keeps a rule of `rules` or `day_rules`; rows are seen with their whole group.

    The observed value is the number of rows that break it; `first` is the position of one, `rows`
    those of all.
    """

    rule: str
    limit: float = 0.0

    metric_dependencies = ("table.rows_breaking_rule",)
    success_keys = ("rule", "limit")
    args_keys: ClassVar[tuple[str, ...]] = ("rule", "limit")

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,
        execution_engine: ExecutionEngine | None = None,
    ) -> dict[str, Any]:
        rows = metrics["table.rows_breaking_rule"]
        details = {"first": int(rows[0]), "rows": rows.tolist()} if len(rows) else {}
        return {
            "success": not len(rows),
            "result": {"observed_value": len(rows), "details": details},
        }
