"""What a refresh shows in Prefect: the verdict in words and the metrics as a table."""

from pathlib import Path
from typing import Any

from prefect.artifacts import create_markdown_artifact, create_table_artifact

from pipeline.files import read_json
from pipeline.report.terminal import METRICS, metric_rows


def verdict_text(day: str, gate: dict[str, Any]) -> str:
    """The verdict of a day in Markdown: the reasons of a refusal, then every check."""
    verdict = "passed" if gate["passed"] else "refused"
    reasons = [f"- {reason}" for reason in gate["reasons"]]
    checks = [
        f"| {check['name']} | {'passed' if check['passed'] else 'failed'} | {check['sentence']} |"
        for check in gate["checks"]
    ]
    table = ["| check | | |", "|---|---|---|", *checks]
    return "\n".join([f"# {day}: {verdict}", "", *reasons, "", *table])


def metric_table(evaluation: dict[str, Any]) -> list[dict[str, str]]:
    """One row for each method of an evaluation, with the metrics that the terminal shows."""
    columns = ["method", *(title for title, _, _ in METRICS)]
    return [dict(zip(columns, row, strict=True)) for row in metric_rows(evaluation)]


def show(day: str, folder: Path) -> None:
    """Make both artifacts from the reports in a folder."""
    gate = read_json(folder / "reports/gate.json")
    create_markdown_artifact(verdict_text(day, gate), key="verdict", description=f"day {day}")
    evaluation = read_json(folder / "reports/evaluation.json")
    create_table_artifact(metric_table(evaluation), key="metrics", description=f"day {day}")
