"""The gate's questions to the evidence: labels, sampling, memory, resolution; and the champion.

Is what would replace the champion worse? Both are procedures: on every test day each forecasts by
the map of that day's morning. LogLoss and daily field deviance of the challenger may not be worse
than the champion's beyond noise: a paired gain whose whole interval (field values resampled, days
left out; the wider) lies below minus gate.champion_tolerance of the champion's own value. Field-RCE
is reported beside it and decides nothing. Where both are the same procedure (base, code and
parameters are equal) the gain is noise, and the check says so. A champion that cannot be compared
is a no, which a person may override: what nobody measured is not passed.
"""

import math
from typing import Any

from pipeline.core.files import found
from pipeline.gate.verdict import Gain, GateCheck, gain, largest_check, number, pcoc_check
from pipeline.params.sections import GateParams

SHIPPED, REFERENCE = "model", "uncalibrated"
MEASURES = {"logloss": "LogLoss", "daily_field_deviance": "daily field deviance"}


def _distinct(evaluation: dict[str, Any], limit: float) -> GateCheck:
    """Number of different outputs against the base model's: rounding and plateaus cost rank."""
    before, after = (
        number(evaluation, "methods", method, "distinct_outputs") for method in (REFERENCE, SHIPPED)
    )
    share = after / before if before > 0 else math.nan
    words = (
        f"{after:.0f} different outputs, the base model has {before:.0f}",
        "",
        f"; fewer than {limit:g} of them (gate.min_distinct_share) mean plateaus, on which "
        "rank is lost: look for rounded scores; for AdaCalib's maps raise calibrate.min_slope",
    )
    return GateCheck.answered("distinct_outputs", share, limit, share >= limit, words)


def _memorisation(tables: Any, limit: float) -> GateCheck:
    """How surely training-day rates rise more steeply with the score than calibration-day rates."""
    name, slopes = "memorisation", found(tables, "memorisation")
    if found(slopes, "training_days") == 0:
        none = "no training day was scored, so there is nothing that could be memorised"
        return GateCheck(name, 0.0, limit, True, none)
    value, low, high, ends = (number(slopes, of) for of in ("steeper", "low", "high", "ends_low"))
    if math.isnan(value + low + high):
        unknown = "whether the base model has memorised its training rows is unknown"
        return GateCheck(name, low, limit, False, f"{unknown}: {_no_slope(slopes)}")
    sentence = (
        f"log odds of training days rise by {value:+.3g} (interval {low:+.3g} to {high:+.3g}) "
        "more over a standard deviation of the score than those of calibration days"
    )
    passed = low <= limit
    if passed and not max(value, ends) > limit:
        return GateCheck(name, low, limit, True, f"{sentence}, at most {limit:g}")
    # The gap is large, however badly a line fits it.
    surely = "warning: perhaps" if passed else "surely"
    advice = (
        f"{surely} more than {limit:g} (gate.max_memorisation) means that the base model has "
        "memorised its training rows (memorisation.by_bin in reports/tables.json): stop earlier "
        "(train_base.patience) or raise train_base.weight_decay"
    )
    return GateCheck(name, low, limit, passed, f"{sentence}; {advice}")


def _newest_day(calibrator: dict[str, Any]) -> GateCheck:
    """Whether what ships has learned from the newest day, or misses it, as it is no sound one.

    It is the calibrator that judges the day; it sets no limit while it knows too few sound days.
    """
    guard = found(calibrator, "guard")
    newest = found(guard, "newest")
    moved, limit = (number(newest, name) for name in ("moved", "limit"))
    refused = found(newest, "refused")
    day = found(newest, "day")
    unlimited = refused is False and isinstance(newest, dict) and newest.get("limit", 0) is None
    if unlimited or (isinstance(guard, dict) and newest is None):
        none = "there were too few sound days before the newest one to judge it by"
        return GateCheck("newest_day", 0.0, 0.0, True, none)
    words = (
        f"with {day} expected responses move by {moved:+.3g} (log ratio)",
        f", as they may on a sound day: up to {limit:.3g}"
        if abs(moved) <= limit
        else f", more than the {limit:.3g} of a sound day, and were accepted by name",
        f", more than the {limit:.3g} of a sound day ({_refused(calibrator, day)}), so that day is "
        "missing to what would ship: look at its labels and rows and land it again, or accept it "
        f'by name (calibrate.accepted_days: ["{day}"])',
    )
    value = abs(moved) if isinstance(refused, bool) and math.isfinite(limit) else math.nan
    return GateCheck.answered("newest_day", value, limit, not refused, words)


def _refused(calibrator: dict[str, Any], day: Any) -> str:
    """What moved too far on a day."""
    entries = found(calibrator, "guard", "refused") or []
    return ", ".join(str(found(e, "what")) for e in entries if found(e, "day") == day) or "all rows"


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
    days = young if isinstance(young, list) else []
    count = float(len(days)) if young is days and waits >= 0 else math.nan
    first = min(days, default=None)
    words = (
        "",
        f"labels are final after {waits:.0f} days, and every day that is used is older",
        f"{count:.0f} calibration or test days, the first {first}, have labels that are "
        f"not final before {waits:.0f} days have passed (log.maturity_days), so responses are "
        "missing from them: set split.last_day earlier, or wait",
    )
    return GateCheck.answered("label_maturity", count, 0.0, count == 0, words)


def evidence_checks(
    tables: Any, evaluation: dict[str, Any], params: GateParams, calibrator: dict[str, Any]
) -> tuple[GateCheck, ...]:
    """The questions of this page, each with its limit."""
    return (
        pcoc_check(evaluation, params),
        largest_check(evaluation, params.max_value_pcoc_error),
        _distinct(evaluation, params.min_distinct_share),
        _memorisation(tables, params.max_memorisation),
        _newest_day(calibrator),
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
    same = found(champion, "same_procedure") is True
    words = (
        f"{title} gains {gained} over {_named(champion)} ({own:.5g}) on {days:.0f} days whose "
        f"labels neither had seen{_beside(champion)}",
        "; both are the same procedure, which is no worse than itself"
        if same
        else ", not worse beyond noise",
        f"; the whole interval lies below {limit:g} (gate.champion_tolerance): the champion is "
        "better, keep it and see what changed in the data or parameters",
    )
    return GateCheck.answered(name, gained.high, limit, same or gained.high >= limit, words)


def _beside(champion: Any) -> str:
    rce = number(champion, "gains", "field_rce", "value")
    return f" (Field-RCE gains {rce:+.3g})" if math.isfinite(rce) else ""


def _not_compared(title: str, champion: Any, gained: Gain) -> str:
    """Why two models cannot be held against each other in a measure, and the next step."""
    days = number(champion, "compared_days")
    begin = f"{title} cannot be held against {_named(champion)}"
    if days == 0:
        return (
            f"{begin}, which has learned from every test day: test on later days (split.last_day)"
        )
    if not days > 0 or math.isfinite(gained.value):
        return f"{begin}: no interval is known; take more test days (split.test_days)"
    return (
        f"{begin} on the {days:.0f} days whose labels neither had seen, where it is undefined: "
        "take test days with responses (split.test_days, split.last_day)"
    )


def _named(about: Any) -> str:
    """The champion as sentences name it; what is in production by now may be another version."""
    version = found(about, "version")
    return f"the champion {version}" if isinstance(version, str) else "the champion"


def _mix(drift: Any, limit: float) -> GateCheck:
    value, noise = number(drift, "mix"), number(drift, "mix_noise")
    beyond = number(drift, "mix_beyond_noise")
    if math.isnan(value + noise + beyond):
        return _unknown("mix_drift", "whether the mix of field values has changed", drift, limit)
    words = (
        f"the field values' shares of impressions have moved by {value:.3g} since {_then(drift)} "
        f"(population stability index, {noise:.2g} by chance)",
        f", at most {limit:g}",
        f"; more than {limit:g} (gate.max_mix_drift) is another log: look for field values "
        "that came, went or were renamed",
    )
    return GateCheck.answered("mix_drift", value, limit, beyond <= limit, words)


def _rate(drift: Any, limit: float) -> GateCheck:
    value, surely = number(drift, "rate"), number(drift, "rate_beyond_noise")
    if math.isnan(value + surely):
        return _unknown("rate_drift", "whether response rates have changed", drift, limit)
    words = (
        f"response rates of like bins differ by a factor of {_factor(value)} from {_then(drift)}, "
        f"{_factor(surely)} of it beyond chance",
        f", at most {_factor(limit)}",
        f"; more than {_factor(limit)} (gate.max_rate_drift) is another world: look for "
        "labels still to come, sampling, or a change of what counts as a response",
    )
    return GateCheck.answered("rate_drift", surely, limit, surely <= limit, words)


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
