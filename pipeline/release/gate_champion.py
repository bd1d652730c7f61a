"""The gate's questions about the champion: is what would replace it worse, has its world changed?

The rule: on the test days that neither learnt from, LogLoss and field deviance of the challenger
may not be worse than the champion's beyond noise. Worse is a paired gain whose whole interval
(field values resampled, days left out; the wider) lies below minus gate.champion_tolerance of the
champion's own value. Field-RCE is said beside it and decides nothing. A champion that cannot be
compared is a no, which a person may override: what nobody measured is not passed.
"""

import math
from typing import Any

from pipeline.release.verdict import Check, found, gain, number
from pipeline.sections import GateParams

MEASURES = {"logloss": "LogLoss", "field_deviance": "field deviance"}


def champion_checks(
    tables: Any, evaluation: dict[str, Any], params: GateParams
) -> tuple[Check, ...]:
    """Challenger against champion, and their tables against one another.

    Without anything in production one check says so and passes.
    """
    champion = evaluation.get("champion", ...)
    if champion is None:
        return (Check("champion", 0.0, 0.0, True, "nothing is in production to be held against"),)
    if found(champion, "readable") is not True:
        return (_unreadable(champion),)
    return (
        *(_not_worse(champion, name, params.champion_tolerance) for name in MEASURES),
        _mix(found(tables, "drift"), params.max_mix_drift),
        _rate(found(tables, "drift"), params.max_rate_drift),
    )


def _unreadable(champion: Any) -> Check:
    why = found(champion, "why") or "reports/evaluation.json does not say why"
    sentence = (
        f"{_version(champion)} in production cannot score the test days ({why}), so nothing says "
        "whether this model is better; if that is meant, say why: adacalib override --reason TEXT"
    )
    return Check("champion", math.nan, 0.0, False, sentence)


def _not_worse(champion: dict[str, Any], measure: str, tolerance: float) -> Check:
    gained = gain(champion, "gains", measure)
    own = number(champion, "gains", measure, "champion")
    limit = -tolerance * own
    rce = number(champion, "gains", "field_rce", "value")
    days = number(champion, "compared_days")
    told = math.isfinite(gained.value + gained.low + own) and days > 0
    passed = told and gained.high >= limit
    sentence = (
        f"{MEASURES[measure]} gains {gained} over {_version(champion)} in production ({own:.5g}) "
        f"on {days:.0f} days that neither learnt from (Field-RCE gains {rce:+.3g})"
    )
    if passed:
        sentence += ", not worse beyond noise"
    elif not days > 0:
        sentence += "; production learnt from every test day: test on later days (log.last_day)"
    else:
        sentence += (
            f"; the whole interval lies below {limit:g} (gate.champion_tolerance): what is in "
            "production is better, keep it and see what changed in the data or parameters"
        )
    return Check(f"{measure}_against_champion", gained.high, limit, passed, sentence)


def _version(champion: Any) -> str:
    return found(champion, "version") or "the version"


def _mix(drift: Any, limit: float) -> Check:
    value, noise = number(drift, "mix"), number(drift, "mix_noise")
    passed = number(drift, "mix_beyond_noise") <= limit
    sentence = (
        f"the field values' shares of impressions have moved by {value:.3g} since {_then(drift)} "
        f"(population stability index, {noise:.2g} by chance)"
    )
    sentence += (
        f", at most {limit:g}"
        if passed
        else f"{_why(drift)}; more than {limit:g} (gate.max_mix_drift) is another log: look for "
        "field values that came, went or were renamed"
    )
    return Check("mix_drift", value, limit, passed, sentence)


def _rate(drift: Any, limit: float) -> Check:
    value, surely = number(drift, "rate"), number(drift, "rate_beyond_noise")
    passed = surely <= limit
    sentence = (
        f"response rates of like bins differ by a factor of {_factor(value)} from {_then(drift)}, "
        f"{_factor(surely)} of it beyond chance"
    )
    sentence += (
        f", at most {_factor(limit)}"
        if passed
        else f"{_why(drift)}; more than {_factor(limit)} (gate.max_rate_drift) is another world: "
        "look for labels still to come, sampling, or a change of what counts as a response"
    )
    return Check("rate_drift", surely, limit, passed, sentence)


def _factor(log_ratio: float) -> str:
    return f"{math.exp(log_ratio):.3g}" if log_ratio < 700 else "nan"


def _then(drift: Any) -> str:
    return f"the tables of {found(drift, 'version') or 'production'}"


def _why(drift: Any) -> str:
    why = found(drift, "why")
    return f" ({why})" if why else ""
