"""Ranking: rows sorted by (group, logit), ties among them, AUC and Field-AUC on logits."""

from dataclasses import dataclass

import numpy as np

from pipeline.formats.sort_keys import SortedRows, sort_by_group
from pipeline.metrics.counts import Measured, check_groups, check_rows, ratio


def sort_rows(
    logit: np.ndarray,
    impressions: np.ndarray,
    responses: np.ndarray,
    group: np.ndarray,
    n_groups: int,
) -> SortedRows:
    """The rows sorted by (group, logit); the order they come in is irrelevant.

    Args:
        logit: float [n], finite.
        impressions: int or float [n], how many impressions (or which weight) a row stands for.
        responses: [n], 0 ≤ responses ≤ impressions.
        group: int [n] in [0, n_groups).
        n_groups: number of groups.

    Raises:
        DataError: lengths differ, a logit is not finite, responses exceed impressions, or a group
            lies outside its range.
    """
    check_rows(logit, impressions, responses)
    check_groups(group, len(logit), n_groups)
    return sort_by_group(logit, impressions, responses, group, n_groups)


@dataclass(frozen=True)
class Ties:
    """Impressions and responses at every distinct logit of every group, in ascending order.

    Attributes:
        group: int64 [m], ascending.
        logit: float64 [m], ascending within a group.
        impressions: int64 (float64 where rows are weighted) [m].
        responses: same dtype [m].
        n_groups: number of groups; some may have none.
    """

    group: np.ndarray
    logit: np.ndarray
    impressions: np.ndarray
    responses: np.ndarray
    n_groups: int

    def before(self, column: np.ndarray) -> np.ndarray:
        """For each tie, the sum of `column` over the lower logits of its group."""
        below = np.cumsum(column) - column
        first = np.searchsorted(self.group, np.arange(self.n_groups))
        at_start = np.append(below, 0)[first]  # a group without rows reads a value nobody uses
        return below - at_start[self.group]

    def per_group(self, column: np.ndarray) -> np.ndarray:
        """Sums of `column` over each group, [n_groups]; int64 and exact for an integer column."""
        if np.issubdtype(column.dtype, np.floating):
            return np.bincount(self.group, weights=column, minlength=self.n_groups)
        first = np.searchsorted(self.group, np.arange(self.n_groups + 1))
        return np.diff(np.append(0, np.cumsum(column))[first])


def merge_ties(rows: SortedRows) -> Ties:
    """The rows that share group and logit, added up."""
    starts = rows.tie_starts()
    if rows.counts is None:
        responses = _sums(rows.keys.astype(np.uint8) & np.uint8(1), starts)
        impressions = np.diff(starts, append=len(rows.keys))
    else:
        impressions = _sums(rows.counts.impressions, starts)
        responses = _sums(rows.counts.responses, starts)
    groups, logits = rows.groups(starts), rows.logits(starts)
    return Ties(groups, logits, impressions, responses, rows.ids[1])


def _sums(column: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Sums of `column` from each start to the next, int64 for integers and float64 for weights."""
    if np.issubdtype(column.dtype, np.floating):
        return np.add.reduceat(column, starts, dtype=np.float64) if len(starts) else column
    running = np.append(0, np.cumsum(column, dtype=np.int64))
    return np.diff(running[starts], append=running[-1])


def auc_per_group(rows: SortedRows) -> np.ndarray:
    """AUC within each group, float64 [n_groups]; NaN for a group with only one class or no rows.

    AUC = P(logit of a response > logit of a non-response) + ½ P(equal), over all pairs of one
    response and one non-response of the group. It is taken on logits, so 17 and 25 stay apart where
    float32 probabilities are both 1, and on whole counts (exact up to 4·10⁹ impressions), so
    aggregated rows give exactly what rows of one impression give.
    """
    if rows.counts is None:
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
    ties = merge_ties(rows)
    others = ties.impressions - ties.responses
    doubled_wins = ties.responses * (2 * ties.before(others) + others)
    return ties.per_group(doubled_wins), ties.per_group(ties.responses), ties.per_group(others)


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
