"""The HTML report: one page that opens without a network, the verdict first."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pipeline.data.values import MARK, SEPARATOR
from pipeline.metrics.calibration import pcoc, pcoc_band
from pipeline.metrics.counts import ResponseCounts
from pipeline.report.pictures import horizontal_intervals, reliability
from pipeline.report.terminal import METRICS, NAMES, excess_rows, metric_rows

SUMS = ["impressions", "responses", "expected_responses"]
PICTURED = ("uncalibrated", "model")


def curves(bins: pd.DataFrame, field_value_id: int) -> dict[str, dict[str, np.ndarray]]:
    """The reliability bins of one field value (-1: all of them) by pictured method."""
    of_value = bins[bins["field_value_id"] == field_value_id]
    return {
        method: {
            name: of_value.loc[of_value["method"] == method, name].to_numpy(float) for name in SUMS
        }
        for method in PICTURED
    }


def pcoc_by_value(counts: pd.DataFrame, names: list[str], largest: list[int]) -> str:
    """A forest plot of expected over observed responses of the given field values, what ships."""
    sums = [f.name for f in fields(ResponseCounts)]
    shipped = counts[counts["method"] == "model"].groupby("field_value_id")[sums].sum().loc[largest]
    of_value = ResponseCounts(*(shipped[name].to_numpy() for name in sums))
    low, high = pcoc_band(of_value)
    intervals = (low, pcoc(of_value), np.where(np.isinf(high), np.nan, high))
    return horizontal_intervals([names[i] for i in largest], intervals, 1.0, "PCOC")


def gain_rows(gains: dict[str, dict[str, dict[str, float]]]) -> list[list[str]]:
    """Rows of method, measure, gain and interval."""
    return [
        [
            NAMES[method],
            title,
            *(
                ["undefined", ""]
                if gain["value"] is None
                else [f"{gain['value']:+.5f}", f"{gain['low']:+.5f} to {gain['high']:+.5f}"]
            ),
        ]
        for method in NAMES
        for title, measure, _ in METRICS
        if (gain := gains.get(method, {}).get(measure))
    ]


def _result_rows(evaluation: dict[str, Any]) -> list[list[str]]:
    rows = []
    methods = [evaluation["methods"][name] for name in NAMES if name in evaluation["methods"]]
    for row, values in zip(metric_rows(evaluation), methods, strict=True):
        ends = [values["field_rce_low"], values["field_rce_high"], values["field_rce_floor"]]
        texts = ["undefined" if end is None else f"{end:.4f}" for end in ends]
        rows.append([*row, f"{texts[0]} to {texts[1]}", texts[2]])
    return rows


def display_name(name: str | None) -> str:
    """A field value as people read it: parts of a tuple apart, the row of id 0 by its meaning."""
    return "unseen" if name is None else name.replace(SEPARATOR, " / ").removeprefix(MARK)


def render(
    reports: dict[str, dict[str, Any]],
    counts: pd.DataFrame,
    bins: pd.DataFrame,
    *,
    field: str,
    field_values: list[str | None],
    shipped: str,
    shown: int,
) -> str:
    """The page as text.

    Args:
        reports: `validation`, `tables`, `evaluation` and `gate`, as the stages wrote them.
        counts: method, day, field_value_id and additive sums.
        bins: method, field_value_id (-1: all), bin_id and additive sums.
        field: name of the calibrated field.
        field_values: names by id, None at 0.
        shipped: name of the map that ships.
        shown: pictures are drawn of this many field values, by impressions.
    """
    evaluation, gate = reports["evaluation"], reports["gate"]
    names = [display_name(name) for name in field_values]
    of_model = counts[counts["method"] == "model"]
    sizes = of_model.groupby("field_value_id")["impressions"].sum()
    largest = sizes.sort_values(ascending=False, kind="stable").index[:shown].tolist()
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template("page.html").render(
        **reports,
        verdict_word=gate["verdict"],
        verdict_sentence=(
            "This model may be promoted" if gate["passed"] else "This model was refused"
        ),
        field=field,
        shipped=NAMES.get(shipped, shipped),
        metric_names=[name for name, _, _ in METRICS],
        rows=_result_rows(evaluation),
        coverage=evaluation["methods"]["model"]["field_rce_coverage"] or 0.0,
        gains=gain_rows(evaluation["gains"]),
        truth=[[name, *texts] for name, texts in excess_rows(evaluation).items()],
        overall=reliability(curves(bins, -1), "Reliability, all field values"),
        forest=pcoc_by_value(counts, names, largest),
        values=[
            (names[i], reliability(curves(bins, i), f"Reliability of {names[i]}")) for i in largest
        ],
    )
