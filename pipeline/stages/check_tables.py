"""check_tables: bins and cells against the log they were made of → a report, or the stage fails."""

from dataclasses import asdict
from pathlib import Path

import numpy as np

from pipeline.calibration.bins import largest_ties
from pipeline.data.score_files import read_scores, read_scores_manifest
from pipeline.data.table_files import read_bins, read_cells, read_tables_manifest
from pipeline.errors import CheckFailedError
from pipeline.files import write_json
from pipeline.params import CheckTablesParams
from pipeline.quality.checks import check_tables, uneven_field_values
from pipeline.quality.frames import LogSums
from pipeline.scores import Scores


def run(scores: Path, tables: Path, report: Path, *, params: CheckTablesParams) -> None:
    """Write the report of a check that passed.

    Raises:
        CheckFailedError: a breach, named by field value, K and bin; no report is written.
        ArtifactError: scores or tables are missing or damaged.
    """
    manifest = read_tables_manifest(tables)
    rows = read_scores(scores, *manifest["parts"])
    bins, cells = read_bins(tables), read_cells(tables)
    tolerance = params.equal_frequency_tolerance
    uneven = np.isin(rows.field_value_id, uneven_field_values(bins, tolerance))
    log = LogSums(
        field_values=read_scores_manifest(scores)["field_values"],
        impressions=_per_field_value(rows, rows.impressions),
        responses=_per_field_value(rows, rows.responses),
        largest_tie=largest_ties(rows.take(uneven), bins),
    )
    checks = check_tables(bins, cells, log, manifest["candidates"], tolerance)
    breaches = [check.breach for check in checks if check.breach]
    if breaches:
        raise CheckFailedError(
            f"{tables} breaks {len(breaches)} of {len(checks)} checks: {'; '.join(breaches)}; "
            "nothing may be fitted on it, make it again: dvc repro --force tabulate"
        )
    write_json(
        report, {"passed": True, "checks": [asdict(check) for check in checks], "breaches": []}
    )


def _per_field_value(rows: Scores, counts: np.ndarray) -> np.ndarray:
    """int64 [n_field_values]: sums of the log itself, not made by the kernel that is checked."""
    return np.bincount(rows.field_value_id, counts, rows.n_field_values).astype(np.int64)
