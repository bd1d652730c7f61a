"""The gate's questions to the evidence: labels, sampling, memory, resolution; and the champion.

Is what would replace the champion worse? On the test days that neither learnt from, LogLoss and
field deviance of the challenger may not be worse than the champion's beyond noise: a paired gain
whose whole interval (field values resampled, days left out; the wider) lies below minus
gate.champion_tolerance of the champion's own value. Field-RCE is reported beside it and decides
nothing. A champion that cannot be compared is a no, which a person may override: what nobody
measured is not passed.
"""

import math
from typing import Any

from pipeline.gate.verdict import Gain, GateCheck, cause, found, gain, number
from pipeline.params.sections import GateParams

SHIPPED, REFERENCE = "model", "uncalibrated"
MEASURES = {"logloss": "LogLoss", "field_deviance": "field deviance"}
FAR = 0.5  # a PCOC this far from 1 is hardly a season; a sampled log that does not say so is


def _pcoc(evaluation: dict[str, Any], limit: float) -> GateCheck:
    """Expected / observed responses over all test rows; far off, sampling is named."""
    value = number(evaluation, "methods", SHIPPED, "pcoc")
    error = abs(value - 1)
    if math.isnan(value):
        sentence = "expected / observed responses (PCOC) is undefined on the test days: "
        sentence += cause(evaluation)
        return GateCheck("pcoc", error, limit, False, sentence)
    words = (
        f"expected / observed responses (PCOC) is {value:.4g} on the test days",
        f", within {limit:g} of 1",
        f", it must lie within {limit:g} of 1 (gate.max_pcoc_error): {_sampling(evaluation)}"
        "look for rows that were sampled without saying so (log.keep_rate), for responses still "
        "to come (log.maturity_days), or for a change after calibration",
    )
    return GateCheck.answered("pcoc", error, limit, error <= limit, words)


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
    setting = f"log.keep_rate: {kept:.2g}" if kept < 1 else f"{1 / kept:.2g} is the test days' own"
    return (
        f"the mean probability is {mean:.3g} where {rate:.3g} responded, as if the negatives the "
        f"model learnt from were sampled ({setting}); "
    )


def _largest(evaluation: dict[str, Any], limit: float) -> GateCheck:
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
    return GateCheck("pcoc_of_largest_values", worst, 0.0, passed, sentence)


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


def _distinct(evaluation: dict[str, Any], limit: float, calibrator: dict[str, Any]) -> GateCheck:
    """Number of different outputs against the base model's: rounding and plateaus cost rank."""
    before, after = (
        number(evaluation, "methods", method, "distinct_outputs") for method in (REFERENCE, SHIPPED)
    )
    share = after / before if before > 0 else math.nan
    if math.isnan(share):
        sentence = "reports/evaluation.json counts no different outputs; run dvc repro evaluate"
        return GateCheck("distinct_outputs", share, limit, False, sentence)
    words = (
        f"{after:.0f} different outputs, the base model has {before:.0f}",
        "",
        f"; fewer than {limit:g} of them (gate.min_distinct_share) mean plateaus, on which "
        f"rank is lost: {_ADVICE.get(calibrator.get('chosen', ''), _ROUNDED)}",
    )
    return GateCheck.answered("distinct_outputs", share, limit, share >= limit, words)


_ROUNDED = "look for rounded scores"
_ADVICE = {
    "isotonic": "isotonic regression, which the calibration days chose, always makes them; ship "
    "AdaCalib, whose maps rise everywhere, with calibrate.choose: always",
    "adacalib": f"raise calibrate.min_slope, or {_ROUNDED}",
}


def _memorisation(tables: Any, limit: float) -> GateCheck:
    """How surely training-day rates rise more steeply with the score than calibration-day rates."""
    slopes = found(tables, "memorisation")
    value, low, high = (number(slopes, name) for name in ("steeper", "low", "high"))
    none = found(tables, "memorisation", "training_days") == 0
    passed = none or (low <= limit and math.isfinite(value + high))
    if none:
        sentence = "no training day was scored, so there is nothing that could be memorised"
    elif math.isnan(value + low + high):
        sentence = "whether the base model has memorised its training rows is unknown: "
        sentence += _no_slope(slopes)
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
    return GateCheck("memorisation", 0.0 if none else low, limit, passed, sentence)


def _no_slope(slopes: Any) -> str:
    """Why the rates of training days have no slope against those of calibration days."""
    if math.isnan(number(slopes, "training_days")) or math.isfinite(number(slopes, "steeper")):
        return "reports/tables.json does not say; run dvc repro check_tables"
    columns = [found(slopes, "by_bin", f"{name}_responses") for name in ("training", "calibration")]
    if all(isinstance(column, list) and not any(column) for column in columns):
        return "neither those days nor the calibration days hold a response; take days that do"
    return "its scores fall into too few bins; look whether its features vary (log.categorical)"


def _maturity(evaluation: dict[str, Any]) -> GateCheck:
    """Whether every label of the calibration and test days is final."""
    young = found(evaluation, "maturity", "young_days")
    waits = number(evaluation, "maturity", "maturity_days")
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
    count = float(len(young)) if isinstance(young, list) else math.nan
    return GateCheck("label_maturity", count, 0.0, passed, sentence)


def evidence_checks(
    tables: Any, evaluation: dict[str, Any], params: GateParams, calibrator: dict[str, Any]
) -> tuple[GateCheck, ...]:
    """The questions of this page, each with its limit."""
    return (
        _pcoc(evaluation, params.max_pcoc_error),
        _largest(evaluation, params.max_value_pcoc_error),
        _distinct(evaluation, params.min_distinct_share, calibrator),
        _memorisation(tables, params.max_memorisation),
        _maturity(evaluation),
    )


def champion_checks(
    tables: Any, evaluation: dict[str, Any], params: GateParams
) -> tuple[GateCheck, ...]:
    """Challenger against champion, and their tables against one another.

    Without a champion one check says so and passes.
    """
    champion = evaluation.get("champion", ...)
    if champion is None:
        none = "champion.json pins no version, so there is none to be held against"
        return (GateCheck("champion", 0.0, 0.0, True, none),)
    if found(champion, "readable") is not True:
        return (_unreadable(champion),)
    return (
        *(_not_worse(champion, name, params.champion_tolerance) for name in MEASURES),
        _mix(found(tables, "drift"), params.max_mix_drift),
        _rate(found(tables, "drift"), params.max_rate_drift),
    )


def _unreadable(champion: Any) -> GateCheck:
    why = found(champion, "why") or "reports/evaluation.json does not say why"
    sentence = (
        f"{_named(champion)} cannot score the test days ({why}), so nothing says whether this "
        "model is better; if that is meant, say why: adacalib override --reason TEXT"
    )
    return GateCheck("champion", math.nan, 0.0, False, sentence)


def _not_worse(champion: dict[str, Any], measure: str, tolerance: float) -> GateCheck:
    gained = gain(champion, "gains", measure)
    own = number(champion, "gains", measure, "champion")
    limit = -tolerance * own
    days = number(champion, "compared_days")
    known = gained.known and math.isfinite(own) and days > 0
    name, title = f"{measure}_against_champion", MEASURES[measure]
    if not known:
        return GateCheck(name, gained.high, limit, False, _not_compared(title, champion, gained))
    words = (
        f"{title} gains {gained} over {_named(champion)} ({own:.5g}) on {days:.0f} days that "
        f"neither learnt from{_beside(champion)}",
        ", not worse beyond noise",
        f"; the whole interval lies below {limit:g} (gate.champion_tolerance): the champion is "
        "better, keep it and see what changed in the data or parameters",
    )
    return GateCheck.answered(name, gained.high, limit, gained.high >= limit, words)


def _beside(champion: Any) -> str:
    rce = number(champion, "gains", "field_rce", "value")
    return f" (Field-RCE gains {rce:+.3g})" if math.isfinite(rce) else ""


def _not_compared(title: str, champion: Any, gained: Gain) -> str:
    """Why two models cannot be held against each other in a measure, and the next step."""
    days = number(champion, "compared_days")
    begin = f"{title} cannot be held against {_named(champion)}"
    if days == 0:
        return f"{begin}, which learnt from every test day: test on later days (log.last_day)"
    if not days > 0 or math.isfinite(gained.value):
        return f"{begin}: no interval is known; take more test days that neither learnt from"
    return (
        f"{begin} on the {days:.0f} days that neither learnt from, where it is undefined: take "
        "test days with responses (split.test_days, log.last_day)"
    )


def _named(about: Any) -> str:
    """The champion as sentences name it; what is in production by now may be another version."""
    version = found(about, "version")
    return f"the champion {version}" if isinstance(version, str) else "the champion"


def _mix(drift: Any, limit: float) -> GateCheck:
    value, noise = number(drift, "mix"), number(drift, "mix_noise")
    beyond = number(drift, "mix_beyond_noise")
    passed = beyond <= limit and math.isfinite(value + noise)
    if math.isnan(value + noise + beyond):
        return _unknown("mix_drift", "whether the mix of field values has changed", drift, limit)
    words = (
        f"the field values' shares of impressions have moved by {value:.3g} since {_then(drift)} "
        f"(population stability index, {noise:.2g} by chance)",
        f", at most {limit:g}",
        f"; more than {limit:g} (gate.max_mix_drift) is another log: look for field values "
        "that came, went or were renamed",
    )
    return GateCheck.answered("mix_drift", value, limit, passed, words)


def _rate(drift: Any, limit: float) -> GateCheck:
    value, surely = number(drift, "rate"), number(drift, "rate_beyond_noise")
    passed = surely <= limit and math.isfinite(value)
    if math.isnan(value + surely):
        return _unknown("rate_drift", "whether response rates have changed", drift, limit)
    words = (
        f"response rates of like bins differ by a factor of {_factor(value)} from {_then(drift)}, "
        f"{_factor(surely)} of it beyond chance",
        f", at most {_factor(limit)}",
        f"; more than {_factor(limit)} (gate.max_rate_drift) is another world: look for "
        "labels still to come, sampling, or a change of what counts as a response",
    )
    return GateCheck.answered("rate_drift", surely, limit, passed, words)


def _unknown(name: str, what: str, drift: Any, limit: float) -> GateCheck:
    """A drift that is undefined, because there are no tables or they have nothing in common."""
    why = found(drift, "why") or "reports/tables.json finds nothing that both tables hold"
    sentence = (
        f"{what} since {_then(drift)} is unknown ({why}); if that is meant, say why: adacalib "
        "override --reason TEXT"
    )
    return GateCheck(name, math.nan, limit, False, sentence)


def _factor(log_ratio: float) -> str:
    return f"{math.exp(log_ratio):.3g}" if log_ratio < 700 else "more than 1e+304"


def _then(drift: Any) -> str:
    return f"the tables of {_named(drift)}"
