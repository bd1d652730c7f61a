"""tabulate: scores → bins and cells of every field value."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.calibration.statistics.counting import with_later_days
from pipeline.calibration.statistics.out_of_core import Pieces, tabulate_pieces
from pipeline.core.errors import AdaCalibError, NotEnoughDataError
from pipeline.formats.days import day_number
from pipeline.formats.scores import later_days, read_day, read_day_columns, read_scores_manifest
from pipeline.formats.tables import write_tables
from pipeline.params.sections import TabulateParams

MEMORY = "ADACALIB_MEMORY_GB"


def run(scores: Path, tables: Path, *, params: TabulateParams) -> None:
    """Write the field statistics: bins of the calibration days, and cells of these and later days.

    Bounds are cut on the calibration days, before the first day that is judged; later days are
    counted within them.

    Raises:
        NotEnoughDataError: the calibration days have no impressions.
        ArtifactError: the scores are missing or damaged.
    """
    manifest = read_scores_manifest(scores)
    days, later = manifest["parts"]["calibration"], later_days(manifest["parts"])
    totals = _totals([manifest["days"][day] for day in days])
    if not totals["impressions"]:
        raise NotEnoughDataError(f"{scores}: the calibration days have no impressions to count")
    pieces = _pieces(scores, manifest, days)
    cut = tabulate_pieces(
        pieces, {*params.candidates, params.grid_cells}, params.grid_cells, _memory()
    )
    of_later = (read_day(scores, manifest, day) for day in later)
    made_until, n = day_number(max(days)), pieces.n_field_values
    found = with_later_days(cut, made_until, of_later, params.candidates, n)
    made_of = {
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
        made_of["in_the_log"] = _totals(of_days)
    write_tables(tables, found.bins, found.cells, made_of)


def _totals(days: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: sum(day[name] for day in days) for name in ("impressions", "responses")}


def _pieces(scores: Path, manifest: dict[str, Any], days: list[str]) -> Pieces:
    """The scored days, read one by one."""

    def survey(piece: int) -> tuple[np.ndarray, np.ndarray]:
        names = ["field_value_id", "impressions"]
        columns = read_day_columns(scores, manifest, days[piece], names)
        return columns["field_value_id"], columns["impressions"]

    return Pieces(
        rows=[manifest["days"][day]["rows"] for day in days],
        survey=survey,
        load=lambda piece: read_day(scores, manifest, days[piece]),
        n_field_values=len(manifest["field_values"]),
        first_day=day_number(min(days)),
        last_day=day_number(max(days)),
    )


def _memory() -> int:
    """Bytes for rows: half of ADACALIB_MEMORY_GB, by default a quarter of the machine's memory.

    A matter of the machine, which changes no table, so it comes from the environment.
    """
    try:
        return int(float(os.environ[MEMORY]) * 1e9 / 2)
    except KeyError:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    except ValueError:
        value = os.environ[MEMORY]
        raise AdaCalibError(f"{MEMORY} must be a number of gigabytes, it is {value!r}") from None
