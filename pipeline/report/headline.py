"""What a report and the terminal begin with: how much was measured, what the gate answered."""

from typing import Any

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
