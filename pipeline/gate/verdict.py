"""What a verdict is made of: checks with sentences, and numbers that are never taken on trust."""

import math
from dataclasses import dataclass
from typing import Any, Literal

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
        """A check with its sentence made of what was found, and how it goes on: passed or not."""
        found, good, bad = words
        return cls(name, value, limit, passed, found + (good if passed else bad))


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


def found(report: Any, *names: str) -> Any:
    """What stands under a path of names; None where there is nothing."""
    for name in names:
        report = report.get(name) if isinstance(report, dict) else None
    return report


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
