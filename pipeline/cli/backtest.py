"""A back-test with a rolling origin: the pipeline at several last days, in a copy of its own."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from pipeline.cli.workspace import copy_project, share_data
from pipeline.core.errors import AdaCalibError, ParamsError, ToolError
from pipeline.core.files import read_json
from pipeline.data.log_store.manifest import MANIFEST, read_manifest
from pipeline.data.log_store.splits import label_maturity
from pipeline.formats.days import day_name, day_number
from pipeline.metrics.calibration import log_loss_terms
from pipeline.metrics.counts import ResponseCounts
from pipeline.metrics.significance import Resampling, gain_interval
from pipeline.params.reader import read_params, set_values
from pipeline.params.sections import Params
from pipeline.registry.tools.dvc import reproduce

FOLDER = Path("demo/backtest")
REFERENCE = "uncalibrated"
SHOWN = {
    REFERENCE: "base model",
    "eb_platt": "EB-Platt",
    "adacalib": "AdaCalib",
    "model": "what ships",
}
Tell = Callable[[str], None]


def run_backtest(first: str, last: str, step: int, tell: Tell) -> dict[str, Any]:
    """What the pipeline says at each origin, and of all of them together.

    An origin is the newest day that is used (`log.last_day`), so the last test day. Everything else
    is as params.yaml of this folder has it, and labels are those of the log as it is today.

    Args:
        first, last: the first origin, and the day after which none lies.
        step: days from one to the next.
        tell: called with a line for each stage that runs.

    Returns:
        `origins`: of each, its `origin` and either `refused`, a sentence, or rows, responses,
        `logloss` and `gains` by method, verdict and reasons; `pooled`: as `_pooled` says.

    Raises:
        ParamsError: the split is by dates, which a last day does not move.
        DataError: a day is none, its labels are not mature, or there is no log.
        ToolError: git or dvc is missing or fails, or another back-test runs here.
    """
    params = read_params()
    days = _origins(first, last, step, params)
    with _alone():
        copy_project(FOLDER)
        share_data(Path("data"), FOLDER / "data")
        found = [_run(day, f"{day} ({n} of {len(days)})", tell) for n, day in enumerate(days, 1)]
    resampling = Resampling(
        params.evaluate.confidence, params.evaluate.replicates, params.evaluate.seed
    )
    sums = [origin.pop("sums") for origin in found if "sums" in origin]
    return {"origins": found, "pooled": _pooled(sums, resampling) if sums else None}


def _origins(first: str, last: str, step: int, params: Params) -> list[str]:
    if params.split.dates:
        raise ParamsError(
            "params.yaml: the split is by dates, which stay where they are at every origin; give "
            "split.training_days, calibration_days and test_days instead"
        )
    start, end = day_number(first), day_number(last)
    if start > end:
        raise AdaCalibError(f"--from {first} is after --to {last}; exchange them")
    days = [day_name(number) for number in range(start, end + 1, step)]
    landed = read_manifest(Path("data") / MANIFEST)
    if not landed.days:
        raise AdaCalibError("data has no days; bring a log with adacalib data FORMAT")
    mature = label_maturity(landed.days, params.log.maturity_days, params.log.time_zone)
    if days[-1] > mature.newest_mature_day:
        raise AdaCalibError(
            f"the origin {days[-1]} is after {mature.newest_mature_day}, the newest day of the log "
            "whose labels are mature; land more days, or end earlier with --to"
        )
    return days


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the back-test's folder; the system frees it when the process ends, however it ends."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(FOLDER, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise ToolError(
            f"another back-test runs in {FOLDER}; start this one when that has ended"
        ) from None
    finally:
        os.close(descriptor)


def _run(origin: str, place: str, tell: Tell) -> dict[str, Any]:
    """One origin: its row of the table, and the sums behind it under `sums`."""

    def tell_stage(line: str) -> None:
        if line.startswith("Running stage"):
            tell(f"{place}: {line}")

    set_values(FOLDER / "params.yaml", {"log.last_day": origin})
    try:
        reproduce("gate", FOLDER, tell_stage)
    except ToolError:
        raise
    except AdaCalibError as error:
        tell(f"{place}: {error}")
        return {"origin": origin, "refused": str(error)}
    measured, gate = (read_json(FOLDER / f"reports/{name}.json") for name in ("evaluation", "gate"))
    methods, gains = measured["methods"], measured["gains"]
    tell(f"{place}: {gate['verdict']}")
    return {
        "origin": origin,
        **{name: measured[name] for name in ("first_day", "rows", "impressions", "responses")},
        "logloss": {name: method["logloss"] for name, method in methods.items()},
        "gains": {
            name: {end: gain["logloss"][end] for end in ("value", "low", "high")}
            for name, gain in gains.items()
        },
        "verdict": gate["verdict"],
        "reasons": gate["reasons"],
        "sums": _sums(FOLDER / "artifacts/evaluation"),
    }


def _sums(evaluation: Path) -> dict[str, dict[str, np.ndarray]]:
    """Method → the text of field values, as `field_value`, and sums over the test days of each."""
    names = np.array(read_json(evaluation / "manifest.json")["field_values"], dtype=object)
    columns = [field.name for field in fields(ResponseCounts)]
    rows = pq.read_table(evaluation / "counts.parquet").group_by(["method", "field_value_id"])
    table = rows.aggregate([(column, "sum") for column in columns])
    method = np.array(table["method"].to_pylist())
    sums = {column: table[f"{column}_sum"].to_numpy() for column in columns}
    sums["field_value"] = names[table["field_value_id"].to_numpy()]
    return {
        name: {column: values[method == name] for column, values in sums.items()}
        for name in np.unique(method)
    }


def _pooled(
    origins: list[dict[str, dict[str, np.ndarray]]], resampling: Resampling
) -> dict[str, Any]:
    """All origins together, by method: LogLoss per impression, and its gain over the base model.

    The interval is `gain_interval`'s, with origins in the place of days. Test days that several
    origins share count several times.
    """
    values = sorted({str(v) for sums in origins for m in sums.values() for v in m["field_value"]})
    place = {value: number for number, value in enumerate(values)}
    methods = sorted(set.intersection(*(set(sums) for sums in origins)))
    counts = {name: _counts([sums[name] for sums in origins], place) for name in methods}
    base = counts[REFERENCE]
    gains = {
        name: gain_interval(log_loss_terms, own, base, resampling)
        for name, own in counts.items()
        if name != REFERENCE
    }
    ratios = {n: float(log_loss_terms(c.sum(axis=0)).ratio()) for n, c in counts.items()}
    return {
        "origins": len(origins),
        "impressions": int(base.impressions.sum()),
        "responses": int(base.responses.sum()),
        "logloss": ratios,
        "gains": {
            name: {end: asdict(gain)[end] for end in ("value", "low", "high")}
            for name, gain in gains.items()
        },
    }


def _counts(sums: list[dict[str, np.ndarray]], place: dict[str, int]) -> ResponseCounts:
    """Counts of shape [origins, field values]."""
    columns = {}
    for field in fields(ResponseCounts):
        column = np.zeros((len(sums), len(place)), sums[0][field.name].dtype)
        for number, origin in enumerate(sums):
            columns_of = [place[str(value)] for value in origin["field_value"]]
            np.add.at(column[number], columns_of, origin[field.name])
        columns[field.name] = column
    return ResponseCounts(**columns)


def table(found: dict[str, Any]) -> str:
    """The result as text: a row an origin, the pooled row, and what was refused."""
    heads = ["origin", "rows", "responses", *SHOWN.values(), "verdict"]
    rows = [
        _row(origin, origin["origin"]) for origin in found["origins"] if "refused" not in origin
    ]
    if found["pooled"]:
        pooled = found["pooled"] | {"rows": found["pooled"]["impressions"], "verdict": ""}
        rows.append(_row(pooled, "pooled"))
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    lines = [
        "  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in [heads, *rows]
    ]
    refused = [f"{o['origin']}: {o['refused']}" for o in found["origins"] if "refused" in o]
    passed = sum(origin.get("verdict") == "pass" for origin in found["origins"])
    return "\n".join(
        [
            *lines,
            "LogLoss in nats per impression × 10⁴, and its gain over the base model with interval",
            f"{len(found['origins'])} origins: {passed} passed, "
            f"{len(found['origins']) - passed - len(refused)} refused by the gate, "
            f"{len(refused)} could not run",
            *refused,
        ]
    )


def _row(values: dict[str, Any], name: str) -> list[str]:
    cells = [_cell(values, method) for method in SHOWN]
    return [name, f"{values['rows']:,}", f"{values['responses']:,}", *cells, values["verdict"]]


def _cell(values: dict[str, Any], method: str) -> str:
    loss, gain = values["logloss"].get(method), values["gains"].get(method)
    text = "undefined" if loss is None else f"{1e4 * loss:.1f}"
    if gain is None:
        return text
    parts = [gain[end] for end in ("value", "low", "high")]
    if any(part is None or not np.isfinite(part) for part in parts):
        return f"{text} (undefined)"
    value, low, high = (f"{1e4 * part:+.1f}" for part in parts)
    return f"{text} ({value}, {low} to {high})"
