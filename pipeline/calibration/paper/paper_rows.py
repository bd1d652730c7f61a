"""AdaCalib as published, its inputs: bounds and statistics of bins, rows among bounds.

Rows as a training reads them: equal ones merged, in an order that says nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from pipeline.calibration.folds import merged_rows
from pipeline.core.errors import NotEnoughDataError
from pipeline.formats.scores import Scores
from pipeline.formats.sort_keys import sortable_bits
from pipeline.formats.tables import BinTable

LEVELS = 64  # ids per discretised statistic


@dataclass(frozen=True)
class RowFeatures:
    """Encoded features of rows: categorical int32 [n, C], numeric float32 [n, N], column sizes."""

    categorical: np.ndarray
    numeric: np.ndarray
    sizes: tuple[int, ...]

    def take(self, rows: np.ndarray) -> "RowFeatures":
        """The rows that a boolean mask or an index array picks."""
        return RowFeatures(self.categorical[rows], self.numeric[rows], self.sizes)


@dataclass(frozen=True)
class Family:
    """Bounds and statistics of one candidate bin count, a row per group (field value, or all).

    Attributes:
        bounds: float64 [Z, K + 1], ascending, padded with the last.
        n_bins: int64 [Z], effective bins; 0 for groups without rows.
        impressions: float64 [Z, K].
        responses: float64 [Z], of all bins.
        statistic: int64 [Z, K + 1], id of the discretised statistics of each knot.
    """

    bounds: np.ndarray
    n_bins: np.ndarray
    impressions: np.ndarray
    responses: np.ndarray
    statistic: np.ndarray


def _statistics(table: BinTable) -> tuple[np.ndarray, np.ndarray]:
    """Response rate and log responses of each bin."""
    return table.posterior, np.log1p(table.responses)


def make_families(bins: BinTable, counts: Sequence[int], n_groups: int) -> list[Family]:
    """The families of all candidates; ids of statistics run over LEVELS² pairs.

    Knot K + 1 carries the field value's maxima of both statistics. (The paper's footnote says "the
    maximum values"; the maxima over *all* field values would pull the last bin of each to the rate
    of the best.)
    """
    shares = np.arange(1, LEVELS) / LEVELS  # which cut amounts into as many equally filled ids
    edges = [np.unique(np.quantile(amounts, shares)) for amounts in _statistics(bins)]
    families = []
    for requested in counts:
        table = bins.candidate(requested)
        place = (table.field_value_id, table.bin_id)
        lower = np.full((n_groups, requested + 1), -np.inf)
        lower[place] = table.lower_bound
        lower[table.field_value_id, table.effective_bins] = table.upper_bound
        n_bins = np.zeros(n_groups, dtype=np.int64)
        n_bins[table.field_value_id] = table.effective_bins
        impressions = np.zeros((n_groups, requested))
        impressions[place] = table.impressions
        statistic = np.zeros((n_groups, requested + 1), dtype=np.int64)
        for inner, amounts in zip(edges, _statistics(table), strict=True):
            level = np.searchsorted(inner, amounts)
            greatest = np.zeros(n_groups, dtype=np.int64)
            np.maximum.at(greatest, table.field_value_id, level)
            of_knot = np.repeat(greatest[:, None], requested + 1, axis=1)
            of_knot[place] = level
            statistic = statistic * LEVELS + of_knot
        bounds = np.maximum.accumulate(lower, axis=1)
        responses = np.bincount(table.field_value_id, table.responses, n_groups)
        families.append(Family(bounds, n_bins, impressions, responses, statistic))
    return families


@dataclass(frozen=True)
class PaperRows:
    """Rows ready for batches; per candidate, in which bin a row lies and where between its bounds.

    Attributes:
        bin_id: int64 [n, candidates].
        share: float32 [n, candidates], 0 at the lower and 1 at the upper bound.
        group: int64 [n].
        impressions, responses: float32 [n].
        categorical, numeric: features, [n, 0] where there are none.
    """

    bin_id: Tensor
    share: Tensor
    group: Tensor
    impressions: Tensor
    responses: Tensor
    categorical: Tensor
    numeric: Tensor

    def take(self, rows: Tensor) -> "PaperRows":
        """The rows that an index picks."""
        return PaperRows(*(getattr(self, f.name)[rows] for f in fields(self)))


def make_rows(
    scores: Scores, group: np.ndarray, families: Sequence[Family], features: RowFeatures | None
) -> PaperRows:
    """The scores' rows with impressions, placed among the bounds of every family."""
    logit = scores.uncalibrated_logit.astype(np.float64)
    bin_ids, shares = [], []
    for family in families:
        bin_id = np.zeros(len(logit), dtype=np.int64)
        for inner in range(1, family.bounds.shape[1] - 1):
            inside = inner < family.n_bins[group]
            bin_id += inside & (logit >= family.bounds[group, inner])
        low, high = family.bounds[group, bin_id], family.bounds[group, bin_id + 1]
        width = np.where(high > low, high - low, 1.0)
        bin_ids.append(bin_id)
        shares.append(np.where(high > low, (logit - low) / width, 0.0))
    none = np.zeros((len(logit), 0))
    return PaperRows(
        torch.from_numpy(np.stack(bin_ids, axis=1)),
        torch.from_numpy(np.stack(shares, axis=1)).float(),
        torch.from_numpy(group.astype(np.int64)),
        torch.from_numpy(scores.impressions.astype(np.float32)),
        torch.from_numpy(scores.responses.astype(np.float32)),
        torch.from_numpy((features.categorical if features else none).astype(np.int64)),
        torch.from_numpy((features.numeric if features else none).astype(np.float32)),
    ).take(torch.from_numpy(np.flatnonzero(scores.impressions > 0)))


SCATTER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: neighbours end up far apart


def response_rate(scores: Scores) -> float:
    """(ΣO + ½) / (Σ impressions + 1): the mean rate, inside (0, 1) also without any response.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    impressions = scores.impressions.sum()
    if not impressions:
        raise NotEnoughDataError(
            "a calibrator needs rows with impressions, there are none; take more calibration days"
        )
    return float((scores.responses.sum() + 0.5) / (impressions + 1))


def merged(scores: Scores) -> Scores:
    """Rows of equal field value, day and logit as one row, day by day in a scattered order.

    A row of n impressions and the n rows it stands for come out alike, whatever the order they came
    in, which a method that takes its steps row by row needs. Within a day neither logits nor field
    values stand together, so that any part of it is like the whole. Rows without impressions are
    dropped.
    """
    scores = scores.take(scores.impressions > 0)
    bits = sortable_bits(scores.uncalibrated_logit).astype(np.uint64)
    value = (scores.field_value_id.astype(np.uint64) << np.uint64(32)) | bits
    value *= SCATTER  # modulo 2^64, where an odd factor loses nothing
    return merged_rows(scores, value, scores.day)
