"""Everything a report says about one method on one test set, made from its measurement."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pipeline.metrics.calibration import (
    absolute_field_error,
    deviance_terms,
    field_rce,
    field_rce_floor,
    field_rce_terms,
    log_loss_terms,
    pcoc,
    pcoc_band,
    well_observed,
)
from pipeline.metrics.counts import ResponseCounts, count_responses
from pipeline.metrics.ranking import auc_per_group, field_auc
from pipeline.metrics.reliability import (
    ReliabilityBins,
    distinct_outputs,
    ece,
    reliability_bins,
)
from pipeline.metrics.runs import merge_runs
from pipeline.metrics.significance import (
    MIN_DAYS,
    USUAL,
    Interval,
    Resampling,
    TTest,
    field_value_interval,
    gain_interval,
    paired_t_test,
)
from pipeline.metrics.sorting import sort_rows
from pipeline.metrics.truth import count_truth, excess_log_loss
from pipeline.scores import Scores

BINS = 20
"""Equal-frequency bins of ECE and of a reliability picture."""

MAX_PCOC_DISTANCE = 0.03
"""A Field-RCE gain counts only with a PCOC this near to empirical-Bayes Platt's (relative)."""

STATISTICS = {
    "logloss": log_loss_terms,
    "field_deviance": deviance_terms,
    "field_rce": field_rce_terms,
}
"""What gets an interval. The first two decide; Field-RCE is not proper and is shown beside them."""


@dataclass(frozen=True)
class Measurement:
    """What one method's predictions on the test rows come to.

    Attributes:
        days: int32 [days], the days that have rows, as days since 1970-01-01, ascending.
        counts: shape [days, V].
        auc_by_value: float64 [V], NaN for values with one class.
        auc: over all rows; NaN with one class.
        distinct_outputs: number of different logits.
        bins: equal-frequency bins of all rows (group 0).
        bins_by_value: equal-frequency bins of each field value (group = field value id).
        truth: `excess_logloss` (nats per impression) and `field_rce` against the true
            probabilities; empty where they are not known.
    """

    days: np.ndarray
    counts: ResponseCounts
    auc_by_value: np.ndarray
    auc: float
    distinct_outputs: int
    bins: ReliabilityBins
    bins_by_value: ReliabilityBins
    truth: dict[str, float]


def measure(
    calibrated_logit: np.ndarray, rows: Scores, true_probability: np.ndarray | None = None
) -> Measurement:
    """The measurement of one method: one pass for the counts and two sorts.

    Args:
        calibrated_logit: float [n], the method's logit of each row; computed on in float64.
        rows: the test rows; their own logit is not read. Days without rows have no counts.
        true_probability: float [n] of each row, in simulated logs.

    Raises:
        DataError: lengths differ, a logit is not finite, or a true probability is none.
    """
    days, day = np.unique(rows.day, return_inverse=True)
    shape = len(days), rows.n_field_values
    group = day * shape[1] + rows.field_value_id
    by_day_and_value = count_responses(
        calibrated_logit, rows.impressions, rows.responses, group, shape[0] * shape[1]
    )
    value_auc, value_bins, _ = _ranked(calibrated_logit, rows, rows.field_value_id, shape[1])
    auc, bins, distinct = _ranked(calibrated_logit, rows, np.zeros_like(rows.field_value_id), 1)
    return Measurement(
        days=days,
        counts=by_day_and_value.reshape(*shape),
        auc_by_value=value_auc,
        auc=float(auc[0]),
        distinct_outputs=distinct,
        bins=bins,
        bins_by_value=value_bins,
        truth={}
        if true_probability is None
        else _against_truth(calibrated_logit, true_probability, rows),
    )


def _ranked(
    logit: np.ndarray, rows: Scores, group: np.ndarray, n_groups: int
) -> tuple[np.ndarray, ReliabilityBins, int]:
    """AUC of each group, reliability bins and the number of distinct logits, from one sort."""
    ordered = sort_rows(logit, rows.impressions, rows.responses, group, n_groups)
    runs = merge_runs(ordered)
    return auc_per_group(ordered), reliability_bins(runs, BINS), distinct_outputs(runs)


def _against_truth(logit: np.ndarray, truth: np.ndarray, rows: Scores) -> dict[str, float]:
    counts = count_truth(logit, truth, rows.impressions, rows.field_value_id, rows.n_field_values)
    return {
        "excess_logloss": excess_log_loss(logit, truth, rows.impressions),
        "field_rce": field_rce(counts).value,
    }


def summarise(measurement: Measurement, resampling: Resampling = USUAL) -> dict[str, float]:
    """The metrics of one method by name, NaN where undefined.

    Keys: `logloss` (nats per impression), `field_deviance` (divided by Σ O) and `field_rce`, each
    with `_low` and `_high`; `field_rce_floor` (label noise only), `_coverage` (share of impressions
    in values with responses), `_values`, `_values_left_out`, `_absolute_error_left_out` (a count);
    `absolute_field_error` (per impression), `field_auc`, `field_auc_coverage`, `auc`, `pcoc`,
    `pcoc_outside_band` (share of impressions in values whose Wilson band does not hold 1), `ece`,
    `distinct_outputs`.
    """
    counts = measurement.counts.sum(axis=0)
    ranking = field_auc(measurement.auc_by_value, counts.impressions)
    return {
        **_with_intervals(measurement.counts, resampling),
        **_field_rce_context(counts, None, resampling),
        "absolute_field_error": absolute_field_error(counts),
        "field_auc": ranking.value,
        "field_auc_coverage": ranking.coverage,
        "auc": measurement.auc,
        "pcoc": float(pcoc(counts.sum())),
        "pcoc_outside_band": _outside_band(counts, resampling.confidence),
        "ece": ece(measurement.bins),
        "distinct_outputs": measurement.distinct_outputs,
    }


def _with_intervals(counts: ResponseCounts, resampling: Resampling) -> dict[str, float]:
    columns = {}
    for name, statistic in STATISTICS.items():
        interval = field_value_interval(statistic, counts, resampling)
        columns[name] = interval.value
        columns |= {f"{name}_low": interval.low, f"{name}_high": interval.high}
    return columns


def _field_rce_context(
    counts: ResponseCounts, among: np.ndarray | None, resampling: Resampling
) -> dict[str, float]:
    """Floor and coverage of Field-RCE, under `field_rce_…`."""
    context = asdict(field_rce(counts, among))
    del context["value"]
    context["floor"] = field_rce_floor(counts, among, seed=resampling.seed)
    return {f"field_rce_{name}": value for name, value in context.items()}


def _outside_band(counts: ResponseCounts, confidence: float) -> float:
    low, high = pcoc_band(counts, confidence)
    seen = counts.impressions > 0
    outside = seen & ~((low <= 1) & (high >= 1))
    total = counts.impressions.sum()
    return float(counts.impressions[outside].sum() / total) if total > 0 else float("nan")


def summarise_well_observed(
    measurement: Measurement, among: np.ndarray, resampling: Resampling = USUAL
) -> dict[str, float]:
    """Field-RCE over the well-observed values, with interval, floor and coverage.

    Args:
        measurement: of one method.
        among: bool [V] from `well_observed`, the same for all methods.
        resampling: how the interval is made.
    """
    interval = field_value_interval(field_rce_terms, measurement.counts.take(among), resampling)
    return {
        "field_rce": interval.value,
        "field_rce_low": interval.low,
        "field_rce_high": interval.high,
        **_field_rce_context(measurement.counts.sum(axis=0), among, resampling),
    }


def gains(
    method: Measurement, reference: Measurement, resampling: Resampling = USUAL
) -> dict[str, Interval]:
    """The reference's metric minus the method's: `logloss`, `field_deviance`, `field_rce`.

    Positive is better; each with its paired interval (see `gain_interval`).
    """
    return {
        name: gain_interval(statistic, method.counts, reference.counts, resampling)
        for name, statistic in STATISTICS.items()
    }


def field_rce_gain_counts(
    gained: dict[str, Interval], method: Measurement, anchor: Measurement
) -> bool:
    """Whether a Field-RCE gain may be claimed: it is one, it costs no deviance, PCOC stays near.

    Field-RCE can be gained by predicting wrongly, so the gain counts only where field deviance is
    not worse and PCOC is within MAX_PCOC_DISTANCE of that of `anchor` (empirical-Bayes Platt).
    """
    own, other = (float(pcoc(m.counts.sum())) for m in (method, anchor))
    return (
        gained["field_rce"].low > 0
        and gained["field_deviance"].value >= 0
        and abs(own / other - 1) <= MAX_PCOC_DISTANCE
    )


def t_tests(method: Measurement, reference: Measurement) -> dict[str, TTest]:
    """The paper's paired t-test over days for each metric that has an interval."""
    return {
        name: paired_t_test(statistic, method.counts, reference.counts)
        for name, statistic in STATISTICS.items()
    }


def compare(
    measured: dict[str, Measurement],
    resampling: Resampling = USUAL,
    *,
    reference: str = "uncalibrated",
    fixed: str = "isotonic",
    anchor: str = "eb_platt",
) -> dict[str, Any]:
    """What the evaluation report says of several methods on the same test rows.

    Args:
        measured: by method; `reference`, `fixed` and `anchor` are among them.
        resampling: how intervals are made.
        reference: the method that gains are taken against.
        fixed: the method whose expected responses choose the well-observed values, for all methods.
        anchor: the method whose PCOC a Field-RCE gain must stay near to count.

    Returns:
        `methods`: `summarise` of each; `gains`: of each but the reference, by metric, `value`,
        `low`, `high`, `over`, `days`, and for Field-RCE whether it `counts`; `well_observed`:
        Field-RCE over the well-observed values of each; `t_tests`: over days, of each but the
        reference; `truth`: of each, by metric, in simulated logs; `claim_over_days`: whether the
        days are enough to speak of other days.
    """
    among = well_observed(measured[fixed].counts.sum(axis=0))
    base = measured[reference]
    others = {name: method for name, method in measured.items() if name != reference}
    return {
        "methods": {name: summarise(m, resampling) for name, m in measured.items()},
        "gains": {
            name: _gains_with_rule(m, base, measured[anchor], resampling)
            for name, m in others.items()
        },
        "well_observed": {
            name: summarise_well_observed(m, among, resampling) for name, m in measured.items()
        },
        "t_tests": {
            name: {metric: asdict(test) for metric, test in t_tests(m, base).items()}
            for name, m in others.items()
        },
        "truth": {
            metric: {name: m.truth[metric] for name, m in measured.items()} for metric in base.truth
        },
        "claim_over_days": base.counts.shape[0] >= MIN_DAYS,
    }


def _gains_with_rule(
    method: Measurement, base: Measurement, anchor: Measurement, resampling: Resampling
) -> dict[str, dict[str, Any]]:
    gained = gains(method, base, resampling)
    columns: dict[str, dict[str, Any]] = {name: asdict(gain) for name, gain in gained.items()}
    columns["field_rce"]["counts"] = field_rce_gain_counts(gained, method, anchor)
    return columns
