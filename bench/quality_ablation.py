"""The paper's second table: AdaCalib as published, with one part after the other taken away."""

from collections.abc import Iterator
from dataclasses import dataclass

from bench.quality_cases import Case
from pipeline.calibration.paper import fit_paper, predict
from pipeline.calibration.paper_network import PaperSettings
from pipeline.metrics.comparison import gains
from pipeline.metrics.significance import Interval
from pipeline.metrics.summary import Measurement, measure

# Posterior guidance, adaptive function, adaptive binning, auxiliary network: the paper's rows.
ROWS = (
    (True, True, True, True),
    (True, True, True, False),
    (True, True, False, False),
    (True, False, False, False),
    (False, False, False, False),
)
CANDIDATES = {"cvr": (5, 10, 20), "ctr": (2, 4, 8)}  # the paper's two sets
MEASURED = ("field_rce", "logloss")


@dataclass(frozen=True)
class Row:
    """One row of the table on one case.

    Attributes:
        parts: which of the four are there.
        measurement: on the test rows.
        lost: what the removal of the last part cost, by metric: this row minus the row above,
            with the paired interval; empty in the first row.
    """

    parts: tuple[bool, bool, bool, bool]
    measurement: Measurement
    lost: dict[str, Interval]

    @property
    def name(self) -> str:
        """The parts as in the paper: ✓ and ×."""
        return " ".join("✓" if part else "×" for part in self.parts)


def _measure(case: Case, parts: tuple[bool, bool, bool, bool], candidates: str) -> Measurement:
    guidance, function, binning, auxiliary = parts
    settings = PaperSettings(guidance, function, binning, auxiliary, CANDIDATES[candidates])
    known, later = (
        features if auxiliary else None
        for features in (case.calibration_features, case.test_features)
    )
    fitted = fit_paper(case.calibration, settings, known)
    return measure(predict(fitted, case.test, later), case.test, case.true_probability)


def ablation(case: Case, candidates: str) -> Iterator[Row]:
    """The rows on one case; the auxiliary network's, the first, only where there are features.

    Args:
        case: fixed base scores.
        candidates: "cvr" or "ctr", which of the paper's sets of bin counts.
    """
    above = None
    for parts in ROWS if case.calibration_features else ROWS[1:]:
        measurement = _measure(case, parts, candidates)
        lost: dict[str, Interval] = gains(above, measurement) if above else {}
        yield Row(parts, measurement, {name: lost[name] for name in MEASURED if name in lost})
        above = measurement


def verdict(losses: list[Interval]) -> str:
    """Mean loss and interval over cases, and in how many the interval lies above or below 0."""
    if not losses:
        return ""
    value, low, high = (
        sum(getattr(loss, name) for loss in losses) / len(losses)
        for name in ("value", "low", "high")
    )
    above = sum(loss.low > 0 for loss in losses)
    below = sum(loss.high < 0 for loss in losses)
    return f"{value:+.5f} [{low:+.5f}, {high:+.5f}] {above}+ {below}- of {len(losses)}"
