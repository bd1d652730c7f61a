"""What must be true of the field statistics: of bins, of cells, and of both beside the log."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pipeline.formats.tables import BinTable, CellTable
from pipeline.quality.suites import RULES, CheckResult, Suite, run_suites, with_not_finite

GROUP = ["field_value_id", "requested_bins"]


@dataclass(frozen=True)
class LogSums:
    """What the log itself says, against which its tables are checked.

    Attributes:
        field_values: text of each field value id, None for the first.
        impressions: int64 [n_field_values], of each field value id on the binning days.
        responses: int64 [n_field_values].
        largest_tie: int64 [rows of the bin table], the most impressions at one logit in each bin.
        cut_until: the last binning day, days since 1970-01-01.
        by_day: `impressions` and `responses` of each day with rows, binning days and later ones.
    """

    field_values: Sequence[str | None]
    impressions: np.ndarray
    responses: np.ndarray
    largest_tie: np.ndarray
    cut_until: int
    by_day: pd.DataFrame


def table_frame(table: BinTable | CellTable) -> pd.DataFrame:
    """The columns of a table, and which of its numbers is not finite."""
    return with_not_finite(pd.DataFrame(table.columns()))


def bin_frame(table: BinTable, largest_tie: np.ndarray, tolerance: float) -> pd.DataFrame:
    """The bin table with what its rules compare: a row's place, its neighbours, its errors."""
    frame = table_frame(table)
    groups = frame.groupby(GROUP, sort=False, dropna=False)
    number, bins = groups.cumcount(), groups["bin_id"].transform("size")
    order = np.lexsort((frame["bin_id"], frame["requested_bins"], frame["field_value_id"]))
    lower, upper = frame["lower_bound"], frame["upper_bound"]
    impressions = frame["impressions"].astype("f8")
    mean = frame["logit_sum"] / impressions
    outside = np.maximum(lower - mean, mean - upper) / (1 + np.maximum(lower.abs(), upper.abs()))
    return frame.assign(
        row=np.arange(len(frame)),
        sorted_row=np.argsort(order, kind="stable"),
        number=number,
        bins=bins,
        increases=(lower < upper) | ((lower == upper) & (bins == 1)),
        bound_before=groups["upper_bound"].shift().where(number > 0, lower),
        posterior_error=(frame["posterior"] - frame["responses"] / impressions).abs(),
        mean_outside=outside,
        even=_evenly_shared(table, largest_tie, tolerance),
    )


def _evenly_shared(table: BinTable, largest_tie: np.ndarray, tolerance: float) -> np.ndarray:
    """A cut moves to an end of the tie it falls into, so no farther than ties near it are large.

    Two impressions are always granted: one for the rounding of ranks, one for a greatest logit that
    joined the bin before because no bound lies between.
    """
    key = [table.field_value_id, table.requested_bins]
    frame = pd.DataFrame({"n": table.impressions, "tie": largest_tie})
    groups = frame.groupby(key, dropna=False)
    even = groups["n"].transform("sum").to_numpy("f8") / table.requested_bins
    before, after = (groups["tie"].shift(by, fill_value=0).to_numpy() for by in (1, -1))
    moved = 2 * np.maximum(largest_tie, np.maximum(before, after))
    moved = np.where(moved > 2, moved, 0)  # one impression at a logit is no tie
    return np.abs(table.impressions - even) <= tolerance * even + 2 + moved


def uneven_field_values(bins: BinTable, tolerance: float) -> np.ndarray:
    """Ids of field values whose bins are so uneven that only ties could explain it, ascending.

    Args:
        bins: the bin table.
        tolerance: a bin may hold this share more or less than its even part.
    """
    even = _evenly_shared(bins, np.zeros(len(bins), np.int64), tolerance)
    return np.unique(bins.field_value_id[~even])


def group_frame(
    bins: BinTable, cells: CellTable, log: LogSums, candidates: list[int]
) -> pd.DataFrame:
    """One row per (field value, candidate) that the log or the bin table has.

    Columns `log_…` are the log's sums of the field value, 0 where the log has none or the number of
    bins is no candidate; `bins` and `bin_…` are those of its bins, 0 where it has none, `cell_…`
    those of its cells; `effective_bins` is what the first of its bins says.
    """
    ids = np.flatnonzero(log.impressions)
    expected = pd.DataFrame(
        {
            "field_value_id": np.repeat(ids, len(candidates)),
            "requested_bins": np.tile(np.array(candidates, dtype=np.int64), len(ids)),
            "log_impressions": np.repeat(log.impressions[ids], len(candidates)),
            "log_responses": np.repeat(log.responses[ids], len(candidates)),
        }
    )
    of_bins = table_frame(bins).groupby(GROUP, dropna=False, as_index=False)
    of_cells = table_frame(cells).groupby("field_value_id")[["impressions", "responses"]].sum()
    groups = expected.merge(
        of_bins.agg(
            bins=("bin_id", "size"),
            effective_bins=("effective_bins", "first"),
            bin_impressions=("impressions", "sum"),
            bin_responses=("responses", "sum"),
        ),
        on=GROUP,
        how="outer",
    ).merge(of_cells.add_prefix("cell_").reset_index(), on="field_value_id", how="left")
    return groups.fillna(0).convert_dtypes()


def table_suites(
    bins: BinTable, cells: CellTable, log: LogSums, candidates: list[int], tolerance: float
) -> list[Suite]:
    """All that is expected of the field statistics; arguments as in `check_tables`."""
    groups = group_frame(bins, cells.take(cells.day <= log.cut_until), log, candidates)
    effective = {
        "expect": "TableRowCountToEqual",
        "name": None,
        "sentence": "there are as many bins as effective bins over the expected field values",
        "value": int(groups["effective_bins"].sum()),
    }
    cell_frame = table_frame(cells)
    mean = cell_frame["probability_sum"] / cell_frame["impressions"]
    sums = cell_frame.groupby("day")[["impressions", "responses"]].sum().add_prefix("cell_")
    days = sums.join(log.by_day.add_prefix("log_"), how="outer").fillna(0).rename_axis("day")
    return [
        Suite("bins", bin_frame(bins, log.largest_tie, tolerance), [effective, *RULES["bins"]]),
        Suite("cells", cell_frame.assign(mean_probability=mean), RULES["cells"]),
        Suite("field values", groups, RULES["field values"]),
        Suite("days", days.reset_index(), RULES["days of cells"]),
    ]


def check_tables(
    bins: BinTable, cells: CellTable, log: LogSums, candidates: list[int], tolerance: float
) -> list[CheckResult]:
    """Every check of the field statistics; no rows, missing values, NaN and infinities all fail.

    Args:
        bins: the bin table.
        cells: the cells of the grid, of binning days and later ones.
        log: sums of the log itself.
        candidates: the numbers of bins that every field value with impressions must have.
        tolerance: a bin may hold this share more or less than its even part, ties excepted.
    """
    return run_suites(table_suites(bins, cells, log, candidates, tolerance), log.field_values)
