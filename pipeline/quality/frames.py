"""What the checks look at: the tables, and sums of each field value beside the log's own."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import pandas as pd

from pipeline.formats.tables import BinTable, CellTable

GROUP = ["field_value_id", "requested_bins"]


@dataclass(frozen=True)
class LogSums:
    """What the log itself says, against which its tables are checked.

    Attributes:
        field_values: text of each field value id, None for the first.
        impressions: int64 [n_field_values], of each field value id.
        responses: int64 [n_field_values].
        largest_tie: int64 [rows of the bin table], the most impressions at one logit in each bin.
    """

    field_values: Sequence[str | None]
    impressions: np.ndarray
    responses: np.ndarray
    largest_tie: np.ndarray


def table_frame(table: BinTable | CellTable) -> pd.DataFrame:
    """The columns of a table."""
    return pd.DataFrame({f.name: getattr(table, f.name) for f in fields(table)})


def group_frame(
    bins: BinTable, cells: CellTable, log: LogSums, candidates: list[int]
) -> pd.DataFrame:
    """One row per (field value, candidate) that the log or the bin table has.

    Columns `log_impressions` and `log_responses` are the log's sums of the field value, 0 where the
    log has none or the number of bins is no candidate; `rows`, `impressions` and `responses` are
    those of its bins, 0 where it has none, `cell_impressions` and `cell_responses` those of its
    cells; `effective_bins` is what the first of its bins says.
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
    of_bins = (
        table_frame(bins)
        .groupby(GROUP, dropna=False)
        .agg(
            rows=("bin_id", "size"),
            effective_bins=("effective_bins", "first"),
            impressions=("impressions", "sum"),
            responses=("responses", "sum"),
        )
    )
    of_cells = table_frame(cells).groupby("field_value_id")[["impressions", "responses"]].sum()
    groups = expected.merge(of_bins.reset_index(), on=GROUP, how="outer")
    groups = groups.merge(
        of_cells.add_prefix("cell_").reset_index(), on="field_value_id", how="left"
    )
    return groups.fillna(0).convert_dtypes()
