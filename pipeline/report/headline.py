"""The first screen of a report: before and after, of which log; and the gate's answers."""

from collections.abc import Mapping
from typing import Any

from pipeline.report.result_tables import CALIBRATORS, METRICS, interval_text, number

STRIP = [metric for metric in METRICS if metric[1] in ("pcoc", "logloss", "daily_field_deviance")]
_TITLES = {"daily_field_deviance": "daily deviance"}
QUESTIONS = {
    "tables": "Are the field statistics sound?",
    "parity": "Does the deployed file say what was measured?",
    "monotone": "Does a higher score never get a lower probability?",
    "test_responses": "Are there enough responses for a verdict?",
    "defined": "Is every metric defined?",
    "logloss_gain": "Is LogLoss surely better than without calibration?",
    "daily_field_deviance": "Are field values served no worse than without calibration?",
    "pcoc": "Are expected responses right overall?",
    "pcoc_of_largest_values": "Are they right for the largest field values?",
    "distinct_outputs": "Do different scores stay different?",
    "memorisation": "Does the base model treat its training rows like fresh ones?",
    "newest_day": "Is the newest day sound?",
    "label_maturity": "Are all labels final?",
    "field_auc_loss": "Is the ranking within field values kept?",
    "auc_loss": "Is the ranking over all rows kept?",
    "not_worse_than_isotonic": "Is it no worse than isotonic regression?",
    "not_worse_than_eb_platt": "Is it no worse than EB-Platt?",
    "champion": "Can the champion be compared, if there is one?",
    "logloss_against_champion": "Is its LogLoss no worse than the champion's?",
    "daily_field_deviance_against_champion": "Is its deviance no worse than the champion's?",
    "mix_drift": "Is the mix of field values as it was?",
    "rate_drift": "Are response rates as they were?",
}


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
    """How much was measured; of a sampled log what was kept, and what that stands for."""
    kept = f"{evaluation['impressions']:,} impressions"
    whole = evaluation.get("before_sampling")
    if whole:
        kept += f" kept, which stand for {whole['impressions']:,.0f}"
    return f"{kept}; {evaluation['responses']:,} responses"


def strip(evaluation: dict[str, Any], gate: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The headline numbers: a title, base model → what ships, and how sure that is."""
    before, after = (evaluation["methods"][name] for name in ("uncalibrated", "model"))
    gains, cards = evaluation["gains"]["model"], []
    for title, key, form in reversed(STRIP):
        change = f"{number(before[key], form)} → {number(after[key], form)}"
        sure = interval_text(gains[key]) if key in gains else _answer(gate)
        cards.append((_TITLES.get(key, title), change, sure))
    champion = evaluation.get("champion")
    over = ((champion or {}).get("gains") or {}).get("logloss")
    name = champion["version"] if champion else "none in production"
    said = f"LogLoss gain {interval_text(over)}" if over else "not compared" if champion else ""
    passed = gate["passed"]
    step = "adacalib promote" if passed else "dvc repro"
    after_that = "puts it in production" if passed else "once the first reason above is dealt with"
    return [*cards, ("Against the champion", name, said), ("Next command", step, after_that)]


def _answer(gate: dict[str, Any]) -> str:
    """What the gate allows of PCOC overall, and its answer."""
    for check in gate["checks"]:
        if check["name"] == "pcoc" and check["answer"]:
            limit = check["limit"]
            return f"allowed {1 - limit:g} to {1 + limit:g}: {check['answer']}"
    return "1 is right"


def facts(
    evaluation: dict[str, Any],
    validation: dict[str, Any],
    gate: dict[str, Any],
    manifest: Mapping[str, Any],
    chosen: str,
) -> list[tuple[str, str]]:
    """What was measured, on what, and what it was made from: a term and a text each."""
    lineage, about = manifest.get("lineage") or {}, evaluation["procedure"]
    log_format = lineage.get("params", {}).get("log", {}).get("format", "of an unnamed format")
    days = lineage.get("data", {}).get("days", {})
    window = ", ".join(f"{len(named)} {split} days" for split, named in days.items() if named)
    base = (
        f", base model trained on days up to {about['base_until']}" if about["base_until"] else ""
    )
    return [
        (
            "Log",
            f"{log_format}, {validation['days']} days from {validation['first_day']} to "
            f"{validation['last_day']}: {validation['impressions']:,} impressions in the log, "
            f"{validation['responses']:,} responses",
        ),
        (
            "Test days",
            f"{evaluation['first_day']} to {evaluation['last_day']}: {extent(evaluation)}; "
            f"{evaluation['field_values']:,} field values",
        ),
        ("Sampling", _sampling(manifest.get("conventions", {}))),
        (
            "Ships",
            f"{CALIBRATORS[chosen]}, learned from labels up to {about['shipped_until']}{base}",
        ),
        (
            "Model",
            f"sha256 {str(gate.get('model_sha256'))[:10]}, made from {window or 'unnamed days'}; "
            "adacalib history has its version and commit once it is promoted",
        ),
    ]


def _sampling(conventions: Mapping[str, Any]) -> str:
    """How the log was sampled, as the conventions of a model say."""
    rates, weight = conventions.get("keep_rate"), conventions.get("weight")
    if rates:
        shares = ", ".join(f"{share:g} on {split} days" for split, share in rates.items())
        return f"of the impressions without a response were kept: {shares}"
    return f"rows stand for as many as their {weight} says" if weight else "none"
