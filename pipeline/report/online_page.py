"""The analysis of an online test as people read it: tables of texts, a picture, the page."""

from pathlib import Path
from typing import Any

from pipeline.core.files import publish, read_json
from pipeline.report.charts import effect_chart, static
from pipeline.report.page import HERE, template
from pipeline.report.result_tables import display_name

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
    page = template("online.html").render(
        style=(HERE / "page.css").read_text(),
        headline=headline(found),
        found=found,
        tables={t: [[*rows[0]], [[*row.values()] for row in rows]] for t, rows in shown.items()},
        picture=static(effect_chart(), drawn, "currentColor", 640) if drawn else "",
    )
    with publish(target) as temporary:
        temporary.write_text(page)
