"""What a report and the terminal begin with: how much was measured, what the gate answered."""

from pathlib import Path
from typing import Any

from pipeline.core.files import read_json

QUESTIONS = read_json(Path(__file__).with_name("questions.json"))
"""Of each check of the gate, by its name, the question that it answers."""


def gate_rows(gate: dict[str, Any]) -> list[tuple[str, str, bool, str]]:
    """One row a check: the question, its answer, whether that passes, and the evidence.

    What did not pass comes first, then what nobody can tell.
    """
    rows = [
        (
            QUESTIONS.get(check["name"], check["name"]),
            check.get("answer") or ("yes" if check["passed"] else "no"),
            check["passed"],
            check["sentence"],
        )
        for check in gate["checks"]
    ]
    return sorted(rows, key=lambda row: (row[2], row[1] in ("yes", "within")))


def extent(evaluation: dict[str, Any]) -> str:
    """How much was measured; of a sampled log what was kept, and what that stands for.

    Of field values with parents how many moved.
    """
    kept = f"{evaluation['impressions']:,} impressions"
    whole = evaluation.get("before_sampling")
    if whole:
        kept += f" kept, which stand for {whole['impressions']:,.0f}"
    kept += f"; {evaluation['responses']:,} responses"
    if parents := evaluation.get("parents"):
        kept += "; {ids:,} parents, {moved:,} field values moved, ".format(**parents)
        kept += f"{parents['several']:,} had several on one day"
    return kept
