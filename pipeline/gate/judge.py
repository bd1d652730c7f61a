"""The verdict: may this model replace the one in production, and if not, why."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from pipeline.gate.champion_checks import champion_checks
from pipeline.gate.fact_checks import REFERENCE, SHIPPED, fact_checks
from pipeline.gate.verdict import Check, Gain, Verdict, cause, gain, number
from pipeline.params.sections import GateParams

__all__ = ["Check", "Verdict", "judge"]

PARITY = 1e-6  # between the deployed file and the table, in calibrated logit from equal logits
RIVALS = ("isotonic", "eb_platt")
METRICS = ("logloss", "field_deviance", "field_rce", "field_auc", "auc", "pcoc")


def judge(
    tables_report: dict[str, Any],
    evaluation: dict[str, Any],
    params: GateParams,
    *,
    calibrator: dict[str, Any],
    falls: Sequence[str],
    parity: float,
) -> Verdict:
    """The verdict on a model; what is missing, null, NaN or infinite never passes.

    Args:
        tables_report: content of reports/tables.json.
        evaluation: content of reports/evaluation.json, measured on the test days.
        params: the limits.
        calibrator: what the model's manifest says of it; `chosen` and `choose` are read.
        falls: sentences about field values whose calibrated logit falls somewhere.
        parity: largest difference between the deployed file and the table, in calibrated logit.
    """
    return Verdict(
        (
            _tables(tables_report),
            _parity(parity),
            _monotone(falls),
            _responses(evaluation, params.min_test_responses),
            _defined(evaluation),
            _log_loss(evaluation, params.min_logloss_gain),
            _deviance(evaluation),
            *fact_checks(tables_report, evaluation, params, calibrator),
            _ranking(evaluation, "field_auc", "Field-AUC", params.max_field_auc_loss),
            _ranking(evaluation, "auc", "AUC", params.max_auc_loss),
            *(_rival(evaluation, name, calibrator) for name in RIVALS),
            *champion_checks(tables_report, evaluation, params),
        )
    )


def _tables(report: dict[str, Any]) -> Check:
    passed = isinstance(report, dict) and report.get("passed") is True
    breaches = report.get("breaches") if isinstance(report, dict) else None
    found = "; ".join(map(str, breaches)) if isinstance(breaches, list) and breaches else "no pass"
    sentence = (
        "the checks of the field statistics passed"
        if passed
        else f"the checks of the field statistics say: {found}; see reports/tables.json"
    )
    return Check("tables", float(passed), 1.0, passed, sentence, structural=True)


def _parity(difference: float) -> Check:
    passed = difference <= PARITY
    largest = f"{difference:.3g}" if math.isfinite(difference) else "what is no number"
    sentence = f"the deployed file and its table differ by at most {largest}"
    sentence += (
        f", {PARITY:g} is allowed"
        if passed
        else f", more than {PARITY:g}: what was measured is not what would be deployed; run dvc "
        "repro merge"
    )
    return Check("parity", difference, PARITY, passed, sentence, structural=True)


def _responses(evaluation: dict[str, Any], limit: int) -> Check:
    value = number(evaluation, "responses")
    passed = value >= limit
    if math.isnan(value):
        sentence = "reports/evaluation.json counts no responses; run dvc repro evaluate"
        return Check("test_responses", value, float(limit), False, sentence)
    sentence = (
        f"{value:.0f} responses on the test days, at least {limit}"
        if passed
        else f"too few responses to tell: the test days have {value:.0f}, a verdict needs {limit} "
        "(gate.min_test_responses); take more test days or a more frequent response"
    )
    return Check("test_responses", value, float(limit), passed, sentence)


def _defined(evaluation: dict[str, Any]) -> Check:
    undefined = _undefined(evaluation)
    passed = not undefined
    shown = ", ".join(undefined[:6]) + (f" and {len(undefined) - 6} more" if undefined[6:] else "")
    sentence = (
        "every metric is defined on the test days"
        if passed
        else f"undefined on the test days: {shown}; nothing can be told without them: "
        f"{cause(evaluation)}"
    )
    return Check("defined", float(len(undefined)), 0.0, passed, sentence)


def _undefined(evaluation: dict[str, Any]) -> list[str]:
    """The names of required metrics that are no finite number, and of any metric that is null."""
    required = [
        f"{method}.{name}"
        for method in (REFERENCE, *RIVALS, SHIPPED)
        for name in METRICS
        if math.isnan(number(evaluation, "methods", method, name))
    ]
    others = [
        *_not_finite(evaluation.get("methods")),
        *_not_finite(evaluation.get("gains"), "gains"),
    ]
    return list(dict.fromkeys([*required, *others]))


def _not_finite(report: Any, *names: str) -> Iterator[str]:
    if isinstance(report, dict):
        for key, value in report.items():
            yield from _not_finite(value, *names, key)
    elif report is None or (isinstance(report, float) and not math.isfinite(report)):
        yield ".".join(names)


def _no_gain(name: str, title: str, gained: Gain, limit: float, evaluation: Any) -> Check:
    """A gain over the uncalibrated model without which nothing passes is undefined."""
    sentence = f"{title} gains {gained} over the uncalibrated model on the test days: "
    return Check(name, math.nan, limit, False, sentence + gained.gap(evaluation))


def _log_loss(evaluation: dict[str, Any], limit: float) -> Check:
    gained = gain(evaluation, "gains", SHIPPED, "logloss")
    if not gained.known:
        return _no_gain("logloss_gain", "LogLoss", gained, limit, evaluation)
    passed = gained.low > limit
    sentence = f"LogLoss gains {gained} nats an impression over the uncalibrated model"
    if gained.low == gained.high == 0 and not passed:
        sentence = (
            "what ships is the uncalibrated model itself, which gains nothing, and "
            f"gate.min_logloss_gain asks for more than {limit:g}: no calibrator was surely better "
            "on the calibration days, take more of them (split.calibration_days)"
        )
        return Check("logloss_gain", gained.low, limit, passed, sentence)
    sentence += (
        f", the whole interval above {limit:g}"
        if passed
        else f"; its whole interval must lie above {limit:g} (gate.min_logloss_gain): the gain "
        "cannot be told from luck, take more calibration or test days"
    )
    return Check("logloss_gain", gained.low, limit, passed, sentence)


def _deviance(evaluation: dict[str, Any]) -> Check:
    gained = gain(evaluation, "gains", SHIPPED, "field_deviance")
    if not gained.known:
        return _no_gain("field_deviance", "field deviance", gained, 0.0, evaluation)
    passed = gained.high >= 0
    sentence = f"field deviance gains {gained} over the uncalibrated model"
    sentence += (
        ", not worse"
        if passed
        else "; an interval wholly below 0 says that field values are served worse than before: "
        "look at the largest in the report"
    )
    return Check("field_deviance", gained.high, 0.0, passed, sentence)


_RANKING_ADVICE = {
    "field_auc": "look for plateaus in the maps or raise calibrate.min_slope",
    "auc": "rows of different field values changed places for the worse; look for field values "
    "whose rates moved after the calibration days",
}


def _ranking(evaluation: dict[str, Any], key: str, title: str, limit: float) -> Check:
    before, after = (number(evaluation, "methods", m, key) for m in (REFERENCE, SHIPPED))
    loss = before - after
    if math.isnan(loss):
        sentence = f"{title} is undefined on the test days: {cause(evaluation)}"
        return Check(f"{key}_loss", loss, limit, False, sentence)
    passed = loss <= limit
    sentence = f"{title} goes from {before:.5f} to {after:.5f}"
    sentence += (
        f", not hurt: at most {limit:g} may be lost"
        if passed
        else f", a loss above {limit:g} (gate.max_{key}_loss): {_RANKING_ADVICE[key]}"
    )
    return Check(f"{key}_loss", loss, limit, passed, sentence)


def _monotone(falls: Sequence[str]) -> Check:
    passed = not falls
    sentence = (
        "no calibrated logit falls anywhere"
        if passed
        else "; ".join(
            [*falls[:3], *(["others too"] if falls[3:] else []), "run dvc repro calibrate"]
        )
    )
    return Check("monotone", float(len(falls)), 0.0, passed, sentence, structural=True)


def _rival(evaluation: dict[str, Any], name: str, calibrator: dict[str, Any]) -> Check:
    """What ships is worse beyond noise if it gains less than the rival's whole interval."""
    shipped, rival = (gain(evaluation, "gains", method, "logloss") for method in (SHIPPED, name))
    gap = next((g for g in (shipped, rival) if math.isnan(g.value)), rival)
    sentence = f"what ships gains {_signed(shipped.value)} in LogLoss, {name} {rival}"
    passed = rival.known and shipped.value >= rival.low
    if passed:
        sentence += ", not worse beyond noise"
    elif not gap.known:
        sentence += f" on the test days: {gap.gap(evaluation)}"
    else:
        chosen = calibrator.get("choose") == "held_out"
        sentence += (
            f": it is worse than {name}, and the calibration days chose otherwise; take more of "
            "them (split.calibration_days)" + ("" if chosen else ", or calibrate.choose: held_out")
        )
    return Check(f"not_worse_than_{name}", shipped.value, rival.low, passed, sentence)


def _signed(value: float) -> str:
    return "an undefined amount" if math.isnan(value) else f"{value:+.3g}"
