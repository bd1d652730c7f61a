"""The fitting grid as dense arrays: cells, groups of neighbouring cells, knots of candidates.

And of a logit: its loss, and the bound within which fits read it.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import log_expit
from scipy.special import logit as log_odds

from pipeline.calibration.statistics.bins import posterior_of
from pipeline.formats.tables import BinTable, CellTable, FieldTables, cells_to_bins

SURE = 35.0  # logits; what logged probabilities of 0 and 1 stand for (±34.5) lies within


def bounded(logit: np.ndarray) -> np.ndarray:
    """Logits within ±SURE, float64: what fits read, so that no single score decides a slope."""
    return np.clip(np.asarray(logit, dtype=np.float64), -SURE, SURE)


def mean_probability_logit(probability_sum: np.ndarray, impressions: np.ndarray) -> np.ndarray:
    """Log odds [n] of the mean probabilities of cells, bounded; impressions > 0."""
    return bounded(log_odds(np.clip(probability_sum / impressions, 0.0, 1.0)))


def log_loss_from_logits(
    logit: np.ndarray, responses: np.ndarray, impressions: np.ndarray
) -> np.ndarray:
    """Summed log-loss of each row in nats, float64 [n]: -Σ [y ln p + (1 - y) ln(1 - p)].

    p = 1 / (1 + e^-logit) of the row's impressions; no probability is formed, so none is clipped,
    and every finite logit has a finite loss.

    Args:
        logit: the predicted logits, [n].
        responses: number of responses of each row, [n].
        impressions: number of impressions of each row, [n].
    """
    f = np.asarray(logit, dtype=np.float64)
    misses = np.asarray(impressions) - np.asarray(responses)
    # two terms of one sign: nothing cancels where f is large and right
    return -responses * log_expit(f) - misses * log_expit(-f)


TARGET_CELLS = 40  # cells of a field value on which the loss is taken
PROFILE_BINS = 8  # coarse bins whose ratios show the shape of a whole field value


@dataclass(frozen=True)
class CandidateKnots:
    """Knots of one candidate bin count: the mean logit of each bin of each field value.

    Attributes:
        requested_bins: K.
        bin_id: int64 [n], the bin of each cell row.
        logit: float64 [V, K], ascending in each row; padded with the last one.
        count: int64 [V], knots in use; 0 where the value has no impressions.
        impressions: float64 [V, K], 0 in the padding.
    """

    requested_bins: int
    bin_id: np.ndarray
    logit: np.ndarray
    count: np.ndarray
    impressions: np.ndarray


@dataclass(frozen=True)
class Grid:
    """The cells of all field values with what stays the same in every fold.

    Attributes:
        cells: the fitting grid.
        logit: float64 [n], mean logit of each cell row, bounded.
        coarse: int64 [n], target cell of each cell row, 0 … TARGET_CELLS - 1.
        profile: int64 [n], coarse bin of each cell row, 0 … PROFILE_BINS - 1.
        candidates: knots of each candidate.
        n_field_values: V.
    """

    cells: CellTable
    logit: np.ndarray
    coarse: np.ndarray
    profile: np.ndarray
    candidates: tuple[CandidateKnots, ...]
    n_field_values: int

    @property
    def observed(self) -> np.ndarray:
        """bool [V]: field values with cells of their own; not id 0, which stands for others."""
        observed = self.candidates[0].count > 0
        observed[0] = False
        return observed

    def sums(self, group: np.ndarray, width: int, amounts: np.ndarray) -> np.ndarray:
        """Sums [V, width] of amounts [n] by field value and group [n]."""
        shape = (self.n_field_values, width)
        key = self.cells.field_value_id.astype(np.int64) * width + group
        return np.bincount(key, amounts, shape[0] * width).reshape(shape)

    def target_cells(
        self, impressions: np.ndarray, responses: np.ndarray, anchored: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Impressions, responses, mean anchored and mean uncalibrated logit of the target cells.

        float64 [V, TARGET_CELLS] each, 0 where a field value has no such cell.

        Args:
            impressions, responses, anchored: of each cell row, [n].
        """
        columns = (impressions, responses, impressions * anchored, impressions * self.logit)
        n, y, a, x = (self.sums(self.coarse, TARGET_CELLS, column) for column in columns)
        total = np.where(n > 0, n, 1.0)
        return n, y, a / total, x / total


def _knots(
    cells: CellTable, bin_id: np.ndarray, requested: int, n_field_values: int
) -> CandidateKnots:
    key = cells.field_value_id.astype(np.int64) * requested + bin_id
    filled, place = np.unique(key, return_inverse=True)
    value = filled // requested
    number = np.arange(len(filled)) - np.searchsorted(value, value)  # bins without cells drop out
    n, x = (np.bincount(place, column) for column in (cells.impressions, cells.logit_sum))
    logit = np.full((n_field_values, requested), -np.inf)
    impressions = np.zeros((n_field_values, requested))
    impressions[value, number], logit[value, number] = n, bounded(x / n)
    logit = np.maximum.accumulate(logit, axis=1)
    count = (impressions > 0).sum(axis=1)
    shown = np.where(count[:, None] > 0, logit, 0.0)
    return CandidateKnots(requested, number[place], shown, count, impressions)


def _bin_ids(tables: FieldTables, requested: int) -> np.ndarray:
    """The bin of one candidate in which each cell row lies, of all days, int64 [cells]."""
    made = cells_to_bins(tables.cells.take(tables.made_of), tables.bins, requested)
    return of_same_cell(tables.cells, tables.made_of, made.astype(np.int64))


def make_grid(tables: FieldTables, rows: np.ndarray) -> Grid:
    """The grid of the cell rows that a mask picks, in the bins and groups of the tables.

    Args:
        tables: bins, and cells of the days that they were made of and of others.
        rows: bool [cells].
    """
    cells = tables.cells.take(rows)
    knots = []
    for requested in np.unique(tables.bins.requested_bins).tolist():
        bin_id = _bin_ids(tables, requested)[rows]
        knots.append(_knots(cells, bin_id, requested, tables.n_field_values))
    return Grid(
        cells,
        bounded(cells.logit_sum / cells.impressions),
        groups_of_cells(cells, TARGET_CELLS),
        groups_of_cells(cells, PROFILE_BINS),
        tuple(knots),
        tables.n_field_values,
    )


def bins_of_days(tables: FieldTables, days: np.ndarray) -> BinTable:
    """The bins of the tables with the counts of some days in the place of those they were cut on.

    Args:
        tables: bins and cells; field values without bins are passed over.
        days: int [d], days since 1970-01-01 whose cells are among those of the tables.
    """
    bins, picked = tables.bins, np.isin(tables.cells.day, days)
    picked &= np.isin(tables.cells.field_value_id, bins.field_value_id)
    cells, width = tables.cells.take(picked), int(bins.bin_id.max(initial=0)) + 1
    sums = np.zeros((3, len(bins)))
    for requested in np.unique(bins.requested_bins).tolist():
        bin_id = _bin_ids(tables, requested)[picked]
        rows = np.flatnonzero(bins.requested_bins == requested)
        key = bins.field_value_id[rows].astype(np.int64) * width + bins.bin_id[rows]
        place = rows[np.searchsorted(key, cells.field_value_id * np.int64(width) + bin_id)]
        amounts = (cells.impressions, cells.responses, cells.logit_sum)
        sums += [np.bincount(place, amount, len(bins)) for amount in amounts]
    n, y = (column.astype(bins.impressions.dtype) for column in sums[:2])
    return replace(
        bins, impressions=n, responses=y, logit_sum=sums[2], posterior=posterior_of(y, n)
    )


def of_same_cell(cells: CellTable, known: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """The number of each cell row, int64 [n]: that of the same cell among the known rows, else 0.

    Args:
        cells: rows of (field value, cell, day), in that order.
        known: bool [n].
        numbers: int64, one for each known row; the same for all days of a cell.
    """
    cell = np.cumsum(cells.starts) - 1
    of_cell = np.zeros(len(cells) and cell[-1] + 1, dtype=np.int64)
    of_cell[cell[known]] = numbers
    return of_cell[cell]


def groups_of_cells(cells: CellTable, n_groups: int) -> np.ndarray:
    """Group of each cell row, 0 … n_groups - 1, of neighbouring cells of its field value.

    Groups hold equal shares of the value, half by impressions, half by predicted responses: where
    responses are, logits are sparse, and a group of equal frequency would blur them.
    """
    starts = cells.starts
    cell = np.cumsum(starts) - 1
    value = cells.field_value_id[starts]
    weight = np.zeros(len(value))
    expected = np.maximum(cells.probability_sum, 1e-300 * cells.impressions)  # which rounds to 0
    for amount in (cells.impressions, expected):
        of_cell = np.bincount(cell, amount)
        weight += of_cell / np.bincount(value, of_cell)[value] / 2
    first = np.r_[True, np.diff(value) != 0]
    before = np.cumsum(weight) - weight
    within = before - before[first][np.cumsum(first) - 1] + weight / 2
    return np.clip((within * n_groups).astype(np.int64), 0, n_groups - 1)[cell]
