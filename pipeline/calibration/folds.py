"""What is known and what is predicted: blocks of days, each predicted from the days before."""

from dataclasses import dataclass, replace

import numpy as np

from pipeline.formats.scores import Scores
from pipeline.formats.tables import CellTable

FORWARD_DAYS = 4  # days beside the horizon from which anything can be learned forward in time
FORWARD_FOLDS = 3  # at most
BURN_IN = 0.4  # share of the days that only ever are history
SCATTERED_DAYS = 10


@dataclass(frozen=True)
class Counts:
    """Impressions and responses of each cell row, float64 [n]."""

    impressions: np.ndarray
    responses: np.ndarray

    def where(self, rows: np.ndarray) -> "Counts":
        """These counts where `rows` (bool [n]) is true, else nothing."""
        return Counts(self.impressions * rows, self.responses * rows)


@dataclass(frozen=True)
class Fold:
    """What is known (`history`) and what is to be predicted (`target`), row by row.

    Attributes:
        history: counts of the days that are known.
        target: counts of the days that are predicted.
        days: int64 [d], the days that are predicted.
    """

    history: Counts
    target: Counts
    days: np.ndarray


def all_counts(cells: CellTable | Scores) -> Counts:
    """The counts of all rows of cells or scores."""
    return Counts(cells.impressions.astype(float), cells.responses.astype(float))


def forward_folds(cells: CellTable | Scores, horizon_days: int = 1) -> list[Fold]:
    """Folds whose targets are blocks of neighbouring days, whose histories are the days before.

    The first days are burn-in: they are history in every fold and target in none. Between the last
    day of a history and the first of its target lie horizon_days - 1 days. No folds where there
    are fewer than FORWARD_DAYS + horizon_days days.
    """
    days = np.unique(cells.day)
    if len(days) < FORWARD_DAYS + horizon_days:
        return []
    first = max(horizon_days, round(BURN_IN * len(days)))
    counts = all_counts(cells)
    return [
        Fold(
            counts.where(cells.day <= block[0] - horizon_days),
            counts.where((cells.day >= block[0]) & (cells.day <= block[-1])),
            block,
        )
        for block in np.array_split(days[first:], min(FORWARD_FOLDS, len(days) - first))
    ]


def merged_rows(scores: Scores, *keys: np.ndarray) -> Scores:
    """Rows that are alike in all keys as one row of all their impressions, ascending by the keys.

    Args:
        scores: rows of any order.
        keys: [n] each; the last one orders first.
    """
    order = np.lexsort(keys)
    new = np.ones(len(order), dtype=bool)
    new[1:] = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    starts = np.flatnonzero(new)
    n, y = (np.add.reduceat(c[order], starts) for c in (scores.impressions, scores.responses))
    return replace(scores.take(order[starts]), impressions=n, responses=y)


def scattered(scores: Scores, seed: int) -> Scores:
    """Rows as if they had come on SCATTERED_DAYS days, each impression on one of them.

    Where days are not known every impression is exchangeable, so days drawn for them predict one
    another as days would on which nothing moves. Equal rows are one row of all their impressions:
    neither the order of rows nor how impressions are spread over them changes anything.

    Args:
        scores: rows of any counts; their days are passed over.
        seed: of the draw.
    """
    rows = merged_rows(scores, scores.uncalibrated_logit, scores.field_value_id)
    n, y = rows.impressions, rows.responses
    rng, even = np.random.default_rng(seed), np.full(SCATTERED_DAYS, 1.0 / SCATTERED_DAYS)
    responses = rng.multinomial(y, even)
    impressions = responses + rng.multinomial(n - y, even)
    row, day = np.nonzero(impressions)
    drawn = impressions[row, day], responses[row, day], day.astype(np.int32)
    return replace(rows.take(row), impressions=drawn[0], responses=drawn[1], day=drawn[2])
