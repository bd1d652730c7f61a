"""Daily counts: a field value's impressions and responses of a day, at a few logits."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipeline.calibration.statistics.grid import (
    groups_of_cells,
    mean_probability_logit,
    of_same_cell,
)
from pipeline.core.columns import Columns, Float64, Int64
from pipeline.formats.tables import CellTable, FieldTree

GROUPS = 8  # of neighbouring cells that are kept apart within a field value and day


@dataclass(frozen=True)
class DailyCounts(Columns):
    """Rows of impressions at one logit, sorted by day and field value.

    Attributes:
        day: int64 [n], days since 1970-01-01.
        field_value_id: int64 [n].
        logit: float64 [n], log odds of the mean uncalibrated probability.
        impressions: float64 [n], > 0.
        responses: float64 [n].
    """

    day: Int64
    field_value_id: Int64
    logit: Float64
    impressions: Float64
    responses: Float64

    def by_value(self) -> "DailyCounts":
        """One row for each day and field value."""
        starts = np.flatnonzero((np.diff(self.day, prepend=-1) != 0)
                                | (np.diff(self.field_value_id, prepend=-1) != 0))  # fmt: skip
        n, y, x = (
            np.add.reduceat(column, starts)
            for column in (self.impressions, self.responses, self.impressions * self.logit)
        )
        return DailyCounts(self.day[starts], self.field_value_id[starts], x / n, n, y)

    def of_day(self, day: int) -> "DailyCounts":
        """The rows of a day."""
        return self.take(self.rows_of(day))

    @cached_property
    def days(self) -> np.ndarray:
        """The days that have rows, int64, ascending."""
        return np.unique(self.day)

    def rows_of(self, day: int) -> slice:
        """Where the rows of a day are."""
        first, last = np.searchsorted(self.day, [day, day + 1])
        return slice(int(first), int(last))


def daily_counts(cells: CellTable, learned: np.ndarray) -> DailyCounts:
    """Counts of all cells by day, field value and group of neighbouring cells.

    Which cells are neighbours is read off the rows that `learned` (bool [n]) picks; a cell that
    they do not have is in its field value's first group.
    """
    group = of_same_cell(cells, learned, groups_of_cells(cells.take(learned), GROUPS))
    n_values = int(cells.field_value_id.max(initial=0)) + 1
    since = cells.day - (cells.day.min() if len(cells) else 0)
    # small whole numbers sort by their digits; within a day the rows are in order already
    order = np.argsort(since.astype(np.uint16), kind="stable")
    key = (cells.day.astype(np.int64) * n_values + cells.field_value_id) * GROUPS + group
    key = key[order]
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    columns = (cells.impressions, cells.responses, cells.probability_sum)
    n, y, e = (np.add.reduceat(a[order].astype(np.float64), starts) for a in columns)
    rest = key[starts] // GROUPS
    return DailyCounts(rest // n_values, rest % n_values, mean_probability_logit(e, n), n, y)


def usual_logits(counts: DailyCounts, tree: FieldTree) -> tuple[np.ndarray, float]:
    """x̄, the mean logit of each field value, float64 [V], and that of all.

    A parent's is that of all its rows. Values without rows have their nearest parent's, or that of
    all, as the id 0 has.

    Args:
        counts: of the days that are known.
        tree: of V ids.
    """
    center = float(np.average(counts.logit, weights=counts.impressions))
    columns = (counts.impressions, counts.impressions * counts.logit)
    ids, size = counts.field_value_id, len(tree.parent)
    n, x = (np.bincount(ids, column, size) for column in columns)
    for level in range(tree.depth + 1):  # from near to far
        below = np.flatnonzero(tree.level == level)
        for sums in (n, x):
            np.add.at(sums, tree.parent[below], sums[below])
    usual = np.where(n > 0, x / np.where(n > 0, n, 1.0), center)
    usual[0] = center
    return usual[tree.serving((n > 0) | (tree.level > tree.depth))], center
