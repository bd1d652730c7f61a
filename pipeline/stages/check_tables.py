"""check_tables: bins and cells against log and champion → a report, or the stage fails."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from pipeline.calibration.statistics.counting import largest_ties
from pipeline.calibration.statistics.grid import bins_of_days
from pipeline.core.columns import joined
from pipeline.core.errors import ArtifactError, CheckFailedError
from pipeline.core.files import (
    manifest_sums,
    publish,
    read_json,
    refuse_others,
    sha256_of,
    write_report,
)
from pipeline.encoding.values import PAIR, SEPARATOR
from pipeline.engine.day_map import map_days
from pipeline.engine.reuse import Made, Reuse
from pipeline.formats.champion import MODEL, TABLES, pinned
from pipeline.formats.days import day_number
from pipeline.formats.scores import (
    Scores,
    evidence_share,
    read_day,
    read_scores_manifest,
    scaled,
)
from pipeline.formats.tables import (
    BinTable,
    CellTable,
    read_evidence,
    read_field_tables,
    read_tables_manifest,
)
from pipeline.params.sections import CheckTablesParams
from pipeline.quality.memorisation import memorisation
from pipeline.quality.suites import build_data_docs
from pipeline.quality.table_checks import (
    LogSums,
    Names,
    bin_drift,
    check_tables,
    table_drift,
    table_suites,
    uneven_field_values,
)

POOR = 0.25  # population stability index at which credit scoring speaks of another population


def run(scores: Path, tables: Path, pin: Path, report: Path, *, params: CheckTablesParams) -> None:
    """Write the report of a check that passed, with what the gate has to judge.

    A breach of structure fails the stage. Drift of the newest days, from the days that bins were
    cut on and from the champion's newest days, and how well the base model knows its training rows,
    are facts for the gate.

    Raises:
        CheckFailedError: a breach, named by field value, K and bin; no report is written.
        ArtifactError: scores or tables are missing or damaged, the tables are of other scores, or
            the champion is not what is pinned.
    """
    refuse_others(tables, {"scores": scores})
    kept = Reuse(report, "checks", {})
    bins, cells, log, candidates = _evidence(scores, tables, params, kept)
    checks = check_tables(bins, cells, log, candidates, params.equal_frequency_tolerance)
    breaches = [check.breach for check in checks if check.breach]
    if breaches:
        raise CheckFailedError(
            f"{tables} breaks {len(breaches)} of {len(checks)} checks: {'; '.join(breaches)}; "
            "nothing may be fitted on it, make it again: dvc repro --force tabulate"
        )
    newest = _newest(tables)
    write_report(
        report,
        {
            "passed": True,
            "made_of": manifest_sums({"scores": scores, "tables": tables}),
            "checks": [asdict(check) for check in checks],
            "breaches": [],
            "bounds": _bounds(newest, tables),
            "drift": _drift(newest, log, pin),
            "memorisation": _memorisation(scores, kept),
        },
    )


def _evidence(
    scores: Path, tables: Path, params: CheckTablesParams, kept: Reuse
) -> tuple[BinTable, CellTable, LogSums, list[int]]:
    """Both tables, sums of the log itself, and the candidates that every field value must have."""
    made_of, found = read_tables_manifest(tables), read_field_tables(tables)
    manifest, tolerance = read_scores_manifest(scores), params.equal_frequency_tolerance

    def ties() -> Made:
        uneven = uneven_field_values(found.bins, tolerance)
        days = (read_day(scores, manifest, day) for day in made_of["days"])
        suspects = [rows.take(np.isin(rows.field_value_id, uneven)) for rows in days]
        return Made.of_columns({}, pa.table({"tie": largest_ties(joined(suspects), found.bins)}))

    of = {day: manifest["days"][day]["sha256"] for day in made_of["days"]}
    key = {"ties": of, "bins": sha256_of(tables / "bins.parquet"), "tolerance": tolerance}
    largest_tie = kept.made(key, ties).columns["tie"].to_numpy()
    log = _sums_of_log(scores, made_of, largest_tie, kept)
    return found.bins, found.cells, log, made_of["candidates"]


def build_docs(scores: Path, tables: Path, folder: Path, params: CheckTablesParams) -> Path:
    """The index of great-expectations' pages on the tables, built again in a folder.

    Raises:
        ArtifactError: scores or tables are missing or damaged.
    """
    evidence = _evidence(scores, tables, params, Reuse(folder, "checks", {}))
    expected = table_suites(*evidence, params.equal_frequency_tolerance)
    with publish(folder) as temporary:
        build_data_docs(expected, temporary)
    return folder / "index.html"


def _newest(tables: Path) -> BinTable:
    """The bins counted on as many of the newest days as they were cut on."""
    made_of = read_tables_manifest(tables)
    later = made_of.get("later_days", [])  # versions of before counted none
    days = sorted([*made_of["days"], *later])[-len(made_of["days"]) :]
    return bins_of_days(read_evidence(tables), np.array([day_number(day) for day in days]))


def _bounds(newest: BinTable, tables: Path) -> dict[str, Any]:
    """Whether the bounds still divide the newest days; `warning` where they do not."""
    days = read_tables_manifest(tables)["days"]
    found = bin_drift(read_evidence(tables).bins, newest)
    warning = None
    if found["shape_beyond_noise"] > POOR:
        warning = (
            f"bins that were cut on {days[0]} to {days[-1]} hold the newest days unevenly: their "
            f"shares have moved by {found['shape']:.2f} (population stability index, chance "
            f"{found['shape_noise']:.2g}, more than {POOR} is another population); they are cut "
            "again with the next base model, at once by refresh --retrain"
        )
    return {"first_day": days[0], "last_day": days[-1], **found, "warning": warning}


def _drift(newest: BinTable, log: LogSums, pin: Path) -> dict[str, Any] | None:
    """Against the champion's newest days; None without a champion, `why` where it has none to read.

    Raises:
        ArtifactError: the champion is not what is pinned.
    """
    champion = pinned(pin)
    if champion is None:
        return None
    model = read_json(pin.parent / MODEL / "manifest.json")
    try:
        then = _newest(pin.parent / TABLES)
    except ArtifactError as error:
        return {"version": champion.version, "why": str(error).partition(";")[0]}
    field, ours = model["base"]["field"], log.field_values
    theirs, width = field["values"], len(field["columns"])
    names = _as_known(ours, theirs, width), then, _as_known(theirs, ours, width)
    return {"version": champion.version, **table_drift(newest, *names)}


def _as_known(names: Names, others: Names, width: int) -> Names:
    """The names of ids; of pairs that the others do not know their field value's alone, which may
    have got a second parent, or lost it, since.
    """
    known = {*others}
    return [
        name if name in known or not name or not name.startswith(PAIR)
        else SEPARATOR.join(name.removeprefix(PAIR).split(SEPARATOR)[:width])
        for name in names
    ]  # fmt: skip


def _memorisation(scores: Path, kept: Reuse) -> dict[str, Any]:
    """Of the binning days, so it is looked at once for each base model."""
    manifest = read_scores_manifest(scores)
    training, fresh = manifest["parts"].get("training", []), manifest["binning_days"]
    of = [{day: manifest["days"][day]["sha256"] for day in days} for days in (training, fresh)]

    def rows_of(days: list[str]) -> Iterator[Scores]:
        share = evidence_share(manifest["days"][day] for day in days)
        return (scaled(read_day(scores, manifest, day), share) for day in days)

    def make() -> Made:
        return Made(memorisation(joined(list(rows_of(fresh))), rows_of(training)))

    return kept.made({"memorisation": of}, make).facts


def _sums_of_log(scores: Path, made_of: dict[str, Any], ties: np.ndarray, kept: Reuse) -> LogSums:
    """Sums of the log itself, not made by the kernel that is checked."""
    manifest = read_scores_manifest(scores)
    n, names = len(manifest["field"]["values"]), ["impressions", "responses"]

    def summed(day: str) -> Made:
        def make() -> Made:
            rows = read_day(scores, manifest, day)
            sums = {name: np.bincount(rows.field_value_id, getattr(rows, name)) for name in names}
            return Made.of_columns({}, pa.table(sums))

        return kept.made({"scores": manifest["days"][day]["sha256"]}, make)

    totals, by_day = np.zeros((2, n)), {}
    for day, made in map_days(summed, [*made_of["days"], *made_of["later_days"]], "add up"):
        columns = [column.to_numpy() for column in made.columns.columns]
        if columns[0].any():
            by_day[day_number(day)] = [column.sum() for column in columns]
        if day in made_of["days"]:
            totals[:, : len(columns[0])] += columns
    frame = pd.DataFrame.from_dict(by_day, orient="index", columns=names)
    whole = np.int64 if (totals == np.trunc(totals)).all() else np.float64
    impressions, responses = totals.astype(whole)
    until = day_number(max(made_of["days"]))
    return LogSums(manifest["field"]["values"], impressions, responses, ties, until, frame)
