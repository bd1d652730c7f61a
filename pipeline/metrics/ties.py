"""Rows merged into runs of equal (group, logit): what equal-frequency bins read."""

from dataclasses import dataclass

import numpy as np

from pipeline.metrics.sorting import SortedRows


@dataclass(frozen=True)
class LogitRuns:
    """Impressions and responses at every distinct logit of every group, in ascending order.

    Attributes:
        group: int64 [m], ascending.
        logit: float64 [m], ascending within a group.
        impressions: int64 (float64 where rows are weighted) [m].
        responses: same dtype [m].
        n_groups: number of groups; some may have no run.
    """

    group: np.ndarray
    logit: np.ndarray
    impressions: np.ndarray
    responses: np.ndarray
    n_groups: int

    def before(self, column: np.ndarray) -> np.ndarray:
        """For each run, the sum of `column` over the lower logits of its group."""
        below = np.cumsum(column) - column
        first = np.searchsorted(self.group, np.arange(self.n_groups))
        at_start = np.append(below, 0)[first]  # a group without runs reads a value nobody uses
        return below - at_start[self.group]

    def per_group(self, column: np.ndarray) -> np.ndarray:
        """Sums of `column` over each group, [n_groups]; int64 and exact for an integer column."""
        if np.issubdtype(column.dtype, np.floating):
            return np.bincount(self.group, weights=column, minlength=self.n_groups)
        first = np.searchsorted(self.group, np.arange(self.n_groups + 1))
        return np.diff(np.append(0, np.cumsum(column))[first])


def merge_runs(rows: SortedRows) -> LogitRuns:
    """The rows that share group and logit, added up."""
    first = np.ones(len(rows.keys), dtype=bool)
    np.greater(rows.keys[1:] ^ rows.keys[:-1], np.uint64(1), out=first[1:])
    starts = np.flatnonzero(first)
    if rows.impressions is None or rows.responses is None:
        responses = _sums(rows.keys.astype(np.uint8) & np.uint8(1), starts)
        impressions = np.diff(starts, append=len(first))
    else:
        impressions, responses = _sums(rows.impressions, starts), _sums(rows.responses, starts)
    keys = rows.keys[starts]
    return LogitRuns(
        rows.group_of(keys), rows.logit_of(keys), impressions, responses, rows.n_groups
    )


def _sums(column: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Sums of `column` from each start to the next, int64 for integers and float64 for weights."""
    if np.issubdtype(column.dtype, np.floating):
        return np.add.reduceat(column, starts, dtype=np.float64) if len(starts) else column
    running = np.append(0, np.cumsum(column, dtype=np.int64))
    return np.diff(running[starts], append=running[-1])
