"""tabulate: scores → bins and cells of every field value."""

from datetime import date
from pathlib import Path

import numpy as np

from pipeline.calibration.bins import tabulate
from pipeline.data.score_files import read_scores
from pipeline.data.table_files import write_tables
from pipeline.errors import NotEnoughDataError
from pipeline.params import TabulateParams

PARTS = {
    "calibration": ("calibration",),
    "training_and_calibration": ("training", "calibration"),
}
EPOCH = date(1970, 1, 1).toordinal()


def run(scores: Path, tables: Path, *, params: TabulateParams) -> None:
    """Write the field statistics of the days whose statistics are used.

    Raises:
        NotEnoughDataError: those days have no impressions.
        ArtifactError: the scores are missing or damaged.
    """
    parts = PARTS[params.days]
    rows = read_scores(scores, *parts)
    impressions = int(rows.impressions.sum(dtype=np.int64))
    if not impressions:
        raise NotEnoughDataError(
            f"{scores}: the {' and '.join(parts)} days have no impressions to count"
        )
    bins, cells = tabulate(rows, params.candidates, params.grid_cells)
    manifest = {
        "candidates": params.candidates,
        "grid_cells": params.grid_cells,
        "parts": parts,
        "days": [date.fromordinal(EPOCH + int(day)).isoformat() for day in np.unique(cells.day)],
        "n_field_values": rows.n_field_values,
        "totals": {
            "impressions": impressions,
            "responses": int(rows.responses.sum(dtype=np.int64)),
            "field_values": len(np.unique(bins.field_value_id)),
        },
    }
    write_tables(tables, bins, cells, manifest)
