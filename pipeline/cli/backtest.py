"""A back-test with a rolling origin: the pipeline at several last days, in a copy of its own."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pipeline.cli.console import columns_of
from pipeline.cli.workspace import copy_project, share_data
from pipeline.core.columns import read_parquet
from pipeline.core.errors import AdaCalibError, ToolError
from pipeline.core.files import make_folder, read_json
from pipeline.data.log_store.manifest import MANIFEST, read_manifest
from pipeline.data.log_store.splits import maturity_of
from pipeline.formats.days import day_name, day_number
from pipeline.metrics.calibration import log_loss_terms
from pipeline.metrics.counts import ResponseCounts
from pipeline.metrics.significance import Resampling, gain_interval
from pipeline.params.params_file import read_params, set_values
from pipeline.params.sections import Params
from pipeline.registry.tools.dvc import reproduce
from pipeline.registry.tools.programs import hold
from pipeline.report.page_data import SUMS
from pipeline.report.result_tables import NAMES

FOLDER = Path("demo/backtest")
REFERENCE, ENDS = "uncalibrated", ("value", "low", "high")
SHOWN = {name: NAMES[name] for name in (REFERENCE, "eb_platt", "adacalib", "model")}


def run_backtest(first: str, last: str, step: int, note: Callable[[str], None]) -> dict[str, Any]:
    """What the pipeline says at each origin, and of all of them together.

    An origin is the newest day that is used (`split.last_day`), so the last test day. All else
    is as params.yaml of this folder has it, and labels are those of the log as it is today.

    Args:
        first, last: the first origin, and the day after which none lies.
        step: days from one to the next.
        note: called with a line for each stage that runs.

    Returns:
        Counts are those of the log, before any correction of its sampling.
        `origins`: of each, its `origin` and either `refused`, a sentence, or rows, responses,
        `logloss` and `gains` by method, verdict and reasons; `pooled`: as `pooled` says.

    Raises:
        DataError: a day is none, its labels are not mature, or there is no log.
        ToolError: git or dvc is missing or fails, or another back-test runs here.
    """
    params = read_params()
    days = _origins(first, last, step, params)
    make_folder(FOLDER)
    with hold(FOLDER.with_suffix(".lock"), "adacalib backtest", str(FOLDER)):
        copy_project(FOLDER)
        share_data(Path("data"), FOLDER / "data")
        found = [_run(day, f"{day} ({n} of {len(days)})", note) for n, day in enumerate(days, 1)]
    resampling = Resampling(
        params.evaluate.confidence, params.evaluate.replicates, params.evaluate.seed
    )
    sums = [origin.pop("sums") for origin in found if "sums" in origin]
    ran = [origin for origin in found if "refused" not in origin]
    counted = {n: sum(origin[n] for origin in ran) for n in ("rows", "impressions", "responses")}
    return {"origins": found, "pooled": counted | pooled(sums, resampling) if sums else None}


def _origins(first: str, last: str, step: int, params: Params) -> list[str]:
    start, end = day_number(first), day_number(last)
    if start > end:
        raise AdaCalibError(f"--from {first} is after --to {last}; exchange them")
    days = [day_name(number) for number in range(start, end + 1, step)]
    landed = read_manifest(Path("data") / MANIFEST)
    mature = maturity_of(landed, params.log.maturity_days)
    if days[-1] > mature.newest_mature_day:
        raise AdaCalibError(
            f"the origin {days[-1]} is after {mature.newest_mature_day}, the newest day of the log "
            "whose labels are mature; land more days, or end earlier with --to"
        )
    return days


def _run(origin: str, place: str, note: Callable[[str], None]) -> dict[str, Any]:
    """One origin: its row of the table, and the sums behind it under `sums`."""

    def note_stage(line: str) -> None:
        if line.startswith("Running stage"):
            note(f"{place}: {line}")

    set_values(FOLDER / "params.yaml", {"split.last_day": origin})
    try:
        reproduce("gate", FOLDER, note_stage)
    except ToolError:
        raise
    except AdaCalibError as error:
        note(f"{place}: {error}")
        return {"origin": origin, "refused": str(error)}
    measured, gate = (read_json(FOLDER / f"reports/{name}.json") for name in ("evaluation", "gate"))
    note(f"{place}: {gate['verdict']}")
    return {
        "origin": origin,
        **{name: measured[name] for name in ("first_day", "rows", "impressions", "responses")},
        "logloss": {name: each["logloss"] for name, each in measured["methods"].items()},
        "gains": {name: gain["logloss"] for name, gain in measured["gains"].items()},
        **{name: gate[name] for name in ("verdict", "reasons")},
        "sums": _sums(FOLDER / "artifacts"),
    }


def _sums(artifacts: Path) -> pd.DataFrame:
    """Sums over the test days by method and the text of field values."""
    field = read_json(artifacts / "model/manifest.json")["base"]["field"]
    counts = read_parquet(artifacts / "evaluation/counts.parquet", "evaluate").to_pandas()
    counts["field_value"] = np.array(field["values"], dtype=str)[counts["field_value_id"]]
    return counts.groupby(["method", "field_value"])[SUMS].sum()


def pooled(origins: list[pd.DataFrame], resampling: Resampling) -> dict[str, Any]:
    """All origins together, by method: LogLoss per impression, and its gain over the base model.

    Field values meet by their text, as ids are each origin's own. The interval is
    `gain_interval`'s, with origins in the place of days. Test days that several origins share
    count several times.

    Args:
        origins: of each, sums of ResponseCounts' fields, indexed by method and field value.
        resampling: how the interval is made.
    """
    every = pd.concat(dict(enumerate(origins)), names=["origin"])
    methods = sorted(set.intersection(*({*sums.index.unique("method")} for sums in origins)))
    values = every.index.unique("field_value")
    cells = pd.MultiIndex.from_product([range(len(origins)), values])
    counts = {}
    for name in methods:
        of_method = every.xs(name, level="method").reindex(cells, fill_value=0)
        columns = (of_method[c].to_numpy().reshape(len(origins), -1) for c in SUMS)
        counts[name] = ResponseCounts(*columns)
    gains = {}
    for name in [name for name in methods if name != REFERENCE]:
        gain = gain_interval(log_loss_terms, counts[name], counts[REFERENCE], resampling)
        gains[name] = asdict(gain)
    ratios = {n: float(log_loss_terms(c.sum(axis=0)).ratio()) for n, c in counts.items()}
    return {"origins": len(origins), "logloss": ratios, "gains": gains}


def table(found: dict[str, Any]) -> str:
    """The result as text: a row an origin, the pooled row, and what was refused."""
    ran = [origin for origin in found["origins"] if "refused" not in origin]
    refused = [f"{o['origin']}: {o['refused']}" for o in found["origins"] if "refused" in o]
    pooled = [found["pooled"] | {"origin": "pooled", "verdict": ""}] if found["pooled"] else []
    rows = [
        {
            "origin": each["origin"],
            **{amount: f"{each[amount]:,}" for amount in ("impressions", "responses")},
            **{name: _cell(each, method) for method, name in SHOWN.items()},
            "verdict": each["verdict"],
        }
        for each in [*ran, *pooled]
    ]
    unit = "LogLoss in nats per impression × 10⁴, and its gain over the base model with interval"
    passed = sum(origin["verdict"] == "pass" for origin in ran)
    count = (
        f"{len(found['origins'])} origins: {passed} passed, {len(ran) - passed} refused by the "
        f"gate, {len(refused)} could not run"
    )
    return "\n".join([*([columns_of(rows), unit] if rows else []), count, *refused])


def _cell(values: dict[str, Any], method: str) -> str:
    loss, gain = values["logloss"].get(method), values["gains"].get(method)
    text = "undefined" if loss is None else f"{1e4 * loss:.1f}"
    if gain is None:
        return text
    parts = [gain[end] for end in ENDS]
    if any(part is None or not np.isfinite(part) for part in parts):
        return f"{text} (undefined)"
    value, low, high = (f"{1e4 * part:+.1f}" for part in parts)
    return f"{text} ({value}, {low} to {high})"
