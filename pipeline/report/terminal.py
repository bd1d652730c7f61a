"""The last result in the terminal."""

from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from pipeline.core.files import read_report
from pipeline.report.result_tables import (
    METRICS,
    champion_lines,
    evidence_lines,
    excess_rows,
    extent,
    gate_rows,
    metric_rows,
)


def read_results(folder: Path) -> dict[str, Any]:
    """The last `evaluation`, `gate` and, where it is there, the place of the `report`.

    Raises:
        ArtifactError: the pipeline has not run in `folder`.
    """
    report = folder / "artifacts/report/report.html"
    return {
        "evaluation": read_report(folder / "reports/evaluation.json", "first_day", "methods"),
        "gate": read_report(folder / "reports/gate.json", "reasons", "verdict"),
        "report": str(report.resolve()) if report.exists() else None,
    }


def show_results(found: dict[str, Any], changed: list[str]) -> None:
    """Print the metric table of an evaluation, the verdict and the place of the report.

    Args:
        found: what `read_results` returns.
        changed: what is no longer as it was when the results were made.
    """
    evaluation, gate = found["evaluation"], found["gate"]
    console = Console(markup=False, emoji=False, highlight=False)  # names are what they are
    title = f"{evaluation['first_day']} to {evaluation['last_day']}: {extent(evaluation)}"
    table = Table(title=title, box=SIMPLE, padding=0, pad_edge=False)
    table.add_column("method", no_wrap=True)
    truth = excess_rows(evaluation)
    for name in [*(name for name, _, _ in METRICS), *(["excess"] if truth else [])]:
        table.add_column(name, justify="right")
    for row in metric_rows(evaluation):
        table.add_row(*row, *([truth[row[0]]] if truth else []))
    console.print(table)
    if truth:
        console.print("excess: LogLoss over that of the true probabilities, × 10⁴")
    if "champion" in evaluation:
        lines = "; ".join(champion_lines(evaluation["champion"]))
        console.print(f"champion: {lines}")
    for line in evidence_lines(evaluation):
        console.print(line)
    console.print(f"verdict: {gate['verdict']}", style="bold")
    for reason in gate["reasons"]:
        console.print(f"  - {reason}")
    for question, answer, passed, sentence in gate_rows(gate):
        if passed and answer != "yes":
            console.print(f"  {question} {answer}: {sentence}")
    place = found["report"] or "not in this folder; adacalib report brings it"
    console.print(f"report: {place}", soft_wrap=True)
    if changed:
        console.print(
            f"out of date: {', '.join(changed)} changed after these results were "
            "made; dvc repro makes them again",
            soft_wrap=True,
        )
