"""Equal-frequency reliability bins, ECE on them, MVCE on random views, and distinct outputs."""

from dataclasses import dataclass

import numpy as np

from pipeline.core.errors import DataError
from pipeline.metrics.counts import probability
from pipeline.metrics.ties import LogitRuns


@dataclass(frozen=True)
class ReliabilityBins:
    """Counts of the bins that hold something, ascending by (group, bin).

    Attributes:
        group: int64 [b].
        bin_id: int64 [b] in [0, n_bins).
        impressions: [b].
        responses: [b].
        expected_responses: float64 [b], Σ impressions · p.
        logit_sum: float64 [b], Σ impressions · logit: where the bin's point is drawn.
    """

    group: np.ndarray
    bin_id: np.ndarray
    impressions: np.ndarray
    responses: np.ndarray
    expected_responses: np.ndarray
    logit_sum: np.ndarray


def reliability_bins(runs: LogitRuns, n_bins: int) -> ReliabilityBins:
    """The impressions of each group, cut into `n_bins` bins of equal frequency by logit.

    An impression with b of the group's n impressions at lower logits is in bin ⌊n_bins · b / n⌋, so
    equal logits share a bin however many they are, and the bins of aggregated rows are those of
    rows of one impression. Without ties bins differ by one impression at most; a large tie takes
    the place of the bins it covers, which are then missing.

    Args:
        runs: rows merged by (group, logit).
        n_bins: number of bins in each group.
    """
    whole = runs.per_group(runs.impressions)[runs.group]
    share = n_bins * runs.before(runs.impressions) // np.where(whole > 0, whole, 1)
    place = runs.group * n_bins + np.clip(share.astype(np.int64), 0, n_bins - 1)
    starts = np.flatnonzero(np.append(True, place[1:] != place[:-1])[: len(place)])
    expected = runs.impressions * probability(runs.logit)
    columns = (runs.impressions, runs.responses, expected, runs.impressions * runs.logit)
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


def mvce(runs: LogitRuns, partitions: int = 2000, views: int = 10, seed: int = 0) -> float:
    """Multi-view calibration error: how far off random subsets of the impressions are.

    A view shuffles all impressions and cuts them into partitions of equal size; its error is the
    mean over partitions of |observed rate − mean probability|; MVCE is the root mean square over
    views (Huang et al., MBCT, WWW 2022, as the evaluation code of Yang et al., DESC, 2024, has it).
    Label noise is part of it, the more the smaller the partitions are, so it compares methods on
    one test set at one number of partitions and means nothing by itself.

    Args:
        runs: rows merged by logit, as one group, with whole impressions.
        partitions: in one view; at most one for each impression.
        views: number of shuffles.
        seed: of the shuffles.

    Returns:
        MVCE, or NaN without impressions.

    Raises:
        DataError: the impressions are weights, which cannot be dealt out one by one.
    """
    if not np.issubdtype(runs.impressions.dtype, np.integer):
        raise DataError("MVCE deals out single impressions, so it needs whole numbers of them")
    residual = _residuals(runs)
    if not len(residual):
        return float("nan")
    many = min(partitions, len(residual))
    starts = np.arange(many) * len(residual) // many
    sizes = np.diff(starts, append=len(residual))
    generator = np.random.default_rng(seed)
    errors = []
    for _ in range(views):
        generator.shuffle(residual)
        errors.append(np.mean(np.abs(np.add.reduceat(residual, starts) / sizes)))
    return float(np.sqrt(np.mean(np.square(errors))))


def _residuals(runs: LogitRuns) -> np.ndarray:
    """Response − probability of every single impression, in an order that rows do not decide."""
    chance = np.repeat(probability(runs.logit), 2)
    response = np.tile([1.0, 0.0], len(runs.logit))
    many = np.column_stack([runs.responses, runs.impressions - runs.responses]).ravel()
    return np.repeat(response - chance, many)


def distinct_outputs(runs: LogitRuns) -> int:
    """How many different logits a method gives, of runs of one group; few mean a loss of rank.

    Rows that stand for no impression give none.
    """
    return int((runs.impressions > 0).sum())
