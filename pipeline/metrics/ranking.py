"""Ranking: AUC and Field-AUC, on logits, with ties counted half."""

import numpy as np

from pipeline.metrics.ratios import Measured, ratio
from pipeline.metrics.sorting import SortedRows
from pipeline.metrics.ties import merge_runs


def auc_per_group(rows: SortedRows) -> np.ndarray:
    """AUC within each group, float64 [n_groups]; NaN for a group with only one class or no rows.

    AUC = P(logit of a response > logit of a non-response) + ½ P(equal), over all pairs of one
    response and one non-response of the group. It is taken on logits, so 17 and 25 stay apart where
    float32 probabilities are both 1, and on whole counts (exact up to 4·10⁹ impressions), so
    aggregated rows give exactly what rows of one impression give.
    """
    if rows.impressions is None:
        doubled_wins, positives, negatives = _of_single_impressions(rows)
    else:
        doubled_wins, positives, negatives = _of_aggregated_rows(rows)
    return ratio(doubled_wins / 2, positives.astype(np.float64) * negatives)


def _of_single_impressions(rows: SortedRows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Twice the pairs won, responses and non-responses of each group, int64 [n_groups].

    In ascending keys the k-th response, at place i, has i − k non-responses before it: those of
    lower groups, those at lower logits, and those tied with it, which sort before it. A tie of both
    classes shows as one step, from its last non-response to its first response.
    """
    places = np.flatnonzero((rows.keys & np.uint64(1)).astype(bool))
    steps = np.flatnonzero((rows.keys[1:] ^ rows.keys[:-1]) == 1)
    starts = rows.group_starts()
    firsts = np.searchsorted(places, starts)
    positives, rows_in_group = np.diff(firsts), np.diff(starts)
    before = places - np.arange(len(places))
    won = np.diff(np.append(0, np.cumsum(before))[firsts])
    won -= positives * (starts[:-1] - firsts[:-1])
    mixed = rows.keys[steps]
    tied = (steps + 1 - np.searchsorted(rows.keys, mixed)) * (
        np.searchsorted(rows.keys, mixed + np.uint64(1), side="right") - steps - 1
    )
    lost = np.diff(np.append(0, np.cumsum(tied))[np.searchsorted(steps, starts)])
    return 2 * won - lost, positives, rows_in_group - positives


def _of_aggregated_rows(rows: SortedRows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same three sums from rows that stand for any number of impressions, or are weighted."""
    runs = merge_runs(rows)
    others = runs.impressions - runs.responses
    doubled_wins = runs.responses * (2 * runs.before(others) + others)
    return runs.per_group(doubled_wins), runs.per_group(runs.responses), runs.per_group(others)


def field_auc(auc_by_value: np.ndarray, impressions: np.ndarray) -> Measured:
    """Field-AUC: the mean of the field values' AUC, weighted by their impressions.

    Values with only responses or none have no AUC: they are left out and the weights of the others
    renormalised. (The paper's second metric, there after He and McAuley, WWW 2016.)

    Args:
        auc_by_value: float [V] from `auc_per_group`, NaN where undefined.
        impressions: [V].

    Returns:
        The mean, and the share of impressions held by the values that have an AUC.
    """
    defined = ~np.isnan(auc_by_value)
    held = float(impressions[defined].sum())
    if held == 0:
        return Measured(float("nan"), 0.0)
    value = float((auc_by_value[defined] * impressions[defined]).sum()) / held
    return Measured(value, held / float(impressions.sum()))
