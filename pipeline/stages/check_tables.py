"""check_tables: bins and cells against log and champion → a report, or the stage fails."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.calibration.statistics.counting import largest_ties
from pipeline.core.errors import ArtifactError, CheckFailedError
from pipeline.core.files import publish, read_json, write_json
from pipeline.formats.champion import MODEL, TABLES, pinned
from pipeline.formats.days import day_number
from pipeline.formats.scores import join_scores, read_day, read_scores, read_scores_manifest
from pipeline.formats.tables import BinTable, CellTable, read_bins, read_cells, read_tables_manifest
from pipeline.params.sections import CheckTablesParams
from pipeline.quality.memorisation import memorisation
from pipeline.quality.suites import build_data_docs
from pipeline.quality.table_checks import LogSums, check_tables, table_suites, uneven_field_values
from pipeline.quality.table_drift import table_drift


def run(scores: Path, tables: Path, pin: Path, report: Path, *, params: CheckTablesParams) -> None:
    """Write the report of a check that passed, with what the gate has to judge.

    A breach of structure fails the stage. Drift against the champion's tables, and how well the
    base model knows its training rows, are facts for the gate.

    Raises:
        CheckFailedError: a breach, named by field value, K and bin; no report is written.
        ArtifactError: scores or tables are missing or damaged, or the champion is not what is
            pinned.
    """
    bins, cells, log, candidates = _evidence(scores, tables, params)
    checks = check_tables(bins, cells, log, candidates, params.equal_frequency_tolerance)
    breaches = [check.breach for check in checks if check.breach]
    if breaches:
        raise CheckFailedError(
            f"{tables} breaks {len(breaches)} of {len(checks)} checks: {'; '.join(breaches)}; "
            "nothing may be fitted on it, make it again: dvc repro --force tabulate"
        )
    write_json(
        report,
        {
            "passed": True,
            "checks": [asdict(check) for check in checks],
            "breaches": [],
            "drift": _drift(bins, log, pin),
            "memorisation": _memorisation(scores),
        },
    )


def _evidence(
    scores: Path, tables: Path, params: CheckTablesParams
) -> tuple[BinTable, CellTable, LogSums, list[int]]:
    """Both tables, sums of the log itself, and the candidates that every field value must have."""
    manifest, bins = read_tables_manifest(tables), read_bins(tables)
    uneven = uneven_field_values(bins, params.equal_frequency_tolerance)
    log = _sums_of_log(scores, manifest["days"], bins, uneven)
    cells = read_cells(tables)
    cells = cells.take(cells.day <= day_number(max(manifest["days"])))
    return bins, cells, log, manifest["candidates"]


def build_docs(scores: Path, tables: Path, folder: Path, params: CheckTablesParams) -> Path:
    """The index of great-expectations' pages on the tables, built again in a folder.

    Raises:
        ArtifactError: scores or tables are missing or damaged.
    """
    expected = table_suites(*_evidence(scores, tables, params), params.equal_frequency_tolerance)
    with publish(folder) as temporary:
        build_data_docs(expected, temporary)
    return folder / "index.html"


def _drift(bins: BinTable, log: LogSums, pin: Path) -> dict[str, Any] | None:
    """Against the champion's tables; None without a champion, `why` where there are none to read.

    Raises:
        ArtifactError: the champion is not what is pinned.
    """
    champion = pinned(pin)
    if champion is None:
        return None
    model = read_json(pin.parent / MODEL / "manifest.json")
    try:
        then = read_bins(pin.parent / TABLES)
    except ArtifactError as error:
        return {"version": champion.version, "why": str(error).partition(";")[0]}
    names = model["base"]["field"]["values"]
    return {"version": champion.version, **table_drift(bins, log.field_values, then, names)}


def _memorisation(scores: Path) -> dict[str, Any]:
    manifest = read_scores_manifest(scores)
    training = manifest["parts"].get("training", [])
    days = (read_day(scores, manifest, day) for day in training)
    return memorisation(read_scores(scores, "calibration"), days)


def _sums_of_log(scores: Path, days: list[str], bins: BinTable, uneven: np.ndarray) -> LogSums:
    """Sums of the log itself, not made by the kernel that is checked; ties of uneven values."""
    manifest = read_scores_manifest(scores)
    n = len(manifest["field"]["values"])
    impressions, responses, suspects = np.zeros(n), np.zeros(n), []
    for day in days:
        rows = read_day(scores, manifest, day)
        impressions += np.bincount(rows.field_value_id, rows.impressions, n)
        responses += np.bincount(rows.field_value_id, rows.responses, n)
        suspects.append(rows.take(np.isin(rows.field_value_id, uneven)))
    ties = largest_ties(join_scores(suspects), bins)
    dtype = bins.impressions.dtype  # sums of whole numbers are whole
    sums = impressions.astype(dtype), responses.astype(dtype)
    return LogSums(manifest["field"]["values"], *sums, ties)
