"""Limits of PCOC, which carry an interval: within, beyond, or cannot tell.

A few weeks of days are often too few to say whether PCOC lies within a limit. "Cannot tell" is then
no pass of a first version; a later one is promoted if it is surely not worse than the champion.
"""

import math
from typing import Any

from pipeline.gate.verdict import GateCheck, answer_of, cause, found, gain, number
from pipeline.params.sections import GateParams


def pcoc_check(evaluation: dict[str, Any], params: GateParams) -> GateCheck:
    """Expected / observed responses over all test rows; far off, sampling is named.

    Where the test days cannot tell, the calibration days that were forecast out of sample are asked
    as well.
    """
    of_all = ("methods", "model")
    days: list[str] = []
    value, low, high = (number(evaluation, *of_all, f"pcoc{end}") for end in ("", "_low", "_high"))
    limit, begin = params.max_pcoc_error, "expected / observed responses (PCOC) is"
    if math.isnan(value + low + high):
        sentence = f"{begin} undefined on the test days: {cause(evaluation)}"
        return GateCheck("pcoc", math.nan, limit, False, sentence)
    if answer_of(low, high, limit) == "cannot tell":
        days = found(evaluation, "pcoc", "calibration_days") or []
    if days:
        value, low, high = (number(evaluation, "pcoc", end) for end in ("value", "low", "high"))
    error = abs(value - 1)
    begin += f" {value:.4g} (interval {low:.4g} to {high:.4g}) on the test days"
    begin += f" and {len(days)} calibration days that were forecast unseen" if days else ""
    begin += f", allowed {1 - limit:g} to {1 + limit:g}"
    answer, passed, more = answer_of(low, high, limit), True, ""
    if answer == "beyond" or error > params.far_pcoc_error:
        what = f"surely more than {limit:g} from 1 (gate.max_pcoc_error)"
        if answer != "beyond":
            what = f"more than {params.far_pcoc_error:g} from 1 (gate.far_pcoc_error)"
        advice = _sampling(evaluation, params.far_pcoc_error) + _ADVICE
        passed, more = False, f", {what}: {advice}"
    elif answer == "cannot tell":
        passed, more = _beside_the_champion(evaluation, params)
        more = f", so nobody can tell whether it lies within{more}"
    return GateCheck("pcoc", error, limit, passed, begin + more, answer=answer)


_ADVICE = (
    "look for rows that were sampled without saying so (log.keep_rate), for responses still to "
    "come (log.maturity_days), or for a change that the days before did not show"
)


def _beside_the_champion(evaluation: dict[str, Any], params: GateParams) -> tuple[bool, str]:
    """Whether PCOC and LogLoss are surely not worse than the champion's; the rest of a sentence.

    Both are paired gains on the days whose labels neither had seen.
    """
    champion = found(evaluation, "champion")
    error, loss = (gain(champion, "gains", name) for name in ("pcoc_error", "logloss"))
    if not (error.known and loss.known):
        none = "there is no champion to hold it against: a first version must lie within"
        if champion is not None:
            none = f"the champion says nothing: abs(ln PCOC) gains {error}, LogLoss {loss} over it"
        return False, (
            f", and {none}; take more test days (split.test_days), or say why not: adacalib "
            "override --reason TEXT"
        )
    margin = params.logloss_margin * number(champion, "gains", "logloss", "champion")
    passed = error.low >= -params.pcoc_margin and loss.low >= -margin
    said = f"abs(ln PCOC) gains {error} and LogLoss {loss} over the champion"
    margins = f"{params.pcoc_margin:g} (gate.pcoc_margin) and {margin:.3g} (gate.logloss_margin)"
    if passed:
        return True, f"; {said}, both surely not worse by more than {margins}"
    return False, (
        f"; {said}, and one of them may be worse by more than {margins}: keep the champion, or "
        "take more test days (split.test_days)"
    )


def _sampling(evaluation: dict[str, Any], far: float) -> str:
    """What share of negatives would explain the distance, where it is large enough to say."""
    value = number(evaluation, "methods", "model", "pcoc")
    log = evaluation.get("before_sampling") or evaluation
    shown, responses = number(log, "impressions"), number(log, "responses")
    rate = responses / shown if shown > 0 else math.nan
    mean = value * rate
    if not (abs(value - 1) > far and 0 < rate < 1 and 0 < mean < 1):
        return ""
    kept = rate / (1 - rate) * (1 - mean) / mean
    setting = f"log.keep_rate: {kept:.2g}" if kept < 1 else f"{1 / kept:.2g} is the test days' own"
    return (
        f"the mean probability is {mean:.3g} where {rate:.3g} responded, as if the negatives the "
        f"model learned from were sampled ({setting}); "
    )


def largest_check(evaluation: dict[str, Any], limit: float) -> GateCheck:
    """PCOC of each of the largest field values: no interval may lie wholly beyond the limit.

    Even of the largest some have too few responses for any interval to lie within, so here only
    "beyond" refuses; of how many nobody can tell is said.
    """
    rows = evaluation.get("largest_field_values")
    rows = rows if isinstance(rows, list) and rows else [{}]
    ends = [_ends(row) for row in rows]
    if any(math.isnan(low + high) for low, high in ends):
        sentence = f"PCOC of a large field value is undefined on the test days: {cause(evaluation)}"
        return GateCheck("pcoc_of_largest_values", math.nan, 0.0, False, sentence)
    answers = [answer_of(low, high, limit) for low, high in ends]
    wrong = [row for row, answer in zip(rows, answers, strict=True) if answer == "beyond"]
    worst = max(max(low - 1, 1 - high) - limit for low, high in ends)
    if wrong:
        more = f", as are {len(wrong) - 1} more of the {len(rows)} largest" if wrong[1:] else ""
        sentence = (
            f"PCOC of field value {found(wrong[0], 'field_value')!r} is {_with_band(wrong[0])}, "
            f"surely more than {limit:g} from 1 (gate.max_value_pcoc_error){more}: look at their "
            "days in the report, and for a change that the days before did not show"
        )
    else:
        unsure = answers.count("cannot tell")
        sentence = (
            f"of the {len(rows)} largest field values {len(rows) - unsure} have a PCOC within "
            f"{limit:g} of 1, of {unsure} nobody can tell, and none is surely beyond"
        )
    order = ("beyond", "cannot tell", "within")
    name = "pcoc_of_largest_values"
    return GateCheck(name, worst, 0.0, not wrong, sentence, answer=min(answers, key=order.index))


def _with_band(row: Any) -> str:
    value, low, high = (number(row, name) for name in ("pcoc", "low", "high"))
    if math.isnan(value + high):
        return f"at least {low:.4g}, without a response"
    return f"{value:.4g} (band {low:.4g} to {high:.4g})"


def _ends(row: Any) -> tuple[float, float]:
    """The ends of a value's interval; without responses it has no upper end. NaN: undefined."""
    endless = "high" in row and found(row, "high") is None
    return number(row, "low"), math.inf if endless else number(row, "high")
