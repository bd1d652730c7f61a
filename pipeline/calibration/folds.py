"""Out-of-sample folds of grid cells or rows: forward in time, or by counts where days are few."""

from dataclasses import dataclass

import numpy as np

from pipeline.formats.scores import Scores
from pipeline.formats.tables import CellTable

FORWARD_DAYS = 4  # calibration days from which folds go forward in time
FORWARD_FOLDS = 5  # at most
COUNT_FOLDS = 10
BURN_IN = 0.4  # share of the days that only ever are history


@dataclass(frozen=True)
class Counts:
    """Impressions and responses of each cell row, float64 [n]."""

    impressions: np.ndarray
    responses: np.ndarray

    def of_days(self, days: np.ndarray) -> "Counts":
        """These counts where `days` (bool [n]) is true, else nothing."""
        return Counts(self.impressions * days, self.responses * days)


@dataclass(frozen=True)
class Fold:
    """What is known (`history`) and what is to be predicted (`target`), cell row by cell row."""

    history: Counts
    target: Counts


def all_counts(cells: CellTable | Scores) -> Counts:
    """The counts of all rows of cells or scores."""
    return Counts(cells.impressions.astype(float), cells.responses.astype(float))


def forward_folds(cells: CellTable | Scores) -> list[Fold]:
    """Folds whose targets are blocks of neighbouring days and whose histories are all days before.

    The first days are burn-in: they are history in every fold and target in none.
    """
    days = np.unique(cells.day)
    first = max(1, round(BURN_IN * len(days)))
    blocks = np.array_split(days[first:], min(FORWARD_FOLDS, len(days) - first))
    counts = all_counts(cells)
    return [
        Fold(
            counts.of_days(cells.day < block[0]),
            counts.of_days((cells.day >= block[0]) & (cells.day <= block[-1])),
        )
        for block in blocks
    ]


def count_folds(cells: CellTable | Scores, seed: int, n_folds: int = COUNT_FOLDS) -> list[Fold]:
    """Folds that split every cell row's impressions and responses, not the rows.

    Each impression goes to one fold at random, that is: responses and non-responses are split by a
    seeded multinomial draw, so one row may be a field value's whole evidence and still be split.
    Folds that know nothing or predict nothing are left out; where a log has a single impression it
    is known and predicted.

    Args:
        cells: the fitting grid, or the scores themselves.
        seed: of the draw; it runs over the rows in the table's order.
        n_folds: how many folds share the counts.
    """
    rng = np.random.default_rng(seed)
    amounts = np.stack([cells.responses, cells.impressions - cells.responses])
    left = amounts.astype(np.int64)
    rest = amounts - left  # of a sampled log's fractional counts: each goes to one fold
    fold_of_rest = rng.integers(n_folds, size=rest.shape) if rest.any() else np.zeros(rest.shape)
    counts = all_counts(cells)
    folds = []
    for remaining in range(n_folds, 0, -1):
        drawn = rng.binomial(left, 1.0 / remaining)
        left = left - drawn
        drawn = drawn + rest * (fold_of_rest == remaining - 1)
        target = Counts(drawn.sum(axis=0).astype(float), drawn[0].astype(float))
        history = Counts(  # never below 0, where a fractional count's last bit would be
            np.maximum(counts.impressions - target.impressions, 0.0),
            np.maximum(counts.responses - target.responses, 0.0),
        )
        folds.append(Fold(history, target))
    useful = [f for f in folds if f.history.impressions.any() and f.target.impressions.any()]
    return useful or [Fold(counts, counts)]


def make_folds(cells: CellTable | Scores, seed: int) -> list[Fold]:
    """Folds forward in time where there are days enough, folds of counts else."""
    if len(np.unique(cells.day)) >= FORWARD_DAYS:
        return forward_folds(cells)
    return count_folds(cells, seed)
