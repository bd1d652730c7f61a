"""The gate's questions about the champion: is what would replace it worse, has its world changed?

The rule: on the test days that neither learnt from, LogLoss and field deviance of the challenger
may not be worse than the champion's beyond noise. Worse is a paired gain whose whole interval
(field values resampled, days left out; the wider) lies below minus gate.champion_tolerance of the
champion's own value. Field-RCE is said beside it and decides nothing. A champion that cannot be
compared is a no, which a person may override: what nobody measured is not passed.
"""

import math
from typing import Any

from pipeline.gate.verdict import Check, Gain, found, gain, number
from pipeline.params.sections import GateParams

MEASURES = {"logloss": "LogLoss", "field_deviance": "field deviance"}


def champion_checks(
    tables: Any, evaluation: dict[str, Any], params: GateParams
) -> tuple[Check, ...]:
    """Challenger against champion, and their tables against one another.

    Without a champion one check says so and passes.
    """
    champion = evaluation.get("champion", ...)
    if champion is None:
        none = "champion.json pins no version, so there is none to be held against"
        return (Check("champion", 0.0, 0.0, True, none),)
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
        f"{_named(champion)} cannot score the test days ({why}), so nothing says whether this "
        "model is better; if that is meant, say why: adacalib override --reason TEXT"
    )
    return Check("champion", math.nan, 0.0, False, sentence)


def _not_worse(champion: dict[str, Any], measure: str, tolerance: float) -> Check:
    gained = gain(champion, "gains", measure)
    own = number(champion, "gains", measure, "champion")
    limit = -tolerance * own
    days = number(champion, "compared_days")
    told = gained.known and math.isfinite(own) and days > 0
    passed = told and gained.high >= limit
    if not told:
        sentence = _not_compared(MEASURES[measure], champion, gained)
    else:
        sentence = (
            f"{MEASURES[measure]} gains {gained} over {_named(champion)} ({own:.5g}) on {days:.0f} "
            f"days that neither learnt from{_beside(champion)}"
        )
        sentence += (
            ", not worse beyond noise"
            if passed
            else f"; the whole interval lies below {limit:g} (gate.champion_tolerance): the "
            "champion is better, keep it and see what changed in the data or parameters"
        )
    return Check(f"{measure}_against_champion", gained.high, limit, passed, sentence)


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


def _mix(drift: Any, limit: float) -> Check:
    value, noise = number(drift, "mix"), number(drift, "mix_noise")
    beyond = number(drift, "mix_beyond_noise")
    passed = beyond <= limit and math.isfinite(value + noise)
    if math.isnan(value + noise + beyond):
        return _untold("mix_drift", "whether the mix of field values has changed", drift, limit)
    sentence = (
        f"the field values' shares of impressions have moved by {value:.3g} since {_then(drift)} "
        f"(population stability index, {noise:.2g} by chance)"
    )
    sentence += (
        f", at most {limit:g}"
        if passed
        else f"; more than {limit:g} (gate.max_mix_drift) is another log: look for field values "
        "that came, went or were renamed"
    )
    return Check("mix_drift", value, limit, passed, sentence)


def _rate(drift: Any, limit: float) -> Check:
    value, surely = number(drift, "rate"), number(drift, "rate_beyond_noise")
    passed = surely <= limit and math.isfinite(value)
    if math.isnan(value + surely):
        return _untold("rate_drift", "whether response rates have changed", drift, limit)
    sentence = (
        f"response rates of like bins differ by a factor of {_factor(value)} from {_then(drift)}, "
        f"{_factor(surely)} of it beyond chance"
    )
    sentence += (
        f", at most {_factor(limit)}"
        if passed
        else f"; more than {_factor(limit)} (gate.max_rate_drift) is another world: look for "
        "labels still to come, sampling, or a change of what counts as a response"
    )
    return Check("rate_drift", surely, limit, passed, sentence)


def _untold(name: str, what: str, drift: Any, limit: float) -> Check:
    """A drift that is undefined, because there are no tables or they have nothing in common."""
    why = found(drift, "why") or "reports/tables.json finds nothing that both tables hold"
    sentence = (
        f"{what} since {_then(drift)} cannot be told ({why}); if that is meant, say why: adacalib "
        "override --reason TEXT"
    )
    return Check(name, math.nan, limit, False, sentence)


def _factor(log_ratio: float) -> str:
    return f"{math.exp(log_ratio):.3g}" if log_ratio < 700 else "more than 1e+304"


def _then(drift: Any) -> str:
    return f"the tables of {_named(drift)}"
