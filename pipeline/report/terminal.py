"""The result table and the verdict for the terminal."""

from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from pipeline.core.files import read_json

# Column title, key in reports/evaluation.json, format.
METRICS = (
    ("LogLoss", "logloss", ".5f"),
    ("deviance", "field_deviance", ".4f"),
    ("Field-RCE", "field_rce", ".4f"),
    ("Field-AUC", "field_auc", ".4f"),
    ("AUC", "auc", ".4f"),
    ("PCOC", "pcoc", ".4f"),
)
NAMES = {
    "uncalibrated": "base model",
    "platt": "Platt",
    "temperature": "temperature",
    "sir": "SIR",
    "isotonic": "isotonic",
    "isotonic_per_value": "isotonic per value",
    "ratio_per_value": "ratio per value",
    "logistic_interaction": "logistic regression",
    "neucalib": "NeuCalib",
    "eb_platt": "EB-Platt",
    "eb_platt_forward": "EB-Platt, forward",
    "adacalib": "AdaCalib",
    "champion": "champion",
    "model": "what ships",
}
ABLATED = {  # the paper's second table
    "paper": "as published",
    "paper_one_bin_count": "− adaptive binning",
    "paper_shared_bins": "− adaptive function",
    "paper_free_knots": "− posterior guidance",
}


def number(value: Any, form: str) -> str:
    """A number as a table shows it; what is undefined says so."""
    return "undefined" if value is None else format(value, form)


def metric_rows(evaluation: dict[str, Any], names: dict[str, str] = NAMES) -> list[list[str]]:
    """One row of texts a method, in the order of `names`: its name, then METRICS."""
    methods = evaluation["methods"]
    return [
        [name] + [number(methods[method][key], form) for _, key, form in METRICS]
        for method, name in names.items()
        if method in methods
    ]


def excess_rows(evaluation: dict[str, Any]) -> dict[str, list[str]]:
    """Excess log-loss over the true probabilities × 10⁴ by method; empty where they are unknown."""
    excess = (evaluation.get("truth") or {}).get("excess_logloss", {})
    return {NAMES[m]: [f"{1e4 * excess[m]:.2f}"] for m in NAMES if m in excess}


def champion_lines(champion: dict[str, Any] | None) -> list[str]:
    """What an evaluation says of the champion: a sentence each for its version and every gain."""
    if champion is None:
        return ["none, champion.json pins no version"]
    version = f"{champion['version']}, made from days up to {champion['last_day']}"
    if not champion["readable"]:
        return [f"{version}, cannot score the test days: {champion['why']}"]
    lines = [version]
    for title, key, form in METRICS:
        gain = champion["gains"].get(key)
        if gain and gain["value"] is not None:
            ends = [gain["low"], gain["high"]]
            known = f"{ends[0]:+{form}} to {ends[1]:+{form}}" if None not in ends else "no interval"
            lines.append(f"{title} gains {gain['value']:+{form}} ({known}) over it")
    return lines


def read_results(folder: Path) -> dict[str, Any]:
    """The last `evaluation`, `gate` and the place of the `report` in a project's folder.

    Raises:
        ArtifactError: the pipeline has not run in `folder`.
    """
    return {
        "evaluation": read_json(folder / "reports/evaluation.json"),
        "gate": read_json(folder / "reports/gate.json"),
        "report": str((folder / "artifacts/report/report.html").resolve()),
    }


def show_results(found: dict[str, Any], changed: list[str]) -> None:
    """Print the metric table of an evaluation, the verdict and the place of the report.

    Args:
        found: what `read_results` returns.
        changed: what is no longer as it was when the results were made.
    """
    evaluation, gate = found["evaluation"], found["gate"]
    console = Console()
    title = (
        f"{evaluation['rows']:,} test rows, {evaluation['responses']:,} responses, "
        f"{evaluation['first_day']} to {evaluation['last_day']}"
    )
    table = Table(title=title, box=SIMPLE, padding=0, pad_edge=False)
    table.add_column("method", no_wrap=True)
    truth = excess_rows(evaluation)
    for name in [*(name for name, _, _ in METRICS), *(["excess"] if truth else [])]:
        table.add_column(name, justify="right")
    for row in metric_rows(evaluation):
        table.add_row(*row, *truth.get(row[0], []))
    console.print(table)
    if truth:
        console.print("excess: LogLoss over that of the true probabilities, × 10⁴", highlight=False)
    if "champion" in evaluation:
        said = "; ".join(champion_lines(evaluation["champion"]))
        console.print(f"champion: {said}", highlight=False)
    console.print(f"verdict: [bold]{gate['verdict']}[/bold]")
    for reason in gate["reasons"]:
        console.print(f"  - {reason}", highlight=False)
    console.print(f"report: {found['report']}", soft_wrap=True)
    if changed:
        console.print(
            f"[bold]out of date[/bold]: {', '.join(changed)} changed after these results were "
            "made; dvc repro makes them anew",
            highlight=False,
            soft_wrap=True,
        )
