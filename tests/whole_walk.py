"""The whole walk in one process: a log of a few days, every stage, and ways to ask the model."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from ruamel.yaml import YAML
from typer.testing import CliRunner

from pipeline.__main__ import run_stage
from pipeline.cli.main import app as commands
from pipeline.cli.workspace import SHIPPED
from pipeline.formats.champion import start_pin
from pipeline.formats.days import day_name, day_number
from pipeline.params.params_file import STAGES, set_values
from pipeline.serving.app import make_app
from pipeline.serving.predictor import load as load_predictor
from tests.tiny_logs import write_log

ROOT = Path(__file__).parent.parent
PATHS = {
    stage: [Path(word) for word in declared["cmd"].split()[4:]]
    for stage, declared in YAML(typ="safe", pure=True)
    .load((ROOT / "dvc.yaml").read_text())["stages"]
    .items()
}
SMALL = {
    "log.format": "tiny",
    "log.time_zone": "UTC",
    "log.label": "click",
    "log.field": ["item"],
    "log.categorical": [],
    "log.numeric": [],
    "split.last_day": None,
    "split.retrain_every_days": 1,
    "split.training_days": 2,
    "split.calibration_days": 4,
    "split.test_days": 2,
    "train_base.embedding_size": 2,
    "train_base.hidden_sizes": [8, 8, 8],
    "train_base.epochs": 2,
    "train_base.learning_rate": 0.02,
    "tabulate.candidates": [2, 4],
    "tabulate.grid_cells": 8,
    "calibrate.steps": 5,
    "evaluate.replicates": 50,
    "gate.min_test_responses": 20,
    "report.field_values": 2,
}
DAYS = [day_name(day_number("2024-03-04") + i) for i in range(8)]


def project(folder: Path, days: dict[str, pa.Table] | None, **values: Any) -> Path:
    """A folder with params.yaml and, where `days` are given, a landed log.

    Args:
        folder: to make.
        days: day → its rows, as any tool may have written them.
        values: section__key → its value.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / SHIPPED, folder / "params.yaml")
    start_pin(folder)
    changed = {name.replace("__", "."): value for name, value in values.items()}
    set_values(folder / "params.yaml", SMALL | changed)
    if days is not None:
        write_log(folder / "data", days)
    return folder


def copy_code(folder: Path) -> Path:
    """A folder that stages and dvc run in: the project's code, without version control."""
    folder.mkdir(parents=True)
    for name in ("pipeline", ".dvc"):
        kept_out = shutil.ignore_patterns("cache", "tmp", "config.local")
        shutil.copytree(ROOT / name, folder / name, ignore=kept_out)
    for name in ("pins.yaml", "dvc.yaml", ".dvcignore"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copy(ROOT / SHIPPED, folder / "params.yaml")
    (folder / ".dvc" / "config.local").write_text("[core]\n    no_scm = true\n")
    return folder


def walk(folder: Path, last: str = "gate") -> Path:
    """The folder of `project` after its stages, up to `last`."""
    for stage in STAGES[: STAGES.index(last) + 1]:
        paths = [folder / path for path in PATHS[stage]]
        run_stage(stage, paths, folder / "params.yaml")
    return folder


def asked(folder: Path, columns: dict[str, list[Any]]) -> tuple[httpx.Response, str]:
    """What the HTTP service answers to columns, and its metrics afterwards."""
    service = make_app(load_predictor(folder / "artifacts/model"))

    async def ask() -> tuple[httpx.Response, str]:
        transport = httpx.ASGITransport(app=service)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            answer = await client.post("/score", json={"columns": columns})
            return answer, (await client.get("/metrics")).text

    return asyncio.run(ask())


def scored(folder: Path, table: pa.Table) -> tuple[dict[str, np.ndarray], str]:
    """What `adacalib score` writes and says of rows."""
    source, target = folder / "asked.parquet", folder / "answered.parquet"
    pq.write_table(table, source)
    words = ["score", str(source), str(target), "--model", str(folder / "artifacts/model")]
    finished = CliRunner().invoke(commands, words)
    if finished.exception is not None and not isinstance(finished.exception, SystemExit):
        raise finished.exception
    answers = pq.read_table(target)
    return {name: answers[name].to_numpy() for name in answers.column_names}, finished.output
