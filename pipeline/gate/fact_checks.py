"""The gate's questions to what a model was made from: labels, sampling, memory, resolution."""

import math
from typing import Any

from pipeline.gate.verdict import Check, cause, found, number
from pipeline.params.sections import GateParams

SHIPPED, REFERENCE = "model", "uncalibrated"
FAR = 0.5  # a PCOC this far from 1 is hardly a season; a sampled log that does not say so is


def pcoc_check(evaluation: dict[str, Any], limit: float) -> Check:
    """Expected / observed responses over all test rows; far off, sampling is named (H10)."""
    value = number(evaluation, "methods", SHIPPED, "pcoc")
    error = abs(value - 1)
    if math.isnan(value):
        sentence = "expected / observed responses (PCOC) is undefined on the test days: "
        sentence += cause(evaluation)
        return Check("pcoc", error, limit, False, sentence)
    passed = error <= limit
    sentence = f"expected / observed responses (PCOC) is {value:.4g} on the test days"
    sentence += (
        f", within {limit:g} of 1"
        if passed
        else f", it must lie within {limit:g} of 1 (gate.max_pcoc_error): {_sampling(evaluation)}"
        "look for rows that were sampled without saying so (log.keep_rate), for responses still "
        "to come (log.maturity_days), or for a change after calibration"
    )
    return Check("pcoc", error, limit, passed, sentence)


def _sampling(evaluation: dict[str, Any]) -> str:
    """What share of negatives would explain the distance, where it is large enough to say."""
    value = number(evaluation, "methods", SHIPPED, "pcoc")
    log = evaluation.get("before_sampling") or evaluation
    shown, responses = number(log, "impressions"), number(log, "responses")
    rate = responses / shown if shown > 0 else math.nan
    mean = value * rate
    if not (abs(value - 1) > FAR and 0 < rate < 1 and 0 < mean < 1):
        return ""
    kept = rate / (1 - rate) * (1 - mean) / mean
    told = f"log.keep_rate: {kept:.2g}" if kept < 1 else f"{1 / kept:.2g} is the test days' own"
    return (
        f"the mean probability is {mean:.3g} where {rate:.3g} responded, as if the negatives the "
        f"model learnt from were sampled ({told}); "
    )


def largest_check(evaluation: dict[str, Any], limit: float) -> Check:
    """PCOC of each of the largest field values: no band may lie wholly beyond the limit."""
    rows = evaluation.get("largest_field_values")
    rows = rows if isinstance(rows, list) and rows else [{}]
    distances = [_beyond(row, limit) for row in rows]
    wrong = [row for row, distance in zip(rows, distances, strict=True) if not distance <= 0]
    worst = max(distances, key=lambda d: math.inf if math.isnan(d) else d)
    passed = not wrong
    if passed:
        sentence = (
            f"of the {len(rows)} largest field values none has a PCOC that is surely more than "
            f"{limit:g} from 1"
        )
    elif math.isnan(worst):
        sentence = (
            f"the PCOC of a large field value is undefined on the test days: {cause(evaluation)}"
        )
    else:
        more = f", as are {len(wrong) - 1} more of the {len(rows)} largest" if wrong[1:] else ""
        sentence = (
            f"PCOC of field value {found(wrong[0], 'field_value')!r} is {_with_band(wrong[0])}, "
            f"surely more than {limit:g} from 1 (gate.max_value_pcoc_error){more}: look at their "
            "days in the report, and for a change after calibration"
        )
    return Check("pcoc_of_largest_values", worst, 0.0, passed, sentence)


def _with_band(row: Any) -> str:
    value, low, high = (number(row, name) for name in ("pcoc", "low", "high"))
    if math.isnan(value + high):
        return f"at least {low:.4g}, without a response"
    return f"{value:.4g} (band {low:.4g} to {high:.4g})"


def _beyond(row: Any, limit: float) -> float:
    """How far the nearer end of a band lies beyond 1 ± limit; NaN where it is undefined."""
    low, high = number(row, "low"), found(row, "high")
    end = math.inf if high is None and "high" in row else number(row, "high")  # no responses
    return max(low - (1 + limit), (1 - limit) - end) if not math.isnan(low + end) else math.nan


def distinct_check(evaluation: dict[str, Any], limit: float, calibrator: dict[str, Any]) -> Check:
    """Number of different outputs against the base model's: rounding and plateaus cost rank."""
    before, after = (
        number(evaluation, "methods", method, "distinct_outputs") for method in (REFERENCE, SHIPPED)
    )
    share = after / before if before > 0 else math.nan
    if math.isnan(share):
        sentence = "reports/evaluation.json counts no different outputs; run dvc repro evaluate"
        return Check("distinct_outputs", share, limit, False, sentence)
    passed = share >= limit
    sentence = f"{after:.0f} different outputs, the base model has {before:.0f}"
    sentence += (
        ""
        if passed
        else f"; fewer than {limit:g} of them (gate.min_distinct_share) mean plateaus, on which "
        f"rank is lost: {_ADVICE.get(calibrator.get('chosen', ''), _ROUNDED)}"
    )
    return Check("distinct_outputs", share, limit, passed, sentence)


_ROUNDED = "look for rounded scores"
_ADVICE = {
    "isotonic": "isotonic regression, which the calibration days chose, always makes them; ship "
    "AdaCalib, whose maps rise everywhere, with calibrate.choose: always",
    "adacalib": f"raise calibrate.min_slope, or {_ROUNDED}",
}


def memorisation_check(tables: Any, limit: float) -> Check:
    """How surely training-day rates rise more steeply with the score than calibration-day rates."""
    told = found(tables, "memorisation")
    value, low, high = (number(told, name) for name in ("steeper", "low", "high"))
    none = found(tables, "memorisation", "training_days") == 0
    passed = none or (low <= limit and math.isfinite(value + high))
    if none:
        sentence = "no training day was scored, so there is nothing that could be memorised"
    elif math.isnan(value + low + high):
        sentence = "whether the base model has memorised its training rows cannot be told: "
        sentence += _no_slope(told)
    else:
        sentence = (
            f"log odds of training days rise by {value:+.3g} (interval {low:+.3g} to {high:+.3g}) "
            "more over a standard deviation of the score than those of calibration days"
        )
        sentence += (
            f", at most {limit:g}"
            if passed
            else f"; surely more than {limit:g} (gate.max_memorisation) means that the base model "
            "has memorised its training rows: stop earlier (train_base.patience) or raise "
            "train_base.weight_decay"
        )
    return Check("memorisation", 0.0 if none else low, limit, passed, sentence)


def _no_slope(told: Any) -> str:
    """Why the rates of training days have no slope against those of calibration days."""
    if math.isnan(number(told, "training_days")) or math.isfinite(number(told, "steeper")):
        return "reports/tables.json does not say; run dvc repro check_tables"
    columns = [found(told, "by_bin", f"{part}_responses") for part in ("training", "calibration")]
    if all(isinstance(column, list) and not any(column) for column in columns):
        return "neither those days nor the calibration days hold a response; take days that do"
    return "its scores fall into too few bins; look whether its features vary (log.categorical)"


def maturity_check(evaluation: dict[str, Any]) -> Check:
    """Whether every label of the calibration and test days is final."""
    told = evaluation.get("maturity")
    young = found(told, "young_days")
    waits = number(told, "maturity_days")
    passed = young == [] and waits >= 0
    if not isinstance(young, list) or math.isnan(waits):
        sentence = "it is not known whether labels are final; run dvc repro split"
    elif young:
        sentence = (
            f"{len(young)} calibration or test days, the first {young[0]}, have labels that are "
            f"not final before {waits:.0f} days have passed (log.maturity_days), so responses are "
            "missing from them: set log.last_day earlier, or wait"
        )
    else:
        sentence = f"labels are final after {waits:.0f} days, and every day that is used is older"
    return Check(
        "label_maturity",
        float(len(young)) if isinstance(young, list) else math.nan,
        0.0,
        passed,
        sentence,
    )


def fact_checks(
    tables: Any, evaluation: dict[str, Any], params: GateParams, calibrator: dict[str, Any]
) -> tuple[Check, ...]:
    """The questions of this page, each with its limit."""
    return (
        pcoc_check(evaluation, params.max_pcoc_error),
        largest_check(evaluation, params.max_value_pcoc_error),
        distinct_check(evaluation, params.min_distinct_share, calibrator),
        memorisation_check(tables, params.max_memorisation),
        maturity_check(evaluation),
    )
