"""Results as rows of texts, for the terminal and for the page.

The last result in the terminal.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipeline.core.files import read_json
from pipeline.encoding.values import MARK, PAIR, PARENT, SEPARATOR
from pipeline.formats.gate_report import read_verdict

QUESTIONS = read_json(Path(__file__).with_name("questions.json"))
"""Of each check of the gate, by its name, the question that it answers."""

# Column title, key in reports/evaluation.json, format.
METRICS = (
    ("LogLoss", "logloss", ".5f"),
    ("deviance", "daily_field_deviance", ".4f"),
    ("pooled", "field_deviance", ".4f"),
    ("Field-RCE", "field_rce", ".4f"),
    ("Field-AUC", "daily_field_auc", ".4f"),
    ("AUC", "auc", ".4f"),
    ("PCOC", "pcoc", ".4f"),
)
PAGE_METRICS = (
    *METRICS,
    ("deviance floor", "daily_field_deviance_floor", ".4f"),
    ("Field-RCE floor", "field_rce_floor", ".4f"),
    ("outputs", "distinct_outputs", ","),
)
NAMES = {
    "uncalibrated": "base model",
    "isotonic": "isotonic",
    "eb_platt": "EB-Platt",
    "adacalib": "AdaCalib",
    "champion": "champion",
    "model": "what ships",
    "frozen": "frozen",
}
CALIBRATORS = NAMES | {"identity": "none, the base model as it is"}
AGE_METRICS = [metric for metric in METRICS if metric[1] not in ("daily_field_auc", "auc")]
GROUPS = {  # of new and rare field values
    "all": "all rows",
    "unseen": "no map of their own that morning",
    "rare": "known by fewer than 50 responses",
    "age_0": "first seen on the day",
    "age_1": "the day before",
    "age_2": "two days before",
    "age_3-6": "three to six days before",
}
MEASURES = [METRICS[place][:2] for place in (0, 1, 3)]  # what is shown as a gain


def display_name(name: str | None) -> str:
    """A field value as people read it: parts of a tuple apart, what is of many by its meaning."""
    if name is None:
        return "unseen"
    parts = name.removeprefix(PARENT).removeprefix(PAIR).replace(SEPARATOR, " / ")
    return f"(others of {parts})" if name.startswith(PARENT) else parts.removeprefix(MARK)


def number(value: Any, form: str) -> str:
    """A number as a table shows it; what is undefined says so."""
    return "undefined" if value is None else format(value, form)


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
        kept += f"; {parents['ids']:,} parents"
        if parents["moved"] or parents["pairs"]:
            kept += "; of the field values {moved:,} came under another parent, ".format(**parents)
            kept += "{pairs:,} are pairs of a value and its parents".format(**parents)
    return kept


def metric_rows(
    evaluation: dict[str, Any], metrics: Iterable[tuple[str, str, str]] = METRICS
) -> list[list[str]]:
    """One row of texts a method, in the order of NAMES: its name, then metrics."""
    methods = evaluation["methods"]
    return [
        [name] + [number(methods[method][key], form) for _, key, form in metrics]
        for method, name in NAMES.items()
        if method in methods
    ]


def excess_rows(evaluation: dict[str, Any]) -> dict[str, str]:
    """Excess log-loss over the true probabilities × 10⁴ by method; empty where they are unknown."""
    excess = (evaluation.get("truth") or {}).get("excess_logloss", {})
    return {NAMES[m]: f"{1e4 * excess[m]:.2f}" for m in NAMES if m in excess}


def metric_table(evaluation: dict[str, Any]) -> list[dict[str, str]]:
    """One row for each method of an evaluation, by column: metrics, and the excess over the truth
    where that is known."""
    columns, excess = ("method", *(title for title, _, _ in METRICS)), excess_rows(evaluation)
    rows = [dict(zip(columns, row, strict=True)) for row in metric_rows(evaluation)]
    return [row | {"excess": excess[row["method"]]} for row in rows] if excess else rows


def champion_lines(champion: dict[str, Any] | None) -> list[str]:
    """What an evaluation says of the champion: a sentence each for its version and every gain."""
    if champion is None:
        return ["none, champion.json pins no version"]
    version = f"{champion['version']}, made from days up to {champion['last_day']}"
    if not champion["readable"]:
        return [f"{version}, cannot score the test days: {champion['why']}"]
    if champion["same_procedure"]:
        version += ", the same procedure"
    lines = [f"{version}, compared on {champion['compared_days']} days"]
    for title, key, form in METRICS:
        gain = champion["gains"].get(key)
        if gain and gain["value"] is not None:
            lines.append(f"{title} gains {interval_text(gain, form)} over it")
    if champion.get("served"):
        served = champion["served"]
        loss, pcoc = (_ends(served[name], ".5f") for name in ("logloss", "pcoc"))
        lines.append(
            f"the bytes that served have LogLoss {loss} and PCOC {pcoc} on the "
            f"{served['days']} test days after their last label"
        )
    return lines


def _ends(interval: dict[str, Any], form: str) -> str:
    value, low, high = (number(interval[end], form) for end in ("value", "low", "high"))
    return value if interval["low"] is None else f"{value} ({low} to {high})"


def evidence_lines(evaluation: dict[str, Any]) -> list[str]:
    """What the results are about, how old what ships is, and what age costs: a sentence each."""
    about, age = evaluation["procedure"], evaluation["age"]
    days, last = about["horizon_days"], age["by_day"][-1]["days_since_label"]
    lines = [
        "The evidence is about the procedure: each test day is forecast by what was known on its "
        f"morning, labels up to {days} {'day' if days == 1 else 'days'} before it. What ships is "
        f"newer, it has learned from days up to {about['shipped_until']}.",
        f"Age: frozen on {about['learned_until']} and up to {last} days old, it would lose "
        f"{interval_text(age['cost'])} in LogLoss.",
    ]
    if about["base_until"]:
        first, newest, served = about["base_age_days"]
        lines.append(
            f"The base model was trained on days up to {about['base_until']}: {first} to {newest} "
            f"days old on the test days, {served} where it serves."
        )
    return lines


def age_rows(evaluation: dict[str, Any]) -> list[list[str]]:
    """One row a calibrator: what decides and PCOC, learning daily → frozen."""
    methods = evaluation["methods"]
    return [
        [NAMES[name]]
        + [f"{number(methods[name][k], f)} → {number(frozen[k], f)}" for _, k, f in AGE_METRICS]
        for name, frozen in evaluation["age"].get("frozen", {}).items()
    ]


def worth_rows(evaluation: dict[str, Any], kind: str) -> list[list[str]]:
    """One row a method or a field value of expected and observed value.

    Both, how far apart they are, and PCOC weighted by value.
    """
    worth = evaluation["worth"][kind]
    if kind == "methods":
        named = [(NAMES[name], worth[name]) for name in worth if name in ("uncalibrated", "model")]
    else:
        named = [(display_name(row["field_value"]), row) for row in worth]
    return [
        [
            name,
            *(f"{row[side]:,.2f}" for side in ("expected", "observed")),
            f"{row['expected'] - row['observed']:+,.2f}",
            _ends(row | {"value": row["pcoc"]}, ".3f"),
        ]
        for name, row in named
    ]


def new_value_rows(evaluation: dict[str, Any]) -> tuple[list[list[str]], list[list[str]]]:
    """Two rows a group of field values: how much it holds, what decides, and PCOC; and ranking."""
    rows, ranking = [], []
    for group, title in GROUPS.items():
        found = evaluation["new_values"][group]
        base, ships = (found["methods"][name] for name in ("uncalibrated", "model"))
        ends = {"value": ships["pcoc"], "low": ships["pcoc_low"], "high": ships["pcoc_high"]}
        amounts = (f"{found[name]:,.0f}" for name in ("impressions", "responses"))
        metrics = [
            " → ".join(number(each[key], form) for each in (base, ships))
            for _, key, form in (*METRICS[:2], *METRICS[4:6], ("ECE", "ece", ".4f"))
        ]
        rows.append([title, *amounts, *metrics[:2], _ends(ends, ".3f")])
        ranking.append([title, *metrics[2:]])
    return rows, ranking


def bins_rows(calibrator: dict[str, Any]) -> list[list[str]]:
    """One row a number of bins: the field values that chose it, and the responses behind them."""
    bins, responses = calibrator.get("chosen_bins", []), calibrator["responses"]
    rows = []
    for chosen in sorted({*bins} - {0}):
        own = sorted(r for k, r in zip(bins, responses, strict=True) if k == chosen)
        some = (own[0], own[len(own) // 2], own[-1])
        rows.append([f"{chosen:,}", f"{len(own):,}", *(f"{amount:,.0f}" for amount in some)])
    return rows


def gain_rows(gains: dict[str, dict[str, dict[str, Any]]]) -> list[list[str]]:
    """One row a method: each measure's gain and its interval."""
    return [
        [name, *(interval_text(gains[method].get(measure)) for _, measure in MEASURES)]
        for method, name in NAMES.items()
        if method in gains
    ]


def interval_text(gain: dict[str, Any] | None, form: str = ".5f") -> str:
    """A gain with its interval."""
    if gain is None or gain["value"] is None:
        return "undefined"
    ends = [gain["low"], gain["high"]]
    known = f"{ends[0]:+{form}} to {ends[1]:+{form}}" if None not in ends else "no interval"
    return f"{gain['value']:+{form}} ({known})"


def choice_rows(held_out: dict[str, Any] | None) -> list[list[str]]:
    """One row a calibrator: its out-of-sample LogLoss, its distance to the best, and its error.

    Empty where there were too few calibration days to choose on.
    """
    if held_out is None:
        return []
    columns = [held_out[name] for name in ("logloss", "excess", "standard_error")]
    return [
        [CALIBRATORS[name], *(number(column[name], ".5f") for column in columns)]
        for name in sorted(held_out["logloss"], key=held_out["logloss"].__getitem__)
    ]


def read_results(folder: Path) -> dict[str, Any]:
    """The last `evaluation`, `gate` and, where it is there, the place of the `report`.

    Raises:
        ArtifactError: the pipeline has not run in `folder`.
    """
    report = folder / "artifacts/report/report.html"
    return {
        "evaluation": read_json(folder / "reports/evaluation.json"),
        "gate": read_verdict(folder),
        "report": str(report.resolve()) if report.exists() else None,
    }


def result_lines(found: dict[str, Any], changed: list[str]) -> list[str]:
    """What an evaluation was measured on, which stands above its table, then what follows below it:
    what ships, champion, age, the verdict with its reasons, and the place of the report.

    Args:
        found: what `read_results` returns.
        changed: what is no longer as it was when the results were made.

    Raises:
        ArtifactError: a report lacks what it should say.
    """
    evaluation, gate = found["evaluation"], found["gate"]
    lines = [f"{evaluation['first_day']} to {evaluation['last_day']}: {extent(evaluation)}"]
    methods = evaluation["methods"]
    same = [NAMES[key] for key in [*NAMES][:4] if methods.get(key) == methods["model"]]
    lines += [f"what ships: {same[0]}"] if same else []
    if excess_rows(evaluation):
        lines.append("excess: LogLoss over that of the true probabilities, × 10⁴")
    if "champion" in evaluation:
        lines.append(f"champion: {'; '.join(champion_lines(evaluation['champion']))}")
    lines += [*evidence_lines(evaluation), f"verdict: {gate['verdict']}"]
    lines += [f"  - {reason}" for reason in gate["reasons"]]
    for question, answer, passed, sentence in gate_rows(gate):
        if passed and answer != "yes":
            lines.append(f"  {question} {answer}: {sentence}")
    lines.append(f"report: {found['report'] or 'not in this folder; adacalib report brings it'}")
    if changed:
        lines.append(
            f"out of date: {', '.join(changed)} changed after these results were made; dvc repro "
            "makes them again"
        )
    return lines
