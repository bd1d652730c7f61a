"""What a verdict is made of: checks with sentences, and numbers that are never taken on trust.

Limits of PCOC, which carry an interval: within, beyond, or cannot tell.

A few weeks of days are often too few to say whether PCOC lies within a limit. "Cannot tell" is then
no pass of a first version; a later one is promoted if it is surely not worse than the champion.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

from pipeline.core.files import found
from pipeline.params.sections import GateParams

Answer = Literal["within", "beyond", "cannot tell"]


def answer_of(low: float, high: float, limit: float) -> Answer:
    """Whether a ratio with an interval lies within 1 ± limit, beyond, or nobody can tell."""
    if 1 - limit <= low and high <= 1 + limit:
        return "within"
    return "beyond" if low > 1 + limit or high < 1 - limit else "cannot tell"


@dataclass(frozen=True)
class GateCheck:
    """One question to the evidence.

    Attributes:
        name: short and stable, for tables.
        value: what was found; NaN where it is undefined.
        limit: what it was held against.
        passed: whether it held; an undefined value never does.
        sentence: value, limit and interval in words, and the next step where it did not hold.
        structural: whether it is about the artifact itself; nobody may override such a no.
        answer: of a limit that is held against an interval: whether the value lies within, beyond,
            or nobody can tell; None of other checks.
    """

    name: str
    value: float
    limit: float
    passed: bool
    sentence: str
    structural: bool = False
    answer: Answer | None = None

    @classmethod
    def answered(
        cls, name: str, value: float, limit: float, passed: bool, words: tuple[str, str, str]
    ) -> "GateCheck":
        """A check with its sentence made of what was found, and how it goes on: passed or not.

        A value that no report has as a number says so, and does not pass.
        """
        what, good, bad = words
        if math.isnan(value):
            passed, what, bad = False, name, " is no number in the reports; run dvc repro"
        return cls(name, value, limit, passed, what + (good if passed else bad))


@dataclass(frozen=True)
class Verdict:
    """All checks; it passes if each of them does."""

    checks: tuple[GateCheck, ...]

    @property
    def passed(self) -> bool:
        """Whether the model may be promoted."""
        return bool(self.checks) and all(check.passed for check in self.checks)

    @property
    def reasons(self) -> list[str]:
        """The sentences of the checks that did not hold, none of a verdict that passed."""
        return [check.sentence for check in self.checks if not check.passed]


@dataclass(frozen=True)
class Gain:
    """A method against another, positive = better; NaN where it is undefined."""

    value: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether there is a value with an interval."""
        return all(map(math.isfinite, (self.value, self.low, self.high)))

    def __str__(self) -> str:
        if math.isnan(self.value):
            return "an undefined amount"
        if not self.known:
            return f"{self.value:+.3g} (no interval)"
        return f"{self.value:+.3g} (interval {self.low:+.3g} to {self.high:+.3g})"

    def gap(self, evaluation: Any) -> str:
        """Why there is no value, or no interval, on the test days, and what to do: a clause."""
        if math.isnan(self.value):
            return cause(evaluation)
        return (
            "there are too few test days and field values for an interval; take more test days "
            "(split.test_days)"
        )


def number(report: Any, *names: str) -> float:
    """The number under a path of names; NaN where it is missing, no number or not finite."""
    value = found(report, *names)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    return float(value) if math.isfinite(value) else math.nan


def cause(evaluation: Any) -> str:
    """Why a metric is undefined on the test days, and what to do: a clause for a sentence."""
    shown, responses = (number(evaluation, name) for name in ("impressions", "responses"))
    nobody, everybody = responses == 0, responses == shown  # neither is true of an unknown number
    if nobody or everybody:
        return (
            f"{'none' if nobody else 'all'} of their impressions responded; take test days with "
            f"{'responses' if nobody else 'both outcomes'} (split.test_days, split.last_day)"
        )
    return (
        "reports/evaluation.json holds no number; take more test days (split.test_days), or "
        "measure again: dvc repro evaluate"
    )


def gain(report: Any, *names: str) -> Gain:
    """The gain under a path of names."""
    return Gain(*(number(report, *names, part) for part in ("value", "low", "high")))


def pcoc_check(evaluation: dict[str, Any], params: GateParams) -> GateCheck:
    """Expected / observed responses over all test rows; far off, sampling is named.

    Calibration days that were forecast out of sample say how much few test days may differ. Where
    the test days cannot tell, those are asked as well.
    """
    of_all = ("methods", "model")
    days: list[str] = []
    value, low, high = (number(evaluation, *of_all, f"pcoc{end}") for end in ("", "_low", "_high"))
    limit, begin = params.max_pcoc_error, "expected / observed responses (PCOC) is"
    if math.isnan(value + low + high):
        sentence = f"{begin} undefined on the test days: {cause(evaluation)}"
        return GateCheck("pcoc", math.nan, limit, False, sentence)
    few_low, few_high = (number(evaluation, "pcoc", "few_days", end) for end in ("low", "high"))
    low, high = min(low, few_low), max(high, few_high)  # NaN, where there are enough, is no end
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
