"""The HTML report: one page that opens without a network, the verdict first."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from pipeline.formats.maps import PiecewiseLinearMap
from pipeline.report import charts, page_data, result_tables

HERE = Path(__file__).parent


def pictured(evaluation: dict[str, Any], chosen: str) -> tuple[str, ...]:
    """The methods that pictures show; where the base ships as it is, it is not drawn twice."""
    hidden = "uncalibrated" if chosen == "identity" else None
    return tuple(n for n in page_data.PICTURED if n in evaluation["methods"] and n != hidden)


def page_sums(
    counts: pd.DataFrame,
    bins: pd.DataFrame,
    maps: Mapping[str, PiecewiseLinearMap],
    *,
    field_values: list[str | None],
    chosen_bins: list[int],
    listed: int,
    shown: tuple[str, ...],
    evaluation: dict[str, Any],
    worth: pd.DataFrame | None = None,
) -> dict[str, Any]:
    """Everything that pictures are drawn from, as JSON carries it.

    Args:
        counts: method, day, field_value_id and additive sums.
        bins: method, field_value_id (-1: all), bin_id and additive sums.
        maps: the calibrators by name; those that are drawn as curves are picked from them.
        field_values: names by id, None at 0.
        chosen_bins: bin count of AdaCalib by id, 0 where none was chosen; may be empty.
        listed: field values that are listed and can be pictured, the largest by impressions.
        shown: what `pictured` returns.
        evaluation: of reports/evaluation.json: its horizon, and what age costs, are read.
        worth: `expected` and `observed` value by id; None where log.value names no column.
    """
    horizon = evaluation["procedure"]["horizon_days"]
    values = page_data.value_columns(counts, field_values, chosen_bins, listed, horizon)
    if worth is not None:
        apart = (worth["expected"] - worth["observed"]).to_numpy()
        values["stake"] = page_data.rounded(apart[values["id"]], 2)
    drawn, ids = page_data.drawn_bins(bins), values["id"]
    curves = {name: maps[name] for name in page_data.CURVES if name in maps}
    return {
        "names": charts.LABELS,
        "pictured": shown,
        "values": values,
        "bins": page_data.bins_by_value(drawn, [-1, *ids]),
        "curves": page_data.curves_by_value(curves, drawn, ids),
        "days": page_data.day_rows(counts, shown),
        "age": evaluation["age"]["by_day"],
    }


def specifications(
    maps: Mapping[str, PiecewiseLinearMap], shown: tuple[str, ...]
) -> dict[str, charts.Spec]:
    """The Vega-Lite specification of every picture."""
    curves = ("identity", *(name for name in page_data.CURVES if name in maps))
    return {
        "reliability": charts.reliability_chart(shown),
        "curves": charts.curve_chart(curves),
        "forest": charts.forest_chart(),
        "days": charts.day_chart(shown),
        "age": charts.age_chart(),
    }


def embedded(value: Any) -> str:
    """JSON that may stand inside a script element: no tag in a name can end it."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def template(name: str) -> Template:
    """A template of this package; what is undefined in it is an error."""
    loader = FileSystemLoader(HERE)
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template(name)


def render(
    reports: dict[str, dict[str, Any]],
    carried: dict[str, Any],
    specs: dict[str, Any],
    *,
    manifest: Mapping[str, Any],
    calibrator: dict[str, Any],
    vega: str,
) -> str:
    """The page as text.

    Args:
        reports: `validation`, `tables`, `evaluation` and `gate`, as the stages wrote them.
        carried: what `page_sums` returns.
        specs: what `specifications` returns.
        manifest: the model's: its field, conventions and lineage are read.
        calibrator: the calibrator's manifest: `chosen`, `held_out` and `guard`.
        vega: the script that draws.
    """
    return template("page.html").render(
        **reports,
        texts=result_tables,
        field=" × ".join(manifest["base"]["field"]["columns"]),
        manifest=manifest,
        calibrator=calibrator,
        extent=result_tables.extent(reports["evaluation"]),
        questions=result_tables.gate_rows(reports["gate"]),
        listed=len(carried["values"]["id"]),
        least_expected=int(page_data.LEAST_EXPECTED),
        sums=embedded(carried),
        charts=embedded(specs),
        style=(HERE / "page.css").read_text(),
        script=(HERE / "page.js").read_text(),
        vega=vega,
    )
