"""Interactive pictures as Vega-Lite specifications; their rows come from the page's own sums.

Ink is `currentColor`, so that axes and words follow the page in light, dark and print.
"""

import json
import re
from collections.abc import Hashable
from functools import cache
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import vl_convert

from pipeline.report.page_data import day_rows, drawn_bins
from pipeline.report.result_tables import NAMES

Spec = dict[str, Any]
ROWS = alt.NamedData("rows")
COLOURS = {  # at least 3 : 1 against the page, light and dark
    "uncalibrated": "#c2571a",
    "identity": "#c2571a",
    "isotonic": "#777777",
    "eb_platt": "#2a8f6b",
    "adacalib": "#2f7fd0",
    "champion": "#9b59b6",
    "model": "#2f7fd0",
}
WRONG = "#d0342c"
LABELS = NAMES | {"identity": NAMES["uncalibrated"]}
_RATES = [10.0**-k * m for k in (6, 5, 4, 3, 2) for m in (1, 3)]
_RATES += [0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97, 0.99, 0.999]
_TICKS = [float(np.log(rate / (1 - rate))) for rate in _RATES]
_AS_PROBABILITY = "format(1 / (1 + exp(-datum.value)), '.3~g')"
_X_TICKS, _Y_TICKS = (alt.param(name=f"{axis}_ticks", value=_TICKS) for axis in "xy")
_ONE_A_DAY = {  # the names of days are read as UTC, so they are shown as UTC
    "title": None,
    "scale": alt.Scale(type="utc"),
    "axis": alt.Axis(tickCount={"interval": "day", "step": 1}, format="%b %-d", grid=False),
}
_UPRIGHT = alt.Axis(labelAngle=0, labelOverlap=True)
_CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "axis": {
        **{f"{part}Color": "currentColor" for part in ("label", "title", "domain", "tick", "grid")},
        "gridOpacity": 0.12,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelLimit": 220,
        "labelOverlap": True,
    },
    "legend": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "labelFontSize": 12,
        "orient": "top",
        "title": None,
        "columns": 3,  # of a narrow picture, too
        "symbolOpacity": 1,
    },
    "view": {"stroke": None},
}


def _spec(chart: Any, height: Any) -> Spec:
    sized = chart.properties(width="container", height=height)
    return sized.to_dict() | {"config": _CONFIG}


def static(
    spec: Spec, rows: list[dict[Hashable, Any]], ink: str = "#444444", width: int = 460
) -> str:
    """A picture as SVG text, for places that run no script; equal rows give equal text."""
    fixed = {**spec, "datasets": {"rows": rows}, "width": width}
    text = vl_convert.vegalite_to_svg(fixed).replace("currentColor", ink)
    clips = list(dict.fromkeys(re.findall(r'id="(clip\d+)"', text)))  # numbered by the process
    return re.sub(r"clip\d+\b", lambda found: f"clip-{clips.index(found[0])}", text)


def _method(names: tuple[str, ...]) -> alt.Color:
    labels = [LABELS[name] for name in names]
    scale = alt.Scale(domain=labels, range=[COLOURS[name] for name in names])
    return alt.Color("method:N", scale=scale)


def _log_odds(title: str, ticks: Any = _Y_TICKS) -> Any:
    """Channel options; the page sets other ticks where these leave an axis without any."""
    axis = alt.Axis(labelExpr=_AS_PROBABILITY, values=alt.ExprRef(ticks.name), labelOverlap=True)
    return {"title": title, "axis": axis, "scale": alt.Scale(zero=False)}


def _tooltip(*extra: str) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("method:N"),
        *(alt.Tooltip(f"{name}:Q", format=".4~g") for name in extra),
        alt.Tooltip("impressions:Q", format=","),
        alt.Tooltip("responses:Q", format=","),
    ]


def _endless(base: Any, x: alt.X, colour: Any) -> list[Any]:
    """Triangles at the ends of bands that go on to 0 or 1: nothing or everything responded."""
    return [
        base.transform_filter(f"datum.observed === null && datum.responses {which}")
        .mark_point(filled=True, shape=shape, size=50, clip=True)
        .encode(x=x, y=alt.Y(f"{end}:Q"), color=colour)
        for which, shape, end in (
            ("=== 0", "triangle-down", "low"), ("> 0", "triangle-up", "high"),
        )
    ]  # fmt: skip


def reliability_chart(methods: tuple[str, ...]) -> Spec:
    """Observed rate with its band over predicted rate, log-odds on both axes.

    Rows: method, predicted and observed log-odds, low, high, impressions, responses. A click on
    the legend shows one method alone.
    """
    picked = alt.selection_point(fields=["method"], bind="legend")
    shown = alt.condition(picked, alt.value(1), alt.value(0.08))
    x = alt.X("predicted:Q", **_log_odds("predicted probability", _X_TICKS))
    base = alt.Chart(ROWS)
    right = base.mark_line(color="currentColor", strokeDash=[4, 4], strokeWidth=1).encode(
        x="predicted:Q", y=alt.Y("predicted:Q")
    )
    band = base.mark_rule(strokeWidth=3, clip=True).encode(
        x=x, y=alt.Y("low:Q"), y2="high:Q", color=_method(methods), opacity=shown
    )
    points = base.mark_point(filled=True, clip=True).encode(
        x=x,
        y=alt.Y("observed:Q", **_log_odds("observed rate")),
        size=alt.Size("impressions:Q", legend=None, scale=alt.Scale(range=[20, 160])),
        color=_method(methods),
        opacity=shown,
        tooltip=_tooltip("predicted_rate", "observed_rate"),
    )
    rates = alt.layer(
        right, band, points, *_endless(base, x, _method(methods))
    ).transform_calculate(
        predicted_rate="1 / (1 + exp(-datum.predicted))",
        observed_rate="datum.observed === null ? null : 1 / (1 + exp(-datum.observed))",
    )
    return _spec(rates.add_params(picked, _X_TICKS, _Y_TICKS), 340)


def curve_chart(methods: tuple[str, ...]) -> Spec:
    """What each calibrator makes of the base model's logit, over what was observed.

    Rows: those of curves have method, score and calibrated; those of bins score, observed, low,
    high, impressions and responses.
    """
    x = alt.X("score:Q", **_log_odds("the base model's probability", _X_TICKS))
    base = alt.Chart(ROWS)
    seen, drawn = base.transform_filter("!datum.method"), base.transform_filter("datum.method")
    band = seen.mark_rule(color="currentColor", opacity=0.35, strokeWidth=3, clip=True).encode(
        x=x, y=alt.Y("low:Q"), y2="high:Q"
    )
    dots = seen.mark_point(filled=True, color="currentColor", clip=True).encode(
        x=x, y=alt.Y("observed:Q"), tooltip=_tooltip()[1:]
    )
    lines = drawn.mark_line(strokeWidth=2, clip=True).encode(
        x=x,
        y=alt.Y("calibrated:Q", **_log_odds("calibrated")),
        color=_method(methods),
    )
    ends = _endless(seen, x, alt.value("currentColor"))
    return _spec(alt.layer(band, dots, *ends, lines).add_params(_X_TICKS, _Y_TICKS), 340)


def forest_chart() -> Spec:
    """PCOC of field values on a logarithmic axis: what ships with its band, the base as a ring.

    What lies beyond the frame is drawn at its edge as a triangle that points there.
    Rows: name, model, low, high, base, wrong, impressions, responses.
    """
    frame = alt.Scale(type="log", domain=[0.25, 4], clamp=True, nice=False)
    names = alt.Y("name:N", sort=None, title=None)
    axis = alt.Axis(values=[0.25, 0.5, 0.8, 1, 1.25, 2, 4], format="~g", labelOverlap=True)
    base = alt.Chart(ROWS)
    one = base.mark_rule(color="currentColor", strokeDash=[4, 4]).encode(x=alt.datum(1))
    ink = alt.condition("datum.wrong", alt.value(WRONG), alt.value(COLOURS["model"]))
    band = base.mark_rule(opacity=0.5, strokeWidth=3).encode(
        y=names, x=alt.X("low:Q", scale=frame), x2="end:Q", color=ink
    )
    tip = ["name:N", "model:Q", "low:Q", "high:Q", "base:Q"]
    counts = [alt.Tooltip(f"{name}:Q", format=",") for name in ("impressions", "responses")]

    def points(column: str, colour: Any, filled: bool) -> Any:
        shape = alt.Shape(f"{column}_shape:N", scale=None)
        x = alt.X(f"{column}:Q", scale=frame, title="expected / observed responses", axis=axis)
        marks = base.mark_point(filled=filled, size=60)
        return marks.encode(y=names, x=x, color=colour, shape=shape, tooltip=[*tip, *counts])

    before = points("base", alt.value(COLOURS["uncalibrated"]), filled=False)
    ships = points("model", ink, filled=True)
    edge = "datum.{0} > 4 ? 'triangle-right' : datum.{0} < 0.25 ? 'triangle-left' : 'circle'"
    drawn = alt.layer(one, band, before, ships).transform_calculate(
        end="isValid(datum.high) ? datum.high : isValid(datum.low) ? 4 : null",
        base_shape=edge.format("base"),
        model_shape=edge.format("model"),
    )
    return _spec(drawn, 470)


def day_chart(methods: tuple[str, ...]) -> Spec:
    """PCOC with its band by test day.

    Rows: method, day, pcoc, low, high, impressions, responses.
    """
    x = alt.X("day:T", **_ONE_A_DAY)
    scale = alt.Scale(type="log", nice=False, padding=8)
    base = alt.Chart(ROWS)
    one = base.mark_rule(color="currentColor", strokeDash=[4, 4]).encode(y=alt.datum(1))
    band = base.mark_area(opacity=0.18).encode(
        x=x, y=alt.Y("low:Q", scale=scale), y2="high:Q", color=_method(methods)
    )
    title = "expected / observed responses"
    line = base.mark_line(point=True).encode(
        x=x,
        y=alt.Y("pcoc:Q", scale=scale, title=title),
        color=_method(methods),
        tooltip=["day:N", *_tooltip("pcoc", "low", "high")],
    )
    return _spec(alt.layer(one, band, line), 260)


def age_chart() -> Spec:
    """What not learning daily costs, by days since the last label.

    Rows: day, days_since_label, frozen and rolling LogLoss.
    """
    title = "LogLoss lost (nats)"
    bars = (
        alt.Chart(ROWS)
        .mark_bar(color=COLOURS["model"])
        .encode(
            x=alt.X("days_since_label:O", title="days since the last label", axis=_UPRIGHT),
            y=alt.Y("lost:Q", title=title, axis=alt.Axis(format="~g")),
            tooltip=["day:N", "frozen:Q", "rolling:Q", "lost:Q"],
        )
        .transform_calculate(lost="datum.frozen - datum.rolling")
    )
    return _spec(bars, 260)


def trend_charts() -> tuple[Spec, Spec]:
    """PCOC of what served, and LogLoss of what was made and what served, by refreshed day.

    Rows: those of reports/trend.csv, numbers as numbers.
    """
    base, x = alt.Chart(ROWS), alt.X("day:T", **_ONE_A_DAY)
    scale, title = alt.Scale(type="log", nice=False, padding=8), "expected / observed responses"
    one = base.mark_rule(color="currentColor", strokeDash=[4, 4]).encode(y=alt.datum(1))
    sound = base.mark_area(opacity=0.18, color=COLOURS["model"]).encode(
        x=x, y=alt.Y("sound_from:Q", scale=scale, title=title), y2="sound_to:Q"
    )
    ink = alt.condition("datum.alarm", alt.value(WRONG), alt.value(COLOURS["model"]))
    points = base.mark_point(filled=True, size=60).encode(
        x=x, y=alt.Y("day_PCOC:Q", scale=scale), color=ink
    )
    line = base.mark_line(color=COLOURS["model"]).encode(x=x, y=alt.Y("served_PCOC:Q", scale=scale))
    names = {
        "made_logloss": ("made", COLOURS["model"]),
        "base_logloss": ("base model", COLOURS["uncalibrated"]),
        "served_logloss": ("served", COLOURS["champion"]),
    }
    labels, colours = (list(part) for part in zip(*names.values(), strict=True))
    losses = base.transform_fold([*names], ["which", "loss"]).transform_calculate(
        method=f"{json.dumps({name: label for name, (label, _) in names.items()})}[datum.which]"
    )
    drawn = losses.mark_line(point=True).encode(
        x=x,
        y=alt.Y("loss:Q", scale=alt.Scale(zero=False), title="LogLoss"),
        color=alt.Color("method:N", scale=alt.Scale(domain=labels, range=colours)),
    )
    return _spec(alt.layer(one, sound, line, points), 240), _spec(drawn, 240)


def effect_chart() -> Spec:
    """Relative effects on metrics with their intervals; sure ones are red.

    Rows: metric, effect, low, high, significant.
    """
    base = alt.Chart(ROWS)
    names = alt.Y("metric:N", sort=None, title=None)
    axis = alt.Axis(format="+.1%", labelOverlap=True)
    ink = alt.condition("datum.significant", alt.value(WRONG), alt.value(COLOURS["model"]))
    none = base.mark_rule(color="currentColor", strokeDash=[4, 4]).encode(x=alt.datum(0))
    band = base.mark_rule(opacity=0.5, strokeWidth=3).encode(
        y=names, x=alt.X("low:Q", title="relative effect", axis=axis), x2="high:Q", color=ink
    )
    points = base.mark_point(filled=True, size=60).encode(y=names, x="effect:Q", color=ink)
    room = {"left": 40, "right": 10, "top": 5, "bottom": 5}  # names are wider in some fonts
    return _spec(alt.layer(none, band, points).properties(padding=room), {"step": 32})


@cache
def drawing_script() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, from the installed package; takes seconds."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")


def plot_files(counts: pd.DataFrame, bins: pd.DataFrame, reliability: Spec) -> dict[str, str]:
    """What stands beside the page, texts by file name: tables for `dvc plots`, a still picture.

    Args:
        counts: sums by method, test day and field value.
        bins: sums by method, field value and bin; those of all rows (-1) are drawn, in log-odds.
        reliability: the specification of the picture.
    """
    drawn = drawn_bins(bins[bins["field_value_id"] == -1]).replace({"method": NAMES})
    columns = ["method", "predicted", "observed", "low", "high", "impressions", "responses"]
    return {
        "reliability.csv": drawn[columns].round(4).to_csv(index=False),
        "days.csv": pd.DataFrame(day_rows(counts)).to_csv(index=False),
        "reliability.svg": static(reliability, drawn[columns].to_dict("records")),
    }
