"""The gate's questions to what a model was made from: labels, sampling, memory, resolution."""

import math
from typing import Any

from pipeline.release.verdict import Check, found, number
from pipeline.sections import GateParams

SHIPPED, REFERENCE = "model", "uncalibrated"
FAR = 0.5  # a PCOC this far from 1 is hardly a season; a sampled log that does not say so is


def pcoc_check(evaluation: dict[str, Any], limit: float) -> Check:
    """Expected / observed responses over all test rows; far off, sampling is named (H10)."""
    value = number(evaluation, "methods", SHIPPED, "pcoc")
    error = abs(value - 1)
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
    else:
        row = wrong[0]
        sentence = (
            f"PCOC of field value {row.get('field_value')!r} is {number(row, 'pcoc'):.4g} (band "
            f"{number(row, 'low'):.4g} to {number(row, 'high'):.4g}), surely more than {limit:g} "
            f"from 1 (gate.max_value_pcoc_error), as are {len(wrong) - 1} more of the {len(rows)} "
            "largest: look at their days in the report, and for a change after calibration"
        )
    return Check("pcoc_of_largest_values", worst, 0.0, passed, sentence)


def _beyond(row: Any, limit: float) -> float:
    """How far the nearer end of a band lies beyond 1 ± limit; NaN where it is undefined."""
    low, high = number(row, "low"), found(row, "high")
    end = math.inf if high is None and "high" in row else number(row, "high")  # no responses
    return max(low - (1 + limit), (1 - limit) - end) if not math.isnan(low + end) else math.nan


def distinct_check(evaluation: dict[str, Any], limit: float) -> Check:
    """Number of different outputs against the base model's: rounding and plateaus cost rank."""
    before, after = (
        number(evaluation, "methods", method, "distinct_outputs") for method in (REFERENCE, SHIPPED)
    )
    share = after / before if before > 0 else math.nan
    passed = share >= limit
    sentence = f"{after:.0f} different outputs, the base model has {before:.0f}"
    sentence += (
        ""
        if passed
        else f"; fewer than {limit:g} of them (gate.min_distinct_share) mean plateaus, on which "
        "rank is lost: raise calibrate.min_slope, or look for rounded scores"
    )
    return Check("distinct_outputs", share, limit, passed, sentence)


def memorisation_check(tables: Any, limit: float) -> Check:
    """How surely training-day rates rise more steeply with the score than calibration-day rates."""
    told = found(tables, "memorisation")
    value, low, high = (number(told, name) for name in ("steeper", "low", "high"))
    none = found(tables, "memorisation", "training_days") == 0
    passed = none or (low <= limit and math.isfinite(value + high))
    if none:
        sentence = "no training day was scored, so there is nothing that could be memorised"
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


def maturity_check(evaluation: dict[str, Any]) -> Check:
    """Whether every label of the calibration and test days is final."""
    told = evaluation.get("maturity")
    young = found(told, "young_days")
    waits = number(told, "maturity_days")
    passed = young == [] and waits >= 0
    if not isinstance(young, list):
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


def fact_checks(tables: Any, evaluation: dict[str, Any], params: GateParams) -> tuple[Check, ...]:
    """The questions of this page, each with its limit."""
    return (
        pcoc_check(evaluation, params.max_pcoc_error),
        largest_check(evaluation, params.max_value_pcoc_error),
        distinct_check(evaluation, params.min_distinct_share),
        memorisation_check(tables, params.max_memorisation),
        maturity_check(evaluation),
    )
