"""Of rows merged by (group, logit): AUC and Field-AUC, reliability bins and ECE, outputs."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from pipeline.core.columns import Columns, Float64, Int64
from pipeline.formats.sort_keys import sort_by_group
from pipeline.metrics.counts import Measured, ratio

MOST_PAIRS = 2.0**63  # that an int64 counts


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


def merge_ties(
    logit: np.ndarray,
    impressions: np.ndarray,
    responses: np.ndarray,
    group: np.ndarray,
    n_groups: int,
) -> Ties:
    """Rows sorted by (group, logit), those that share both added up; in whatever order they come.

    Args:
        logit: float [n], finite.
        impressions: int or float [n], how many impressions (or which weight) a row stands for.
        responses: [n], 0 ≤ responses ≤ impressions.
        group: int [n] in [0, n_groups).
        n_groups: number of groups.
    """
    rows = sort_by_group(logit, impressions, responses, group, n_groups)
    starts = rows.tie_starts()
    if rows.counts is None:
        merged = np.diff(starts, append=len(rows.keys))
        hits = _sums(rows.keys.astype(np.uint8) & np.uint8(1), starts)
    else:
        merged, hits = (_sums(c, starts) for c in (rows.counts.impressions, rows.counts.responses))
    return Ties(rows.groups(starts), rows.logits(starts), merged, hits, n_groups)


def _sums(column: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Sums of `column` from each start to the next, int64 for integers and float64 for weights."""
    if np.issubdtype(column.dtype, np.floating):
        return np.add.reduceat(column, starts, dtype=np.float64) if len(starts) else column
    running = np.append(0, np.cumsum(column, dtype=np.int64))
    return np.diff(running[starts], append=running[-1])


def auc_per_group(ties: Ties) -> np.ndarray:
    """AUC within each group, float64 [n_groups]; NaN for a group with only one class or no rows.

    AUC = P(logit of a response > logit of a non-response) + ½ P(equal), over all pairs of one
    response and one non-response of the group. It is taken on logits, so 17 and 25 stay apart where
    float32 probabilities are both 1, and on whole counts (exact up to 4·10⁹ impressions, beyond to
    fifteen digits), so aggregated rows give exactly what rows of one impression give.
    """
    hits, others = ties.responses, ties.impressions - ties.responses
    if 2.0 * hits.sum() * others.sum() >= MOST_PAIRS:
        hits, others = hits.astype(np.float64), others.astype(np.float64)
    doubled_wins = hits * (2 * ties.before(others) + others)
    wins, positives, negatives = map(ties.per_group, (doubled_wins, hits, others))
    return ratio(wins / 2, positives.astype(np.float64) * negatives)


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


@dataclass(frozen=True)
class ReliabilityBins(Columns):
    """Counts of the bins that hold something, ascending by (group, bin).

    Attributes:
        group: int64 [b].
        bin_id: int64 [b] in [0, n_bins).
        impressions: [b].
        responses: [b].
        expected_responses: float64 [b], Σ impressions · p.
        logit_sum: float64 [b], Σ impressions · logit: where the bin's point is drawn.
    """

    group: Int64
    bin_id: Int64
    impressions: Int64
    responses: Int64
    expected_responses: Float64
    logit_sum: Float64


def reliability_bins(ties: Ties, n_bins: int) -> ReliabilityBins:
    """The impressions of each group, cut into `n_bins` bins of equal frequency by logit.

    An impression with b of the group's n impressions at lower logits is in bin ⌊n_bins · b / n⌋, so
    equal logits share a bin however many they are, and the bins of aggregated rows are those of
    rows of one impression. Without ties bins differ by one impression at most; a large tie takes
    the place of the bins it covers, which are then missing.

    Args:
        ties: rows merged by (group, logit).
        n_bins: number of bins in each group.
    """
    whole = ties.per_group(ties.impressions)[ties.group]
    share = n_bins * ties.before(ties.impressions) // np.where(whole > 0, whole, 1)
    place = ties.group * n_bins + np.clip(share.astype(np.int64), 0, n_bins - 1)
    starts = np.flatnonzero(np.append(True, place[1:] != place[:-1])[: len(place)])
    expected = ties.impressions * expit(ties.logit)
    columns = (ties.impressions, ties.responses, expected, ties.impressions * ties.logit)
    sums = [np.add.reduceat(c, starts) if len(starts) else c for c in columns]
    return ReliabilityBins(place[starts] // n_bins, place[starts] % n_bins, *sums)


def ece(bins: ReliabilityBins) -> float:
    """Expected calibration error: Σ_b |O_b − E_b| / Σ_b n_b over all bins.

    Naeini et al. (AAAI 2015), here with equal-frequency bins. A model that predicts the mean rate
    for everyone has a small one, so it decides nothing. NaN without impressions.
    """
    impressions = bins.impressions.sum()
    if not impressions > 0:
        return float("nan")
    return float(np.abs(bins.responses - bins.expected_responses).sum() / impressions)


def distinct_outputs(ties: Ties) -> int:
    """How many different logits a method gives, of ties of one group; few mean a loss of rank.

    Rows that stand for no impression give none.
    """
    return int((ties.impressions > 0).sum())
