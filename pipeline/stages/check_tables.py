"""check_tables: bins and cells against the log they were made of → a report, or the stage fails."""

from dataclasses import asdict
from pathlib import Path

import numpy as np

from pipeline.calibration.counting import largest_ties
from pipeline.calibration.tables import BinTable
from pipeline.data.score_files import read_day, read_scores_manifest
from pipeline.data.table_files import read_bins, read_cells, read_tables_manifest
from pipeline.errors import CheckFailedError
from pipeline.files import write_json
from pipeline.params import CheckTablesParams
from pipeline.quality.checks import check_tables, uneven_field_values
from pipeline.quality.frames import LogSums
from pipeline.scores import join_scores


def run(scores: Path, tables: Path, report: Path, *, params: CheckTablesParams) -> None:
    """Write the report of a check that passed.

    Raises:
        CheckFailedError: a breach, named by field value, K and bin; no report is written.
        ArtifactError: scores or tables are missing or damaged.
    """
    manifest = read_tables_manifest(tables)
    bins, cells = read_bins(tables), read_cells(tables)
    tolerance = params.equal_frequency_tolerance
    log = _sums_of_log(scores, manifest["days"], bins, uneven_field_values(bins, tolerance))
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


def _sums_of_log(scores: Path, days: list[str], bins: BinTable, uneven: np.ndarray) -> LogSums:
    """Sums of the log itself, not made by the kernel that is checked; ties of uneven values."""
    manifest = read_scores_manifest(scores)
    n = len(manifest["field_values"])
    impressions, responses, suspects = np.zeros(n), np.zeros(n), []
    for day in days:
        rows = read_day(scores, manifest, day)
        impressions += np.bincount(rows.field_value_id, rows.impressions, n)
        responses += np.bincount(rows.field_value_id, rows.responses, n)
        suspects.append(rows.take(np.isin(rows.field_value_id, uneven)))
    ties = largest_ties(join_scores(suspects), bins)
    dtype = bins.impressions.dtype  # sums of whole numbers are whole
    sums = impressions.astype(dtype), responses.astype(dtype)
    return LogSums(manifest["field_values"], *sums, ties)
