"""What each method gains on a strong baseline, with paired intervals: a tie is called a tie."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from bench.pooled_gain import Pair, mean_gain
from bench.quality_cases import Case
from pipeline.metrics.comparison import gains
from pipeline.metrics.significance import Interval
from pipeline.metrics.summary import GAINED, Measurement

REFERENCES = ("eb_platt_forward", "eb_platt")
ANCHOR = "eb_platt"  # whose PCOC a gain in Field-RCE must stay near
MAX_PCOC_DISTANCE = 0.03  # relative
TITLES = {
    "logloss": "LogLoss ·10⁻⁵",
    "daily_field_deviance": "daily deviance",
    "field_deviance": "deviance",
    "field_rce": "Field-RCE",
}


@dataclass(frozen=True)
class Judged:
    """All methods' measurements on one case."""

    case: Case
    measured: dict[str, Measurement]

    def gains(self, method: str) -> dict[str, dict[str, Any]]:
        """Of a method, by reference and metric: the paired interval on this case."""
        return {
            reference: {
                name: asdict(gain)
                for name, gain in gains(self.measured[method], self.measured[reference]).items()
            }
            for reference in REFERENCES
            if reference in self.measured and reference != method
        }


def mean_gains(judged: Sequence[Judged], method: str, reference: str) -> dict[str, Interval]:
    """A method's gains over all cases by metric, with intervals that know what cases share."""
    names = _numbers(judged)
    pairs = [
        Pair(m[method].days, values, m[method].counts, m[reference].counts)
        for values, m in zip(names, (each.measured for each in judged), strict=True)
    ]
    return {name: mean_gain(statistic, pairs) for name, statistic in GAINED.items()}


def _numbers(judged: Sequence[Judged]) -> list[np.ndarray]:
    """Numbers of each case's field values by id, the same value having the same in all cases."""
    names = [
        each.case.field_values
        if each.case.field_values is not None
        else pd.RangeIndex(each.case.test.n_field_values).astype(str)
        for each in judged
    ]
    numbers, _ = pd.factorize(np.concatenate([np.asarray(n, dtype=object) for n in names]))
    return np.split(numbers, np.cumsum([len(n) for n in names])[:-1])


def verdict(gain: Interval) -> str:
    """better, worse or tie, as the interval says."""
    if gain.low > 0:
        return "better"
    return "worse" if gain.high < 0 else "tie"


def field_rce_counts(judged: Sequence[Judged], method: str, gained: dict[str, Interval]) -> bool:
    """Whether a better mean Field-RCE may be claimed.

    It may where deviance is not worse and the mean PCOC is within MAX_PCOC_DISTANCE of that of
    empirical-Bayes Platt: Field-RCE can be gained by predicting wrongly.
    """
    own, other = (
        np.mean([_pcoc(each.measured[name]) for each in judged]) for name in (method, ANCHOR)
    )
    near = abs(own / other - 1) <= MAX_PCOC_DISTANCE
    return bool(gained["field_rce"].low > 0 and gained["field_deviance"].value >= 0 and near)


def _pcoc(measurement: Measurement) -> float:
    total = measurement.counts.sum()
    return float(total.expected_responses / total.responses)


def gains_lines(judged: Sequence[Judged], reference: str) -> list[list[str]]:
    """The cells of a table with a row per method: its gains on the reference, positive = better."""
    lines = [["method", *(TITLES[name] for name in GAINED), "windows better/worse"]]
    for method in judged[0].measured:
        if method == reference:
            continue
        gained = mean_gains(judged, method, reference)
        cells = [_cell(gained[name], name) for name in GAINED]
        if gained["field_rce"].low > 0 and ANCHOR in judged[0].measured:
            counts = field_rce_counts(judged, method, gained)
            cells[-1] += "" if counts else ", does not count"
        lines.append([method, *cells, _windows(judged, method, reference)])
    return lines


def _cell(gain: Interval, name: str) -> str:
    scale, form = (1e5, "{:+.1f}") if name == "logloss" else (1.0, "{:+.4f}")
    value, low, high = (form.format(scale * x) for x in (gain.value, gain.low, gain.high))
    return f"{value} [{low}, {high}] {verdict(gain)}"


def _windows(judged: Sequence[Judged], method: str, reference: str) -> str:
    """In how many windows the LogLoss, its mean over seeds, is better and worse."""
    gained: dict[str, list[float]] = {}
    for each in judged:
        losses = [float(_log_loss(each.measured[name])) for name in (reference, method)]
        gained.setdefault(each.case.window, []).append(losses[0] - losses[1])
    means = np.array([np.mean(each) for each in gained.values()])
    return f"{(means > 0).sum()}/{(means < 0).sum()} of {len(means)}"


def _log_loss(measurement: Measurement) -> np.ndarray:
    total = measurement.counts.sum()
    return total.log_loss / total.impressions
