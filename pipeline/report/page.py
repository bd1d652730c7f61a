"""The HTML report: one page that opens without a network, the verdict first."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pipeline.calibration.piecewise import PiecewiseLinearMap
from pipeline.report import charts, sums
from pipeline.report.terminal import METRICS, NAMES, champion_lines, excess_rows, metric_rows

HERE = Path(__file__).parent
COLUMNS = (
    ("name", "field value"),
    ("impressions", "impressions"),
    ("responses", "responses"),
    ("base", "PCOC, base"),
    ("model", "PCOC, ships"),
    ("deviance", "deviance"),
    ("bins", "bins"),
)
MEASURES = [("LogLoss", "logloss"), ("deviance", "field_deviance"), ("Field-RCE", "field_rce")]


def gain_rows(gains: dict[str, dict[str, dict[str, Any]]]) -> list[list[str]]:
    """One row a method: each measure's gain and its interval."""
    return [
        [NAMES[method], *(_gain(gains[method].get(measure)) for _, measure in MEASURES)]
        for method in NAMES
        if method in gains
    ]


def _gain(gain: dict[str, Any] | None) -> str:
    if gain is None or gain["value"] is None:
        return "undefined"
    if gain["low"] is None:
        return f"{gain['value']:+.5f} (no interval)"
    return f"{gain['value']:+.5f} ({gain['low']:+.5f} to {gain['high']:+.5f})"


def result_rows(evaluation: dict[str, Any]) -> list[list[str]]:
    """One row a method: its metrics, the interval of Field-RCE and its floor."""
    rows = []
    methods = [evaluation["methods"][name] for name in NAMES if name in evaluation["methods"]]
    for row, values in zip(metric_rows(evaluation), methods, strict=True):
        ends = [values["field_rce_low"], values["field_rce_high"], values["field_rce_floor"]]
        texts = ["undefined" if end is None else f"{end:.4f}" for end in ends]
        rows.append([*row, f"{texts[0]} to {texts[1]}", texts[2]])
    return rows


def choice_rows(held_out: dict[str, Any]) -> list[list[str]]:
    """One row a calibrator: its out-of-sample LogLoss, its distance to the best, and its error."""
    columns = [held_out[name] for name in ("logloss", "excess", "standard_error")]
    return [
        [NAMES.get(name, name), *(f"{column[name]:.5f}" for column in columns)]
        for name in sorted(held_out["logloss"], key=held_out["logloss"].__getitem__)
    ]


def left_out_rows(
    evaluation: dict[str, Any], validation: dict[str, Any], tables: dict[str, Any]
) -> list[tuple[str, str]]:
    """What each metric does not cover, and what the log was."""
    model, champion = evaluation["methods"]["model"], evaluation.get("champion")
    rce, auc = (model[f"{name}_coverage"] or 0.0 for name in ("field_rce", "field_auc"))
    return [
        ("Field-RCE", f"covers {100 * rce:.1f} % of impressions: values with responses"),
        ("Field-AUC", f"covers {100 * auc:.1f} % of impressions: values with both outcomes"),
        ("LogLoss, deviance, AUC", "cover everything"),
        (
            "The log",
            f"{validation['days']} days, {validation['first_day']} to {validation['last_day']}; "
            f"{validation['impressions']:,} impressions, {validation['responses']:,} responses",
        ),
        *[
            ("Days that wait for labels", ", ".join(days))
            for days in [validation["waiting"]]
            if days
        ],
        *[("Warning", warning) for warning in validation["warnings"]],
        (
            "Bin tables",
            f"{'passed' if tables['passed'] else 'failed'}, {len(tables['checks'])} checks; "
            "adacalib docs builds their Data Docs beside this page",
        ),
        ("Production", "; ".join(champion_lines(champion))),
    ]


def page_sums(
    counts: pd.DataFrame,
    bins: pd.DataFrame,
    maps: Mapping[str, PiecewiseLinearMap],
    *,
    field_values: list[str | None],
    chosen_bins: list[int],
    calibration_responses: np.ndarray,
    listed: int,
) -> dict[str, Any]:
    """Everything that pictures are drawn from, as JSON carries it.

    Args:
        counts: method, day, field_value_id and additive sums.
        bins: method, field_value_id (-1: all), bin_id and additive sums.
        maps: the calibrators by name.
        field_values: names by id, None at 0.
        chosen_bins: bin count of AdaCalib by id, 0 where none was chosen; may be empty.
        calibration_responses: int64 [V], by id.
        listed: field values that are listed and can be pictured, the largest by impressions.
    """
    values = sums.value_columns(counts, field_values, chosen_bins, listed)
    drawn, ids = sums.drawn_bins(bins), values["id"]
    chosen = np.asarray(chosen_bins or np.zeros(len(calibration_responses)), np.int64)
    return {
        "names": NAMES | {"identity": NAMES["uncalibrated"]},
        "values": values,
        "bins": sums.bins_by_value(drawn, [-1, *ids]),
        "curves": sums.curves_by_value(maps, drawn, ids),
        "days": sums.day_rows(counts),
        "volume": sums.volume_groups(calibration_responses, chosen),
    }


def specifications(evaluation: dict[str, Any], maps: Mapping[str, PiecewiseLinearMap]) -> Any:
    """The Vega-Lite specification of every picture."""
    shown = tuple(name for name in sums.PICTURED if name in evaluation["methods"])
    curves = tuple("uncalibrated" if name == "identity" else name for name in maps)
    return {
        "reliability": charts.reliability_chart(shown),
        "curves": charts.curve_chart(curves),
        "forest": charts.forest_chart(),
        "days": charts.day_chart(shown),
        "drift": charts.drift_chart(shown),
        "volume": charts.volume_chart(),
    }


@cache
def vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, from the installed package."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")


def embedded(value: Any) -> str:
    """JSON that may stand inside a script element: no tag in a name can end it."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def render(
    reports: dict[str, dict[str, Any]],
    carried: dict[str, Any],
    specs: dict[str, Any],
    *,
    field: str,
    calibrator: dict[str, Any],
) -> str:
    """The page as text.

    Args:
        reports: `validation`, `tables`, `evaluation` and `gate`, as the stages wrote them.
        carried: what `page_sums` returns.
        specs: what `specifications` returns.
        field: name of the calibrated field.
        calibrator: the calibrator's manifest: `chosen` and `held_out`.
    """
    evaluation = reports["evaluation"]
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined
    )
    gains = {"the uncalibrated model": evaluation["gains"]}
    champion = evaluation.get("champion") or {}
    if champion.get("gains"):
        over = f"{champion['version']} in production, {champion['compared_days']} days"
        gains[over] = {"model": champion["gains"]}
    return environment.get_template("page.html").render(
        **reports,
        field=field,
        shipped=NAMES.get(calibrator["chosen"], calibrator["chosen"]),
        metric_names=[name for name, _, _ in METRICS],
        rows=result_rows(evaluation),
        gains=[(name, gain_rows(rows)) for name, rows in gains.items() if rows],
        gain_names=[title for title, _ in MEASURES],
        truth=[[name, *texts] for name, texts in excess_rows(evaluation).items()],
        columns=COLUMNS,
        unlisted=max(0, evaluation["field_values"] - len(carried["values"]["id"])),
        least_expected=int(sums.LEAST_EXPECTED),
        has_volume=bool(carried["volume"]),
        choice=choice_rows(calibrator["held_out"]),
        left_out=left_out_rows(evaluation, reports["validation"], reports["tables"]),
        sums=embedded(carried),
        charts=embedded(specs),
        style=(HERE / "page.css").read_text(),
        script=(HERE / "page.js").read_text(),
        vega=vega(),
    )
