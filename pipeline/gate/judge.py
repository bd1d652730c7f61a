"""The verdict: may this model replace the one in production, and if not, why."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from pipeline.core.files import found
from pipeline.gate.deployed import PARITY
from pipeline.gate.evidence_checks import REFERENCE, SHIPPED, champion_checks, evidence_checks
from pipeline.gate.verdict import Gain, GateCheck, Verdict, cause, gain, number
from pipeline.params.sections import GateParams

BASELINES = ("isotonic", "eb_platt")
METRICS = (
    "logloss",
    "daily_field_deviance",
    "field_deviance",
    "field_rce",
    "daily_field_auc",
    "auc",
    "pcoc",
)


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
        calibrator: what the model's manifest says of it; `chosen`, `choose`, `guard` are read.
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
            *evidence_checks(tables_report, evaluation, params, calibrator),
            _ranking(evaluation, "field_auc", "Field-AUC", params.max_field_auc_loss),
            _ranking(evaluation, "auc", "AUC", params.max_auc_loss),
            *(_baseline(evaluation, name, calibrator) for name in BASELINES),
            *champion_checks(tables_report, evaluation, params),
        )
    )


def compared(evaluation: dict[str, Any]) -> dict[str, dict[str, float]]:
    """What people compare runs by, to six places: of the base model, of what ships, of champion."""
    methods = ("uncalibrated", "model", "champion")
    figures = ("logloss", "daily_field_deviance", "pcoc")
    return {
        name: {key: round(number(evaluation, "methods", name, key), 6) for key in figures}
        for name in methods
        if found(evaluation, "methods", name)
    }


def _tables(report: dict[str, Any]) -> GateCheck:
    passed, breaches = found(report, "passed") is True, found(report, "breaches")
    said = "; ".join(map(str, breaches)) if isinstance(breaches, list) and breaches else "no pass"
    sentence = "the checks of the field statistics "
    sentence += "passed" if passed else f"say: {said}; see reports/tables.json"
    return GateCheck("tables", float(passed), 1.0, passed, sentence, structural=True)


def _parity(difference: float) -> GateCheck:
    passed = difference <= PARITY
    largest = f"{difference:.3g}" if math.isfinite(difference) else "what is no number"
    sentence = f"the deployed file and its table differ by at most {largest}, " + (
        f"{PARITY:g} is allowed"
        if passed
        else f"more than {PARITY:g}: what was measured is not what would be deployed; run dvc "
        "repro merge"
    )
    return GateCheck("parity", difference, PARITY, passed, sentence, structural=True)


def _responses(evaluation: dict[str, Any], limit: int) -> GateCheck:
    value = number(evaluation, "responses")
    words = (
        "",
        f"{value:.0f} responses on the test days, at least {limit}",
        f"too few responses to tell: the test days have {value:.0f}, a verdict needs {limit} "
        "(gate.min_test_responses); take more test days or a more frequent response",
    )
    return GateCheck.answered("test_responses", value, float(limit), value >= limit, words)


def _defined(evaluation: dict[str, Any]) -> GateCheck:
    undefined = _undefined(evaluation)
    shown = ", ".join(undefined[:6]) + (f" and {len(undefined) - 6} more" if undefined[6:] else "")
    words = (
        "",
        "every metric is defined on the test days",
        f"undefined on the test days: {shown}; there is no verdict without them: "
        f"{cause(evaluation)}",
    )
    return GateCheck.answered("defined", float(len(undefined)), 0.0, not undefined, words)


def _undefined(evaluation: dict[str, Any]) -> list[str]:
    """The names of required metrics that are no finite number, and of any metric that is null."""
    required = [
        f"{method}.{name}"
        for method in (REFERENCE, *BASELINES, SHIPPED)
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


def _no_gain(name: str, title: str, gained: Gain, limit: float, evaluation: Any) -> GateCheck:
    """A gain over the uncalibrated model without which nothing passes is undefined."""
    sentence = f"{title} gains {gained} over the uncalibrated model on the test days: "
    return GateCheck(name, math.nan, limit, False, sentence + gained.gap(evaluation))


def _log_loss(evaluation: dict[str, Any], limit: float) -> GateCheck:
    gained = gain(evaluation, "gains", SHIPPED, "logloss")
    if not gained.known:
        return _no_gain("logloss_gain", "LogLoss", gained, limit, evaluation)
    if gained.low == gained.high == 0 and limit >= 0:
        sentence = (
            "what ships is the uncalibrated model itself, which gains nothing, and "
            f"gate.min_logloss_gain asks for more than {limit:g}: no calibrator was surely better "
            "on the calibration days, take more of them (split.calibration_days)"
        )
        return GateCheck("logloss_gain", gained.low, limit, False, sentence)
    words = (
        f"LogLoss gains {gained} nats an impression over the uncalibrated model",
        f", the whole interval above {limit:g}",
        f"; its whole interval must lie above {limit:g} (gate.min_logloss_gain): the gain "
        f"{'is surely less' if gained.high <= limit else 'cannot be distinguished from luck'}, "
        "take more calibration or test days",
    )
    return GateCheck.answered("logloss_gain", gained.low, limit, gained.low > limit, words)


def _deviance(evaluation: dict[str, Any]) -> GateCheck:
    name = "daily_field_deviance"
    gained = gain(evaluation, "gains", SHIPPED, name)
    if not gained.known:
        return _no_gain(name, "daily field deviance", gained, 0.0, evaluation)
    words = (
        f"daily field deviance gains {gained} over the uncalibrated model",
        ", not worse",
        "; an interval wholly below 0 says that field values are served worse than before: "
        "look at the largest in the report",
    )
    return GateCheck.answered(name, gained.high, 0.0, gained.high >= 0, words)


_RANKING_ADVICE = {
    "field_auc": "look for plateaus in the maps or raise calibrate.min_slope",
    "auc": "rows of different field values changed places for the worse; look for field values "
    "whose rates moved after the calibration days",
}


def _ranking(evaluation: dict[str, Any], key: str, title: str, limit: float) -> GateCheck:
    measured = "daily_field_auc" if key == "field_auc" else key
    before, after = (number(evaluation, "methods", m, measured) for m in (REFERENCE, SHIPPED))
    loss = before - after
    if math.isnan(loss):
        sentence = f"{title} is undefined on the test days: {cause(evaluation)}"
        return GateCheck(f"{key}_loss", loss, limit, False, sentence)
    words = (
        f"{title} goes from {before:.5f} to {after:.5f}",
        f", not hurt: at most {limit:g} may be lost",
        f", a loss above {limit:g} (gate.max_{key}_loss): {_RANKING_ADVICE[key]}",
    )
    return GateCheck.answered(f"{key}_loss", loss, limit, loss <= limit, words)


def _monotone(falls: Sequence[str]) -> GateCheck:
    more = ["others too"] if falls[3:] else []
    bad = "; ".join([*falls[:3], *more, "run dvc repro calibrate"])
    sentence = bad if falls else "no calibrated logit falls anywhere"
    return GateCheck("monotone", float(len(falls)), 0.0, not falls, sentence, structural=True)


def _baseline(evaluation: dict[str, Any], name: str, calibrator: dict[str, Any]) -> GateCheck:
    """What ships is worse beyond noise if it gains less than a baseline's whole interval."""
    shipped, other = (gain(evaluation, "gains", method, "logloss") for method in (SHIPPED, name))
    gap = next((g for g in (shipped, other) if math.isnan(g.value)), other)
    passed = other.known and shipped.value >= other.low
    choose = "" if calibrator.get("choose") == "held_out" else ", or calibrate.choose: held_out"
    goes_on = ", not worse beyond noise"
    if not gap.known:
        goes_on = f" on the test days: {gap.gap(evaluation)}"
    elif not passed:
        goes_on = (
            f": it is worse than {name}, and the calibration days chose otherwise; take more of "
            f"them (split.calibration_days){choose}"
        )
    sentence = f"what ships gains {_signed(shipped.value)} in LogLoss, {name} {other}{goes_on}"
    return GateCheck(f"not_worse_than_{name}", shipped.value, other.low, passed, sentence)


def _signed(value: float) -> str:
    return "an undefined amount" if math.isnan(value) else f"{value:+.3g}"
