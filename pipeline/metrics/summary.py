"""Everything a report says about one method on one test set, and the sums behind it in columns."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
from scipy.special import stdtrit

from pipeline.core.columns import joined
from pipeline.core.errors import DataError
from pipeline.formats.scores import Scores
from pipeline.metrics.calibration import (
    count_truth,
    deviance_terms,
    excess_log_loss,
    field_rce,
    field_rce_terms,
    log_loss_terms,
    noise_floor,
    pcoc,
    pcoc_band,
    pcoc_terms,
)
from pipeline.metrics.counts import ResponseCounts, count_responses
from pipeline.metrics.ranking import (
    ReliabilityBins,
    auc_per_group,
    distinct_outputs,
    ece,
    field_auc,
    merge_ties,
    reliability_bins,
)
from pipeline.metrics.significance import (
    MIN_DAYS,
    USUAL,
    Daily,
    Resampling,
    Statistic,
    day_shocks,
    equal_number,
    field_value_interval,
)

BINS = 20
"""Equal-frequency bins of ECE and of a reliability picture."""

FLOOR_DRAWS, FIELD_RCE_DRAWS = 50, 200
"""Simulated test sets behind the floor of the daily deviance, whose cells are many, and of
Field-RCE."""

STATISTICS = {
    "logloss": log_loss_terms,
    "field_deviance": deviance_terms,
    "field_rce": field_rce_terms,
}
"""Metrics of the days' totals that get an interval."""

DECIDING: dict[str, Statistic | Daily] = {
    "logloss": log_loss_terms,
    "daily_field_deviance": Daily(deviance_terms),
}
"""What decides. A forecast that saw earlier test days can win totals over days by paying its past
errors back, at the cost of its days; of single days it can win nothing by that."""

GAINED = DECIDING | STATISTICS
"""What methods are held against one another in: first what decides, then what is shown beside."""


Columns = dict[str, np.ndarray]
NO_GROUPS: Mapping[str, np.ndarray] = {}


@dataclass(frozen=True)
class Measurement:
    """What one method's predictions on the test rows come to.

    Attributes:
        days: int32 [days], the days that have rows, as days since 1970-01-01, ascending.
        counts: shape [days, V].
        auc_by_value: float64 [V], NaN for values with one class.
        auc_by_day: float64 [days, V], likewise of each day's rows of a value.
        auc: over all rows; NaN with one class.
        distinct_outputs: number of different logits.
        bins: equal-frequency bins of all rows (group 0).
        bins_by_value: equal-frequency bins of each field value (group = field value id).
        truth: `excess_logloss` (nats per impression) and `field_rce` against the true
            probabilities; empty where they are not known.
        of_groups: name -> `auc`, `daily_field_auc` and `ece` of the rows of a group; NaN where
            undefined.
    """

    days: np.ndarray
    counts: ResponseCounts
    auc_by_value: np.ndarray
    auc_by_day: np.ndarray
    auc: float
    distinct_outputs: int
    bins: ReliabilityBins
    bins_by_value: ReliabilityBins
    truth: dict[str, float]
    of_groups: dict[str, dict[str, float]]


def measure(
    calibrated_logit: np.ndarray,
    rows: Scores,
    true_probability: np.ndarray | None = None,
    groups: Mapping[str, np.ndarray] = NO_GROUPS,
) -> Measurement:
    """The measurement of one method: one pass for the counts, three sorts, one of each group.

    Args:
        calibrated_logit: float [n], the method's logit of each row; computed on in float64.
        rows: the test rows; their own logit is not read. Days without rows have no counts.
        true_probability: float [n] of each row, in simulated logs.
        groups: name -> the days and field values of a group, bool [days, V].

    Raises:
        DataError: lengths differ, a logit is not finite, or a true probability is none.
    """
    if len(calibrated_logit) != len(rows) or not np.isfinite(calibrated_logit).all():
        finite = int(np.isfinite(calibrated_logit).sum())
        raise DataError(
            f"a method needs a finite logit for each of {len(rows)} test rows, this one has "
            f"{finite} in {len(calibrated_logit)}; fit it again"
        )
    days, counts = count_by_day(calibrated_logit, rows)
    cells = np.searchsorted(days, rows.day) * rows.n_field_values + rows.field_value_id
    ties = merge_ties(
        calibrated_logit, rows.impressions, rows.responses, cells, counts.impressions.size
    )
    by_value = rows.field_value_id, rows.n_field_values
    value_auc, value_bins, _ = _ranked(calibrated_logit, rows, *by_value)
    auc, bins, distinct = _ranked(calibrated_logit, rows, np.zeros_like(rows.field_value_id), 1)
    by_day = auc_per_group(ties).reshape(counts.shape)

    def of_group(picked: np.ndarray) -> dict[str, float]:
        some = np.flatnonzero(picked.ravel()[cells])
        ids = np.zeros(len(some), np.int32)
        of_all, of_bins, _ = _ranked(calibrated_logit[some], rows.take(some), ids, 1)
        ranking = field_auc(by_day[picked], counts.impressions[picked]).value
        return {"auc": float(of_all[0]), "daily_field_auc": ranking, "ece": ece(of_bins)}

    return Measurement(
        days=days,
        counts=counts,
        auc_by_value=value_auc,
        auc_by_day=by_day,
        auc=float(auc[0]),
        distinct_outputs=distinct,
        bins=bins,
        bins_by_value=value_bins,
        truth={}
        if true_probability is None
        else _against_truth(calibrated_logit, true_probability, rows),
        of_groups={name: of_group(picked) for name, picked in groups.items()},
    )


def count_by_day(
    logit: np.ndarray, rows: Scores, value: np.ndarray | float = 1.0
) -> tuple[np.ndarray, ResponseCounts]:
    """The days that have rows, and counts of shape [days, V], of a logit of each row [n].

    Each row counts as often as its `value` says, float64 [n].
    """
    days, day = np.unique(rows.day, return_inverse=True)
    shape = len(days), rows.n_field_values
    group = day * shape[1] + rows.field_value_id
    shown, responses = rows.impressions, rows.responses
    if isinstance(value, np.ndarray):
        shown, responses = shown * value, responses * value
    counts = count_responses(logit, shown, responses, group, shape[0] * shape[1])
    return days, counts.reshape(*shape)


def _ranked(
    logit: np.ndarray, rows: Scores, group: np.ndarray, n_groups: int
) -> tuple[np.ndarray, ReliabilityBins, int]:
    """AUC of each group, reliability bins and the number of distinct logits, from one sort."""
    ties = merge_ties(logit, rows.impressions, rows.responses, group, n_groups)
    return auc_per_group(ties), reliability_bins(ties, BINS), distinct_outputs(ties)


def _against_truth(logit: np.ndarray, truth: np.ndarray, rows: Scores) -> dict[str, float]:
    counts = count_truth(logit, truth, rows.impressions, rows.field_value_id, rows.n_field_values)
    return {
        "excess_logloss": excess_log_loss(logit, truth, rows.impressions),
        "field_rce": field_rce(counts).value,
    }


def summarise(measurement: Measurement, resampling: Resampling = USUAL) -> dict[str, float]:
    """The metrics of one method by name, NaN where undefined.

    Keys: `logloss` (nats per impression), `daily_field_deviance` and `field_deviance` (divided by
    Σ O) and `field_rce`, each with `_low` and `_high`; `daily_field_deviance_floor` and
    `field_rce_floor` (label noise only); `field_rce_coverage` (share of impressions in values with
    responses), `_values`, `_values_left_out`, `_absolute_error_left_out` (a count);
    `field_auc` and `field_auc_coverage`, both also as `daily_…`, where a value's rows are ranked
    within each day; `auc`, `pcoc` with `_low` and `_high` (see `pcoc_intervals`), `ece`,
    `distinct_outputs`.
    """
    counts = measurement.counts.sum(axis=0)
    ranking = field_auc(measurement.auc_by_value, counts.impressions)
    daily_ranking = field_auc(measurement.auc_by_day, measurement.counts.impressions)
    ratio = overall_pcoc(measurement.counts, resampling)
    floor = noise_floor(deviance_terms, measurement.counts, FLOOR_DRAWS, resampling.seed)
    return {
        **_with_intervals(measurement.counts, resampling),
        **_field_rce_context(counts, resampling),
        "daily_field_deviance_floor": floor,
        "field_auc": ranking.value,
        "field_auc_coverage": ranking.coverage,
        "daily_field_auc": daily_ranking.value,
        "daily_field_auc_coverage": daily_ranking.coverage,
        "auc": measurement.auc,
        "pcoc": ratio["value"],
        "pcoc_low": ratio["low"],
        "pcoc_high": ratio["high"],
        "ece": ece(measurement.bins),
        "distinct_outputs": measurement.distinct_outputs,
    }


def pcoc_intervals(
    counts: ResponseCounts, resampling: Resampling = USUAL
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """PCOC of every field value over all days, and the low and high end of its interval: [V] each.

    An end is the wider of Wilson's (label noise) and the day jackknife's (shocks that a value's
    rows of a day share; from MIN_DAYS blocks on). Without responses PCOC is NaN and high is inf.

    Args:
        counts: shape [days, V].
        resampling: its confidence and blocks are used.
    """
    total = counts.sum(axis=0)
    low, high = pcoc_band(total, resampling.confidence)
    for value in range(len(low)):
        of_value = counts.take(np.array([value]))
        of_days = field_value_interval(pcoc_terms, of_value, resampling)
        low[value] = np.fmin(low[value], max(of_days.low, 0.0))
        high[value] = np.fmax(high[value], of_days.high)
    return pcoc(total), low, high


def overall_pcoc(counts: ResponseCounts, resampling: Resampling = USUAL) -> dict[str, float]:
    """PCOC of all rows of counts [days, V] as `value`, with `low` and `high` of its interval."""
    of_days = counts.sum(axis=1).reshape(-1, 1)
    ends = (float(end[0]) for end in pcoc_intervals(of_days, resampling))
    return dict(zip(("value", "low", "high"), ends, strict=True))


def few_days_pcoc(
    counts: ResponseCounts, before: ResponseCounts, resampling: Resampling = USUAL
) -> dict[str, float]:
    """`low` and `high` of the PCOC of all rows of a few days, as unsure as days before make them.

    Fewer than MIN_DAYS blocks of days cannot say how much days differ, so that `overall_pcoc` knows
    label noise alone. Days before can: to its variance on a logarithmic scale τ² Σ (E_d / ΣE)² is
    added (`day_shocks`), with Student's t on as many degrees as there are days before. NaN where
    the days are not few, or those before are.

    Args:
        counts: shape [days, V].
        before: shape [days, 1], forecasts of days before these.
        resampling: its confidence and blocks are used.
    """
    blocks = -(-counts.shape[0] // resampling.block_days)
    if blocks >= MIN_DAYS or before.shape[0] < MIN_DAYS:
        return {"low": np.nan, "high": np.nan}
    value, low, high = overall_pcoc(counts, resampling).values()
    of_days = counts.expected_responses.sum(axis=1)
    t = stdtrit(before.shape[0], (1 + resampling.confidence) / 2)
    shocks = t * np.sqrt(day_shocks(before)[0] / equal_number(of_days))
    below, above = (np.hypot(np.log(end / value), shocks) for end in (low, high))
    return {"low": float(value * np.exp(-below)), "high": float(value * np.exp(above))}


def _with_intervals(counts: ResponseCounts, resampling: Resampling) -> dict[str, float]:
    columns = {}
    for name, statistic in GAINED.items():
        interval = field_value_interval(statistic, counts, resampling)
        columns[name] = interval.value
        columns |= {f"{name}_low": interval.low, f"{name}_high": interval.high}
    return columns


def _field_rce_context(counts: ResponseCounts, resampling: Resampling) -> dict[str, float]:
    """Floor and coverage of Field-RCE, under `field_rce_…`."""
    context = asdict(field_rce(counts))
    context["floor"] = noise_floor(field_rce_terms, counts, FIELD_RCE_DRAWS, resampling.seed)
    del context["value"]
    return {f"field_rce_{name}": value for name, value in context.items()}


def count_columns(measured: Mapping[str, Measurement]) -> Columns:
    """method, day (days since 1970), field_value_id and ResponseCounts, without empty rows."""
    return _stacked({name: _of_counts(m) for name, m in measured.items()})


def _of_counts(measurement: Measurement) -> Columns:
    day, value = np.nonzero(measurement.counts.impressions)
    sums = vars(measurement.counts.each(lambda column: column[day, value]))
    return {"day": measurement.days[day], "field_value_id": value.astype(np.int32), **sums}


def bin_columns(measured: Mapping[str, Measurement]) -> Columns:
    """method, field_value_id (−1: of all rows), bin_id and the sums of ReliabilityBins."""
    return _stacked({name: _of_bins(m) for name, m in measured.items()})


def _of_bins(measurement: Measurement) -> Columns:
    columns = joined([measurement.bins, measurement.bins_by_value]).columns()
    value = columns.pop("group")
    value[: len(measurement.bins)] = -1
    bin_id = columns.pop("bin_id")
    return {"field_value_id": value.astype(np.int32), "bin_id": bin_id.astype(np.int32), **columns}


def _stacked(parts: Mapping[str, Columns]) -> Columns:
    """The methods' columns below one another, their names in front."""
    names = [np.full(len(part["field_value_id"]), name) for name, part in parts.items()]
    below = list(parts.values())
    return {"method": np.concatenate(names)} | {
        column: np.concatenate([part[column] for part in below]) for column in below[0]
    }
