"""The HTML report: one page that opens without a network, the verdict first.

The analysis of an online test as people read it: tables of texts, a picture, the page.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined, UndefinedError

from pipeline.core.errors import ArtifactError
from pipeline.core.files import REMEDY, publish, read_json
from pipeline.formats.maps import PiecewiseLinearMap
from pipeline.report import charts, page_data, result_tables
from pipeline.report.charts import picture, static
from pipeline.report.result_tables import display_name

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
    methods = {"reliability": shown, "curves": curves, "forest": (), "days": shown, "age": ()}
    return {name: charts.picture(name, drawn) for name, drawn in methods.items()}


def embedded(value: Any) -> str:
    """JSON that may stand inside a script element: no tag in a name can end it."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def filled(name: str, **values: Any) -> str:
    """A template of this package with values, in the style of all.

    Raises:
        ArtifactError: a value that it shows is lacking.
    """
    loader = FileSystemLoader(HERE)
    pages = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    try:
        return pages.get_template(name).render(style=(HERE / "page.css").read_text(), **values)
    except UndefinedError as error:
        raise ArtifactError(f"a report does not say all of {name}: {error}; {REMEDY}") from None


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
    return filled(
        "page.html",
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
        script=(HERE / "page.js").read_text(),
        vega=vega,
    )


SENTENCES: dict[str, str] = read_json(HERE / "online.json")["sentences"]
"""What may have to be said of a test, by its name."""

TABLES: dict[str, Any] = read_json(HERE / "online.json")["tables"]
"""Of each table its title, and by title of each column the key and the format of its cells."""


def headline(found: dict[str, Any]) -> str:
    """One sentence for the top: what changed, or that nothing can be said of effects."""
    if found["withheld"]:
        return "No effect can be claimed"
    sure = [row for row in found["effects"] if row.get("significant")]
    said = ", ".join(f"{row['metric']} {row['effect']:+.2%}" for row in sure)
    return f"The treatment changed {said}" if sure else "No metric has surely changed"


def shown_tables(found: dict[str, Any]) -> dict[str, list[dict[str, str]]]:
    """Tables of texts by title, those without rows left out; what is undefined is a dash."""
    wrong = [
        row | value | {"field_value": display_name(value["field_value"])}
        for row in found["calibration"]
        for value in row["wrong"]
    ]
    shown = {}
    for name, (title, columns) in TABLES.items():
        rows = wrong if name == "wrong" else found[name]
        there = {
            head: (k, form) for head, (k, form) in columns.items() if any(k in r for r in rows)
        }
        if rows:
            shown[title] = [
                {h: _cell(r.get(k), form) for h, (k, form) in there.items()} for r in rows
            ]
    return shown


def _cell(value: Any, form: str) -> str:
    return "–" if value is None else format(value, form)


def write_online_page(target: Path, found: dict[str, Any]) -> None:
    """Write the page of an analysis, which runs no script and needs no network."""
    shown = shown_tables(found)
    drawn = [row for row in found["effects"] if row["effect"] is not None]
    write_page(
        target,
        "online.html",
        headline=headline(found),
        found=found,
        tables={t: [[*rows[0]], [[*row.values()] for row in rows]] for t, rows in shown.items()},
        picture=static(picture("effects"), drawn, "currentColor", 640) if drawn else "",
    )


def write_page(target: Path, name: str, **values: Any) -> None:
    """Write a page of this package's template `name`, in the style of all."""
    with publish(target) as temporary:
        temporary.write_text(filled(name, **values))
