"""tabulate: scores → bins and cells of every field value."""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.calibration.statistics.counting import (
    Pieces,
    count_cells,
    fitting_grid,
    tabulate_pieces,
    with_later_days,
)
from pipeline.core.errors import NotEnoughDataError
from pipeline.core.files import manifest_sums, scratch_folder
from pipeline.engine.day_map import map_days, processes
from pipeline.engine.reuse import Made, Reuse, bytes_of
from pipeline.formats.days import day_number
from pipeline.formats.scores import (
    Scores,
    later_days,
    read_day,
    read_day_columns,
    read_ordered,
    read_scores_manifest,
    write_ordered,
)
from pipeline.formats.tables import BinTable, CellTable, Table, as_arrow, of_arrow, write_tables
from pipeline.params.sections import TabulateParams

MEMORY = "ADACALIB_MEMORY_GB"


def run(scores: Path, tables: Path, *, params: TabulateParams) -> None:
    """Write the field statistics: bins of the binning days, and cells of these and later days.

    Bounds are cut on the first calibration days of a base model and stay until it is trained again;
    later days are counted within them, each once.

    Raises:
        NotEnoughDataError: the binning days have no impressions.
        ArtifactError: the scores are missing or damaged.
    """
    manifest = read_scores_manifest(scores)
    days = manifest["binning_days"]
    later = sorted({*manifest["parts"]["calibration"], *later_days(manifest["parts"])} - {*days})
    totals = _totals([manifest["days"][day] for day in days])
    if not totals["impressions"]:
        raise NotEnoughDataError(f"{scores}: the calibration days have no impressions to count")
    bins, cells, counted = _tables(scores, tables, manifest, later, params)
    made_until, n = day_number(max(days)), len(manifest["field"]["values"])
    found = with_later_days((bins, cells), made_until, counted, params.candidates, n)
    about = {
        "made_of": manifest_sums({"scores": scores}),
        "candidates": params.candidates,
        "grid_cells": params.grid_cells,
        "days": days,
        "later_days": later,
        "n_field_values": n,
        "totals": {**totals, "field_values": len(np.unique(found.bins.field_value_id))},
        "params": {"tabulate": params.model_dump(mode="json")},
    }
    if any("in_the_log" in manifest["days"][day] for day in days):
        of_days = [manifest["days"][day].get("in_the_log", manifest["days"][day]) for day in days]
        about["in_the_log"] = _totals(of_days)
    write_tables(tables, found.bins, found.cells, about)


def _tables(
    scores: Path,
    tables: Path,
    manifest: dict[str, Any],
    later: list[str],
    params: TabulateParams,
) -> tuple[BinTable, CellTable, list[CellTable]]:
    """Bins and cells of the binning days, and the cells of each later day that has rows."""
    bounds = {day: manifest["days"][day]["sha256"] for day in manifest["binning_days"]}
    kept = Reuse(tables, "tables", {"params": params.model_dump(mode="json"), "bounds": bounds})

    @cache
    def cut() -> tuple[BinTable, CellTable]:
        wanted, cells = {*params.candidates, params.grid_cells}, params.grid_cells
        with scratch_folder(f".{tables.name}.tmp-", tables.parent) as place:
            pieces = _pieces(scores, manifest, place if processes() else None)
            over = _over if processes() else None
            return tabulate_pieces(pieces, wanted, cells, _memory(), processes(), over=over)

    def made(kind: type[Table], of: str, make: Callable[[], Table]) -> Table:
        key = {"table": kind.__name__, "of": of}
        found = kept.made(key, lambda: Made.of_columns({}, as_arrow(make())))
        return of_arrow(kind, found.columns)

    bins = made(BinTable, "bounds", lambda: cut()[0])
    cells = made(CellTable, "bounds", lambda: cut()[1])
    grid = fitting_grid(bins)

    def counted(day: str) -> CellTable:
        def make() -> CellTable:
            return count_cells(read_day(scores, manifest, day), grid, threads=1)

        return made(CellTable, manifest["days"][day]["sha256"], make)

    filled = [day for day in later if manifest["days"][day]["rows"]]
    return bins, cells, [table for _, table in map_days(counted, filled, "count")]


def _totals(days: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: sum(day[name] for day in days) for name in ("impressions", "responses")}


def _over(work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
    return (made for _, made in map_days(work, items, "tabulate", "parts"))


def _pieces(scores: Path, manifest: dict[str, Any], ordered: Path | None) -> Pieces:
    """The binning days, read one by one; where a folder is given, from files in their order there,
    which those who survey them write."""
    days, n = manifest["binning_days"], len(manifest["field"]["values"])

    def survey(piece: int) -> tuple[np.ndarray, np.ndarray]:
        if ordered:
            rows = read_day(scores, manifest, days[piece])
            write_ordered(ordered / days[piece], rows)
            return rows.field_value_id, rows.impressions
        names = ["field_value_id", "impressions"]
        columns = read_day_columns(scores, days[piece], names)
        return columns["field_value_id"], columns["impressions"]

    def load(piece: int, ids: tuple[int, int]) -> Scores:
        if ordered:
            return read_ordered(ordered / days[piece], ids, n)
        return read_day(scores, manifest, days[piece])

    first, last = (day_number(end(days)) for end in (min, max))
    return Pieces(len(days), survey, load, n, first, last)


def _memory() -> int:
    """Bytes for rows: half of ADACALIB_MEMORY_GB, by default a quarter of the machine's memory; of
    each worker process, where there are such, by default their share of that.

    A matter of the machine, which changes no table, so it comes from the environment.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return bytes_of(MEMORY, machine // 2 // (processes() or 1)) // 2
