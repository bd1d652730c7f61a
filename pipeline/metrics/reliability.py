"""Equal-frequency reliability bins, ECE on them, and distinct outputs."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from pipeline.core.columns import Columns, Float64, Int64
from pipeline.metrics.ranking import Ties


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
