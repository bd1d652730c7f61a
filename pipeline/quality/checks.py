"""The suite of checks on the field statistics, and what it found in sentences."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pipeline.formats.tables import BinTable, CellTable
from pipeline.quality.frames import LogSums, group_frame, table_frame
from pipeline.quality.rules import BIN_RULES, CELL_RULES, GROUP_RULES, RULES, Rule, evenly_shared


@dataclass(frozen=True)
class Check:
    """One expectation and what came of it.

    Attributes:
        table: what was looked at: bins, cells or field values.
        name: the rule, or the built-in expectation's name.
        sentence: what was expected.
        rows: number of rows that were looked at.
        breach: one sentence naming field value, K, bin and what is wrong; None where it passed.
    """

    table: str
    name: str
    sentence: str
    rows: int
    breach: str | None


def uneven_field_values(bins: BinTable, tolerance: float) -> np.ndarray:
    """Ids of field values whose bins are so uneven that only ties could explain it, ascending."""
    frame = table_frame(bins).assign(largest_tie=0)
    return np.unique(bins.field_value_id[~evenly_shared(frame, tolerance)])


@dataclass(frozen=True)
class Suite:
    """What is expected of one frame."""

    name: str
    frame: pd.DataFrame
    expectations: list[Any]


def suites(
    bins: BinTable, cells: CellTable, log: LogSums, candidates: list[int], tolerance: float
) -> list[Suite]:
    """All that is expected of the field statistics; arguments as in `check_tables`."""
    import great_expectations.expectations as gxe

    groups = group_frame(bins, cells, log, candidates)
    effective = gxe.ExpectTableRowCountToEqual(
        value=int(groups["effective_bins"].sum()),
        description="there are as many bins as effective bins over the expected field values",
    )
    return [
        Suite(
            "bins",
            table_frame(bins).assign(largest_tie=log.largest_tie),
            [effective, *_expectations(BIN_RULES, tolerance)],
        ),
        Suite("cells", table_frame(cells), _expectations(CELL_RULES)),
        Suite("field values", groups, _expectations(GROUP_RULES)),
    ]


def check_tables(
    bins: BinTable, cells: CellTable, log: LogSums, candidates: list[int], tolerance: float
) -> list[Check]:
    """Every check of the field statistics; no rows, missing values, NaN and infinities all fail.

    Args:
        bins: the bin table.
        cells: the cells of the grid.
        log: sums of the log itself.
        candidates: the numbers of bins that every field value with impressions must have.
        tolerance: a bin may hold this share more or less than its even part, ties excepted.
    """
    expected = suites(bins, cells, log, candidates, tolerance)
    return [check for suite in expected for check in _run(suite, log.field_values)]


def _expectations(rules: Sequence[Rule], limit: float = 0.0) -> list[Any]:
    """That there are rows at all, which no rule on rows can see, and that all keep the rules."""
    import great_expectations.expectations as gxe

    from pipeline.quality.expectations import ExpectRowsToKeepRule

    return [
        gxe.ExpectTableRowCountToBeBetween(min_value=1, description="there are rows"),
        *(
            ExpectRowsToKeepRule(rule=rule.name, limit=limit, description=rule.sentence)
            for rule in rules
        ),
    ]


def quiet_context() -> Any:
    """A great-expectations context that lives in memory, sends nothing and draws no bars."""
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.enable_analytics(False)
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    return context


def _run(suite: Suite, field_values: Sequence[str | None]) -> list[Check]:
    """Validate a frame; every expectation gives a check, also one that could not be evaluated."""
    import great_expectations as gx

    asset = quiet_context().data_sources.add_pandas("tables").add_dataframe_asset(suite.name)
    definition = asset.add_batch_definition_whole_dataframe("whole")
    batch = definition.get_batch({"dataframe": suite.frame})
    expected = gx.ExpectationSuite(suite.name, expectations=suite.expectations)
    results = batch.validate(expected, result_format="SUMMARY").results
    return [_check(suite.name, result, suite.frame, field_values) for result in results]


def _check(
    table: str, result: Any, frame: pd.DataFrame, field_values: Sequence[str | None]
) -> Check:
    config = result.expectation_config
    breach = None if result.success else f"{table}: {_breach(result, frame, field_values)}"
    return Check(
        table, config.kwargs.get("rule", config.type), config.description, len(frame), breach
    )


def _breach(result: Any, frame: pd.DataFrame, field_values: Sequence[str | None]) -> str:
    config = result.expectation_config
    if "observed_value" not in result.result:
        return f"it could not be told whether {config.description} ({result.exception_info})"
    observed = result.result["observed_value"]
    rule = RULES.get(config.kwargs.get("rule"))
    if rule is None:
        return f"expected that {config.description}, there are {observed}"
    first = result.result["details"]["first"]
    row = next(frame.iloc[[first]].itertuples(index=False))
    more = f" ({observed} of {len(frame)} rows)" if observed > 1 else ""
    return f"{_place(row, field_values)}: {rule.breach(row)}{more}"


def _place(row: Any, field_values: Sequence[str | None]) -> str:
    """Where a row is: the parts of its key that it has, the field value by its name."""
    value = f"field value id {row.field_value_id}"
    if row.field_value_id in range(len(field_values)):
        value += f" ({field_values[int(row.field_value_id)]!r})"
    words = {"requested_bins": "K =", "bin_id": "bin", "cell_id": "cell", "day": "day"}
    parts = [f"{word} {getattr(row, name)}" for name, word in words.items() if hasattr(row, name)]
    return ", ".join([value, *parts])
