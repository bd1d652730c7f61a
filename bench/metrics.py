"""python -m bench.metrics [--rows N] [--json OUT]: metrics against a loop of scikit-learn calls."""

import argparse
import json
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
from scipy.special import expit
from sklearn.metrics import log_loss as sklearn_log_loss
from sklearn.metrics import roc_auc_score

from pipeline.metrics.calibration import field_rce, log_loss_terms
from pipeline.metrics.counts import count_responses
from pipeline.metrics.ranking import auc_per_group, field_auc, merge_ties

FIELD_VALUES = 969


@dataclass(frozen=True)
class Log:
    """Rows of one impression each: logit float64, label and field value int32, all [n]."""

    logit: np.ndarray
    label: np.ndarray
    value: np.ndarray


def simulated(rows: int, seed: int = 1) -> Log:
    """A log with Zipf field values, a response rate of about 7 % and logits off by value."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, FIELD_VALUES + 1)
    value = rng.choice(FIELD_VALUES, rows, p=share / share.sum()).astype(np.int32)
    true = rng.normal(-3, 1, rows)
    label = (rng.random(rows) < expit(true)).astype(np.int32)
    return Log(true + rng.normal(0, 0.3, FIELD_VALUES)[value], label, value)


def our_field_metrics(log: Log) -> list[float]:
    """Field-RCE and Field-AUC."""
    ones = np.ones(len(log.label), np.int32)
    counts = count_responses(log.logit, ones, log.label, log.value, FIELD_VALUES)
    by_value = auc_per_group(merge_ties(log.logit, ones, log.label, log.value, FIELD_VALUES))
    return [field_rce(counts).value, field_auc(by_value, counts.impressions).value]


def our_auc(log: Log) -> list[float]:
    """AUC over all rows."""
    ones, zeros = np.ones(len(log.label), np.int32), np.zeros(len(log.label), np.int32)
    return [float(auc_per_group(merge_ties(log.logit, ones, log.label, zeros, 1))[0])]


def our_log_loss(log: Log) -> list[float]:
    """LogLoss over all rows."""
    ones, zeros = np.ones(len(log.label), np.int32), np.zeros(len(log.label), np.int32)
    return [float(log_loss_terms(count_responses(log.logit, ones, log.label, zeros, 1)).ratio())]


def our_four(log: Log) -> list[float]:
    """Field-RCE, Field-AUC, AUC and LogLoss; one pass of counts serves two of them."""
    ones, zeros = np.ones(len(log.label), np.int32), np.zeros(len(log.label), np.int32)
    counts = count_responses(log.logit, ones, log.label, log.value, FIELD_VALUES)
    by_value = auc_per_group(merge_ties(log.logit, ones, log.label, log.value, FIELD_VALUES))
    overall = auc_per_group(merge_ties(log.logit, ones, log.label, zeros, 1))
    ranking = field_auc(by_value, counts.impressions)
    return [
        field_rce(counts).value,
        ranking.value,
        float(overall[0]),
        float(log_loss_terms(counts).ratio()),
    ]


def peer_field_metrics(log: Log) -> list[float]:
    """Rows grouped once, then one call for each field value."""
    order = np.argsort(log.value, kind="stable")
    bounds = np.searchsorted(log.value[order], np.arange(FIELD_VALUES + 1))
    label, p = log.label[order], expit(log.logit)[order]
    errors, ranks, with_responses, with_both = 0.0, 0.0, 0, 0
    for start, stop in pairwise(bounds):
        y, own = label[start:stop], p[start:stop]
        if not y.any():
            continue
        errors += abs((y - own).sum()) / y.mean()
        with_responses += len(y)
        if not y.all():
            ranks += len(y) * roc_auc_score(y, own)
            with_both += len(y)
    return [errors / with_responses, ranks / with_both]


def peer_auc(log: Log) -> list[float]:
    """scikit-learn's AUC."""
    return [roc_auc_score(log.label, log.logit)]


def peer_log_loss(log: Log) -> list[float]:
    """scikit-learn's LogLoss."""
    return [sklearn_log_loss(log.label, expit(log.logit))]


def peer_four(log: Log) -> list[float]:
    """The loop, then AUC and LogLoss."""
    return [*peer_field_metrics(log), *peer_auc(log), *peer_log_loss(log)]


Work = Callable[[Log], list[float]]
CASES: dict[str, tuple[Work, Work]] = {
    "Field-RCE + Field-AUC + AUC + LogLoss": (our_four, peer_four),
    "Field-RCE + Field-AUC": (our_field_metrics, peer_field_metrics),
    "AUC": (our_auc, peer_auc),
    "LogLoss": (our_log_loss, peer_log_loss),
}


def seconds(work: Work, log: Log) -> tuple[float, list[float]]:
    """How long it took, and what came out."""
    start = perf_counter()
    result = work(log)
    return perf_counter() - start, result


def peak_mb(work: Work, log: Log) -> float:
    """Most memory in use at a time beyond the log itself, in MB."""
    tracemalloc.start()
    work(log)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def measured(what: str, log: Log, runs: int) -> dict[str, object]:
    """One case: medians of alternating runs, after both gave the same numbers."""
    ours, peer = CASES[what]
    times: list[tuple[float, float]] = []
    for _ in range(runs):
        (ours_s, own), (peer_s, theirs) = seconds(ours, log), seconds(peer, log)
        np.testing.assert_allclose(own, theirs, rtol=1e-9)
        times.append((ours_s, peer_s))
    ours_s, peer_s = (median(column) for column in zip(*times, strict=True))
    return {
        "what": what,
        "rows": len(log.label),
        "ours_s": round(ours_s, 4),
        "peer": "scikit-learn",
        "peer_s": round(peer_s, 4),
        "ratio": round(peer_s / ours_s, 2),
        "peak_mb": round(peak_mb(ours, log), 1),
    }


def main() -> None:
    """Measure every case, print a table, and write the JSON where asked."""
    parser = argparse.ArgumentParser(prog="bench.metrics", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    log = simulated(arguments.rows)
    print(f"{'what':<40}{'rows':>12}{'ours s':>9}{'peer s':>9}{'ratio':>8}{'peak MB':>9}")
    results = []
    for what in CASES:
        case = measured(what, log, arguments.runs)
        results.append(case)
        print(
            f"{what:<40}{case['rows']:>12,}{case['ours_s']:>9}{case['peer_s']:>9}"
            f"{case['ratio']:>8}{case['peak_mb']:>9}"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
