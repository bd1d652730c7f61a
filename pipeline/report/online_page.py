"""The analysis of an online test as people read it: tables of texts, a picture, the page."""

from pathlib import Path
from typing import Any

from pipeline.core.files import publish, read_json
from pipeline.report.charts import effect_chart, static
from pipeline.report.page import HERE, template
from pipeline.report.result_tables import display_name

SENTENCES: dict[str, str] = read_json(HERE / "online.json")
"""What may have to be said of a test, by its name."""

# Of each table the columns: title, key and format.
EFFECTS = {
    "metric": ("metric", ""), "control": ("control", ".5g"), "treatment": ("treatment", ".5g"),
    "effect": ("effect", "+.2%"), "from": ("low", "+.2%"), "to": ("high", "+.2%"),
    "p": ("pvalue", ".3g"), "adjusted p": ("pvalue_adj", ".3g"),
}  # fmt: skip
RATIOS = {
    "from": ("from", ""), "planned share": ("share", "g"), "control": ("control", ","),
    "treatment": ("treatment", ","), "p": ("pvalue", ".3g"),
}  # fmt: skip
ARMS = {
    "arm": ("arm", ""), "units": ("units", ","), "impressions": ("impressions", ",.0f"),
    "clicks": ("clicks", ",.0f"), "responses": ("responses", ",.0f"), "GMV": ("gmv", ",.2f"),
    "revenue": ("revenue", ",.2f"),
}  # fmt: skip
OBSERVED = {
    "version": ("version", ""), "traffic of": ("traffic", ""), "PCOC": ("pcoc", ".4f"),
    "from": ("low", ".4f"), "to": ("high", ".4f"), "responses": ("responses", ",.0f"),
}  # fmt: skip
CALIBRATION = OBSERVED | {
    "daily deviance": ("daily_field_deviance", ".4f"), "LogLoss": ("logloss", ".5f"),
    "impressions": ("impressions", ",.0f"),
}  # fmt: skip
WRONG = {"field value": ("field_value", "")} | OBSERVED


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
    tables = {
        "Effects": (EFFECTS, found["effects"]),
        "Units, and whether chance decided": (RATIOS, found["sample_ratio"]),
        "What was counted": (ARMS, found["arms"]),
        "Calibration of each version on each arm's traffic": (CALIBRATION, found["calibration"]),
        "Field values that are surely wrong": (WRONG, wrong),
    }
    return {
        title: [
            {head: "–" if row.get(key) is None else format(row[key], form)
             for head, (key, form) in columns.items() if any(key in row for row in rows)}
            for row in rows
        ]
        for title, (columns, rows) in tables.items()
        if rows
    }  # fmt: skip


def write_online_page(target: Path, found: dict[str, Any]) -> None:
    """Write the page of an analysis, which runs no script and needs no network."""
    shown = shown_tables(found)
    drawn = [row for row in found["effects"] if row["effect"] is not None]
    page = template("online.html").render(
        style=(HERE / "page.css").read_text(),
        headline=headline(found),
        found=found,
        tables={t: [[*rows[0]], [[*row.values()] for row in rows]] for t, rows in shown.items()},
        picture=static(effect_chart(), drawn, "currentColor", 640) if drawn else "",
    )
    with publish(target) as temporary:
        temporary.write_text(page)
