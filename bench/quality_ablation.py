"""The paper's second table: AdaCalib as published, with one part after the other taken away."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import stdtrit

from bench.quality_cases import Case
from bench.quality_gains import Judged, mean_gains
from pipeline.calibration.paper.paper_fit import PaperFit, fit_paper, predict
from pipeline.calibration.paper.paper_network import PaperSettings
from pipeline.calibration.paper.paper_rows import RowFeatures
from pipeline.formats.scores import Scores
from pipeline.metrics.calibration import field_rce
from pipeline.metrics.significance import Interval
from pipeline.metrics.summary import Measurement, measure
from pipeline.params.params_file import read_params

PARTS = ("posterior_guidance", "adaptive_function", "adaptive_binning", "auxiliary")
# The paper's rows.
ROWS = (
    (True, True, True, True),
    (True, True, True, False),
    (True, True, False, False),
    (True, False, False, False),
    (False, False, False, False),
)
CANDIDATES = {"cvr": (5, 10, 20), "ctr": (2, 4, 8)}  # the paper's two sets
MEASURED = ("field_rce", "logloss")
CONFIDENCE = 0.95
MIN_LOGS = 3  # from which on something is said about other logs

Parts = tuple[bool, bool, bool, bool]


def fit_published(
    scores: Scores,
    parts: Parts,
    candidates: str = "cvr",
    seed: int = 0,
    features: RowFeatures | None = None,
) -> PaperFit:
    """AdaCalib as published with some of its parts, otherwise as params.yaml has it.

    Args:
        scores: the rows that are fitted.
        parts: those of a row of ROWS.
        candidates: "cvr" or "ctr", which of the paper's sets of bin counts.
        seed: added to that of params.yaml.
        features: of the same rows, for the auxiliary network.
    """
    section = read_params().calibrate
    settings = PaperSettings(
        **section.paper.model_dump(), candidates=CANDIDATES[candidates],
        temperatures=section.temperatures, min_slope=section.min_slope, seed=section.seed + seed,
        min_responses_per_bin=section.min_responses_per_bin,
    )  # fmt: skip
    switched: dict[str, Any] = dict(zip(PARTS, parts, strict=True))
    return fit_paper(scores, replace(settings, **switched), features)


def _measure(case: Case, parts: Parts, candidates: str) -> Measurement:
    known, later = (
        features if parts[-1] else None
        for features in (case.calibration_features, case.test_features)
    )
    fitted = fit_published(case.calibration, parts, candidates, case.seed, known)
    return measure(predict(fitted, case.test, later), case.test, case.true_probability)


def ablation(case: Case, candidates: str) -> Iterator[tuple[str, Measurement]]:
    """The rows on one case, named by their parts as in the paper: ✓ and ×.

    The auxiliary network's, the first, only where there are features. Initial weights and batches
    differ by the case's seed.

    Args:
        case: fixed base scores.
        candidates: "cvr" or "ctr", which of the paper's sets of bin counts.
    """
    for parts in ROWS if case.calibration_features else ROWS[1:]:
        name = " ".join("✓" if part else "×" for part in parts)
        yield name, _measure(case, parts, candidates)


def losses(judged: Sequence[Judged]) -> dict[str, dict[str, Interval]]:
    """What taking a part away lost against the row above, by row and metric: positive = the part
    helps, as the paper has it.

    Of two intervals the wider: over the field values and days of the test rows (`mean_gains`), and,
    with MIN_LOGS simulated logs or windows, over these, Student's t of their differences. The first
    says how sure the result is on these logs, the second on others of the kind.
    """
    return {
        row: {name: _wider(gain, _of_logs(judged, above, row, name)) for name, gain in each.items()}
        for above, row in pairwise(judged[0].measured)
        for each in [{n: g for n, g in mean_gains(judged, above, row).items() if n in MEASURED}]
    }


def _of_logs(judged: Sequence[Judged], above: str, row: str, metric: str) -> list[float]:
    """The loss on each log; simulated seeds are logs of their own, a window's share labels."""
    found: dict[tuple[str, int], list[float]] = {}
    for each in judged:
        log = (each.case.window, -1 if each.case.true_probability is None else each.case.seed)
        values = [_metric(each.measured[name], metric) for name in (row, above)]
        found.setdefault(log, []).append(values[0] - values[1])
    return [float(np.mean(lost)) for lost in found.values()]


def _metric(measurement: Measurement, name: str) -> float:
    counts = measurement.counts.sum(axis=0)
    if name == "field_rce":
        return float(field_rce(counts).value)
    return float(counts.log_loss.sum() / counts.impressions.sum())


def _wider(gain: Interval, lost: list[float]) -> Interval:
    n = len(lost)
    if n < MIN_LOGS:
        return gain
    half = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2) * np.std(lost, ddof=1) / np.sqrt(n))
    if gain.high - gain.low >= 2 * half:
        return gain
    return replace(gain, low=gain.value - half, high=gain.value + half)


def verdict(lost: Interval) -> str:
    """Whether the paper's order of two neighbouring rows holds, as the interval says."""
    if lost.low > 0:
        return "holds"
    return "reversed" if lost.high < 0 else "open"
