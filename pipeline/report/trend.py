"""The trend: a row for each refreshed day of what was made and of what served, kept in git."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.core.errors import ArtifactError, DataError
from pipeline.core.files import found, publish, read_json
from pipeline.formats.days import day_number
from pipeline.report.result_tables import display_name

TREND = Path("reports/trend.csv")
PAGE = Path("artifacts/trend.html")
# Column, and where it stands in reports/evaluation.json.
FIGURES = {
    "made_logloss": ("methods", "model", "logloss"),
    "made_PCOC": ("methods", "model", "pcoc"),
    "base_logloss": ("methods", "uncalibrated", "logloss"),
    "served": ("champion", "version"),
    "days_since_label": ("champion", "served", "days"),
    "served_logloss": ("champion", "served", "logloss", "value"),
    "served_PCOC": ("champion", "served", "pcoc", "value"),
    "day_PCOC": ("champion", "served", "newest", 0, "pcoc"),
    "sound_from": ("champion", "served", "newest", 0, "low"),
    "sound_to": ("champion", "served", "newest", 0, "high"),
}
NUMBERS = FIGURES.keys() - {"served"}
COLUMNS = ("day", "verdict", "model", *FIGURES, "alarm")
Row = dict[str, str]
_MEND = f"git log --patch release -- {TREND} has it as it was: mend it and commit it on release"


def add_day(folder: Path, day: str) -> list[str]:
    """Put a refreshed day into reports/trend.csv; a sentence for each alarm that is new.

    Raises:
        ArtifactError: a report is missing or is not JSON.
    """
    evaluation, gate = (
        read_json(folder / f"reports/{name}.json") for name in ("evaluation", "gate")
    )
    alarms = _alarms(evaluation)
    path = folder / TREND
    rows = {row["day"]: row for row in (trend_rows(path.read_text()) if path.exists() else [])}
    before = rows.get(day, {}).get("alarm")
    figures = {name: _text(found(evaluation, *place)) for name, place in FIGURES.items()}
    model = str(gate["model_sha256"])[:10]
    rows[day] = {"day": day, "verdict": gate["verdict"], "model": model, **figures}
    rows[day]["alarm"] = "; ".join(alarms)
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows[name] for name in sorted(rows))
    with publish(path) as temporary:
        temporary.write_text(text.getvalue())
    return alarms if rows[day]["alarm"] != before else []


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)


def _alarms(evaluation: dict[str, Any]) -> list[str]:
    """A sentence for each PCOC of the newest served day that no sound day has."""
    newest = found(evaluation, "champion", "served", "newest") or []
    return [
        f"PCOC of {display_name(row['field_value']) if 'field_value' in row else 'all rows'} was "
        f"{_text(row['pcoc']) or 'undefined (no responses)'} on {newest[0]['day']}, of a sound day "
        f"it lies within {row['low']:.3g} to {_text(row['high']) or 'any value'}"
        for row in newest
        if row["beyond"]
    ]


def trend_rows(text: str) -> list[Row]:
    """The rows of a trend.csv, the oldest day first; of a day that it has twice, the later one.

    Raises:
        ArtifactError: a row is none of a refreshed day, or there is none at all.
    """
    days: dict[str, Row] = {}
    table = csv.DictReader(io.StringIO(text))
    for row in table:
        try:
            day_number(row["day"])
            numbers = [float(row.get(name) or 0) for name in NUMBERS]
        except (DataError, KeyError, TypeError, ValueError):
            numbers = []
        if not numbers or None in row:  # which has the fields that no column is for
            raise ArtifactError(f"{TREND}, line {table.line_num} is no row of a day; {_MEND}")
        days[row["day"]] = {name: row.get(name) or "" for name in COLUMNS}
    if not days:
        raise ArtifactError(f"{TREND} has no row of a day; {_MEND}")
    return [days[day] for day in sorted(days)]


def shown_rows(rows: list[Row]) -> list[Row]:
    """The rows as people read them, the newest first."""
    return [
        {name.replace("_", " "): text or "–" for name, text in row.items()}
        for row in reversed(rows)
    ]


def trend_pictures(rows: list[Row], ink: str = "currentColor") -> Iterator[str]:
    """PCOC and LogLoss by refreshed day as SVG texts, in the page's ink or another."""
    from pipeline.report.charts import picture, static  # takes a second to load

    drawn: list[dict[Any, Any]] = [
        row | {name: float(row[name]) if row[name] else None for name in NUMBERS} for row in rows
    ]
    return (static(picture(name), drawn, ink, 900) for name in ("served", "losses"))


def write_trend(folder: Path, rows: list[Row]) -> Path:
    """Write the page of the trend, which runs no script; where it is."""
    from pipeline.report.page import write_page  # as above

    write_page(
        folder / PAGE,
        "trend.html",
        pictures=[*trend_pictures(rows)],
        rows=rows,
        heads=list(shown_rows(rows)[0]),
        tabled=[list(row.values()) for row in shown_rows(rows)],
    )
    return folder / PAGE
