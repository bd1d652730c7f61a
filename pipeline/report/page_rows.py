"""The page's tables: rows of texts from the reports."""

from typing import Any

from pipeline.report.page_data import display_name
from pipeline.report.terminal import ABLATED, NAMES, champion_lines, metric_rows, number

CALIBRATORS = NAMES | {"identity": "none, the base model as it is"}
MEASURES = [("LogLoss", "logloss"), ("deviance", "field_deviance"), ("Field-RCE", "field_rce")]


def gain_rows(
    gains: dict[str, dict[str, dict[str, Any]]], names: dict[str, str] = NAMES
) -> list[list[str]]:
    """One row a method: each measure's gain and its interval."""
    return [
        [name, *(_gain(gains[method].get(measure)) for _, measure in MEASURES)]
        for method, name in names.items()
        if method in gains
    ]


def _gain(gain: dict[str, Any] | None) -> str:
    if gain is None or gain["value"] is None:
        return "undefined"
    if gain["low"] is None:
        return f"{gain['value']:+.5f} (no interval)"
    return f"{gain['value']:+.5f} ({gain['low']:+.5f} to {gain['high']:+.5f})"


def result_rows(evaluation: dict[str, Any], names: dict[str, str] = NAMES) -> list[list[str]]:
    """One row a method: its metrics, the interval of Field-RCE, its floor, different outputs."""
    rows = []
    methods = [evaluation["methods"][name] for name in names if name in evaluation["methods"]]
    for row, values in zip(metric_rows(evaluation, names), methods, strict=True):
        ends = [values["field_rce_low"], values["field_rce_high"], values["field_rce_floor"]]
        texts = ["undefined" if end is None else f"{end:.4f}" for end in ends]
        outputs = f"{values['distinct_outputs']:,}"
        rows.append([*row, f"{texts[0]} to {texts[1]}", texts[2], outputs])
    return rows


def ablation_rows(evaluation: dict[str, Any]) -> list[list[str]]:
    """The paper's second table where it was asked for: metrics, and the gain in Field-RCE."""
    rows = metric_rows(evaluation, ABLATED)
    gains = gain_rows(evaluation["gains"], ABLATED)
    return [[*row, gain[-1]] for row, gain in zip(rows, gains, strict=True)]


def choice_rows(held_out: dict[str, Any]) -> list[list[str]]:
    """One row a calibrator: its out-of-sample LogLoss, its distance to the best, and its error."""
    columns = [held_out[name] for name in ("logloss", "excess", "standard_error")]
    return [
        [CALIBRATORS[name], *(number(column[name], ".5f") for column in columns)]
        for name in sorted(held_out["logloss"], key=held_out["logloss"].__getitem__)
    ]


def largest_rows(evaluation: dict[str, Any]) -> list[list[str]]:
    """One row each of the largest field values: its PCOC and the gate's interval of it."""
    return [
        [
            display_name(row["field_value"]),
            number(row["pcoc"], ".3f"),
            f"{number(row['low'], '.3f')} to {number(row['high'], '.3f')}",
        ]
        for row in evaluation.get("largest_field_values", [])
    ]


def left_out_rows(
    evaluation: dict[str, Any], validation: dict[str, Any], tables: dict[str, Any]
) -> list[tuple[str, str]]:
    """What each metric does not cover, and what the log was."""
    model, champion = evaluation["methods"]["model"], evaluation.get("champion")
    auc = model["field_auc_coverage"] or 0.0
    return [
        ("Field-RCE", _rce_coverage(model)),
        ("Field-AUC", f"covers {100 * auc:.1f} % of impressions: values with both outcomes"),
        ("LogLoss, deviance, AUC", "cover everything"),
        (
            "The log",
            f"{validation['days']} days, {validation['first_day']} to {validation['last_day']}; "
            f"{validation['impressions']:,} impressions, {validation['responses']:,} responses",
        ),
        *[
            ("Days that wait for labels", ", ".join(days))
            for days in [validation["waiting"]]
            if days
        ],
        *[("Warning", warning) for warning in validation["warnings"]],
        (
            "Bin tables",
            f"{'passed' if tables['passed'] else 'failed'}, {len(tables['checks'])} checks",
        ),
        ("Champion", "; ".join(champion_lines(champion))),
    ]


def _rce_coverage(model: dict[str, Any]) -> str:
    """Field-RCE divides by a value's responses: those without any are told apart."""
    text = f"covers {100 * (model['field_rce_coverage'] or 0.0):.1f} % of impressions"
    values = model["field_rce_values_left_out"]
    if not values:
        return f"{text}: every field value has responses"
    error = model["field_rce_absolute_error_left_out"]
    expected = "undefined" if error is None else f"{error:,.1f}"
    return f"{text}; left out: {values:,} without responses, where {expected} were expected"
