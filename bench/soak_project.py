"""The project of bench.soak: a small log, remotes beside it, and stages of seconds, or its own."""

import gzip
import shutil
from datetime import date, timedelta
from pathlib import Path

import numpy as np

from pipeline.params.params_file import set_values
from pipeline.registry.tools.programs import Finished, git, run_program

ROOT = Path(__file__).parent.parent
FIRST = date(2025, 3, 2)  # the last day that the project begins with, a Sunday
BEFORE = 21  # days before it
ROWS = 1500  # a day
MAPPING = "soak.yaml"
COLUMNS = "{day: text, item: text, price: float64, click: int8}"
PARAMS = {
    "log.format": "soak",
    "log.time_zone": "UTC",
    "log.label": "click",
    "log.field": ["item"],
    "log.categorical": ["item"],
    "log.numeric": ["price"],
    "split.training_days": 6,
    "split.calibration_days": 6,
    "split.test_days": 4,
    "train_base.embedding_size": 2,
    "train_base.hidden_sizes": [8, 8, 8],
    "train_base.epochs": 2,
    "tabulate.candidates": [2, 4],
    "tabulate.grid_cells": 40,
    "calibrate.steps": 20,
    "evaluate.replicates": 50,
    "gate.min_test_responses": 100,  # what is looked for are faults, so every sound day passes
    "gate.max_pcoc_error": 0.9,
    "gate.far_pcoc_error": 0.9,
    "gate.pcoc_margin": 9.0,
    "gate.logloss_margin": 1.0,
    "gate.max_value_pcoc_error": 5.0,
    "gate.max_field_auc_loss": 0.5,
    "gate.max_auc_loss": 0.5,
    "gate.min_logloss_gain": -1.0,
    "gate.champion_tolerance": 1.0,
    "gate.max_mix_drift": 9.0,
    "gate.max_rate_drift": 9.0,
    "gate.max_memorisation": 9.0,
}
DAG = """\
stages:
  validate:
    cmd: python work.py validate reports/validation.json
    deps: [work.py, data]
    params: [log, split, validate]
    metrics: [reports/validation.json: {cache: false}]
  split: # the project's own: weekly training days, days that roll
    cmd: python -m pipeline split data/manifest.json reports/validation.json artifacts/split
    deps: [data/manifest.json, reports/validation.json]
    params: [log, split]
    outs: [artifacts/split]
  train_base:
    cmd: python work.py train_base artifacts/base
    deps: [work.py, artifacts/split/training.json]
    params: [train_base]
    outs: [artifacts/base]
  merge:
    cmd: python work.py merge artifacts/model
    deps: [work.py, data/manifest.json, artifacts/split, artifacts/base]
    params: [merge]
    outs: [artifacts/model]
  evaluate:
    cmd: python work.py evaluate reports/evaluation.json
    deps: [work.py, artifacts/model]
    params: [evaluate]
    metrics: [reports/evaluation.json: {cache: false}]
  gate:
    cmd: python work.py gate reports/gate.json
    deps: [work.py, reports/evaluation.json, artifacts/model]
    params: [gate]
    metrics: [reports/gate.json: {cache: false}]
artifacts:
  model: {path: artifacts/model, type: model}
"""
WORK = '''\
"""A stage: python work.py STAGE OUTPUT. Half of the output is written, then a second passes."""
import json, os, sys, time
from pathlib import Path
from pipeline.core.files import write_checksums
from pipeline.core.files import publish, sha256_of, write_json
from pipeline.params.params_file import read_params
from pipeline.report.result_tables import METRICS

stage, output = sys.argv[1], Path(sys.argv[2])
days = json.loads(Path("data/manifest.json").read_text())["days"]
last_day, first_day = read_params().split.last_day, min(days)
known = {day: entry["content_sha256"] for day, entry in days.items() if day <= last_day}
if stage == "validate":
    covers = {"first_day": first_day, "last_day": max(days), "missing_days": []}
    write_json(output, covers | {"days": len(days)})
elif stage in ("train_base", "merge"):
    split = Path("artifacts/split/training.json").read_text()
    if stage == "merge":
        split = Path("artifacts/base/manifest.json").read_text() + json.dumps(known, sort_keys=True)
    with publish(output) as folder:
        folder.mkdir()
        (folder / "weights.txt").write_text("half")
        time.sleep(float(os.environ.get("SOAK_SECONDS", "0")))
        (folder / "weights.txt").write_text(split * 100)
        write_checksums(folder, {"last_day": last_day} if stage == "merge" else {})
elif stage == "evaluate":
    metrics = {key: None for _, key, _ in METRICS} | {"logloss": 0.25}
    write_json(output, {"last_day": last_day, "methods": {"model": metrics}})
else:
    model = sha256_of(Path("artifacts/model/manifest.json"))
    check = {"name": "soak", "value": 1, "limit": 0, "passed": True, "sentence": "it is a soak"}
    write_json(output, {"passed": True, "verdict": "pass", "reasons": [], "checks": [check],
                        "last_day": last_day, "model_sha256": model})
'''

COPIED = ("params.yaml", "pins.yaml", "prefect.yaml", ".gitignore", ".dvcignore")


def day_of(number: int) -> str:
    """The day of a number, 0 the last one that the project begins with."""
    return (FIRST + timedelta(days=number)).isoformat()


def deliver(inbox: Path, day: str, whole: bool = True) -> None:
    """The file of a day arrives; or the first half of it."""
    number = date.fromisoformat(day).toordinal()
    random = np.random.default_rng(number)
    item, price = random.integers(0, 4, ROWS), random.lognormal(1, 1, ROWS).round(3)
    steps = np.array([0.6, -0.5, 0.0, 0.3]) * np.sin(number / 5 + np.arange(4))
    click = random.random(ROWS) < 1 / (1 + np.exp(1.5 + 0.4 * item + steps[item] - np.log(price)))
    rows = zip(item, price, click.astype(int), strict=True)
    lines = ["day,item,price,click", *(f"{day},i{i},{p},{c}" for i, p, c in rows), ""]
    content = gzip.compress("\n".join(lines).encode(), mtime=0)
    (inbox / f"{day}.csv.gz").write_bytes(content if whole else content[: len(content) // 2])


def make_project(folder: Path, inbox: Path, own_stages: bool) -> None:
    """A project with the days before its first one, committed, and a git and a DVC remote.

    Args:
        folder: to make.
        inbox: where days arrive; made, too.
        own_stages: the project's own stages; else some that take seconds.
    """
    inbox.mkdir(parents=True)
    folder.mkdir(parents=True)
    for name in (*COPIED, "dvc.yaml"):
        shutil.copyfile(ROOT / name, folder / name)
    if own_stages:
        kept_out = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "pipeline", folder / "pipeline", ignore=kept_out)
    else:
        (folder / "dvc.yaml").write_text(DAG)
        (folder / "work.py").write_text(WORK)
    time = "date: {column: day, format: '%Y-%m-%d'}"
    (folder / MAPPING).write_text(
        f"format: soak\nkind: csv\ntime_zone: UTC\n{time}\ncolumns: {COLUMNS}\n"
    )
    set_values(folder / "params.yaml", PARAMS | {"split.last_day": day_of(0)})
    remotes(folder)
    days = [day_of(number) for number in range(-BEFORE, 1)]
    for day in days:
        deliver(inbox, day)
    land(folder, inbox, days)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "The project")


def remotes(folder: Path) -> None:
    """Make a folder a clone with a git remote and a DVC remote."""
    git(folder, "init", "--quiet", "-b", "main")
    git(folder, "config", "user.name", "Soak")
    git(folder, "config", "user.email", "soak@example.org")
    git(folder.parent, "init", "--quiet", "--bare", f"{folder}-remote.git")
    git(folder, "remote", "add", "origin", f"{folder}-remote.git")
    called(run_program(["dvc", "init", "--quiet"], folder))
    shutil.copyfile(ROOT / ".dvc/config", folder / ".dvc/config")
    stored = f"{folder}-stored"
    called(run_program(["dvc", "remote", "add", "--quiet", "-d", "kept", stored], folder))


def called(finished: Finished) -> None:
    """Stop where a program failed."""
    if finished.code:
        raise RuntimeError(finished.output)


def land(folder: Path, inbox: Path, days: list[str]) -> None:
    """Land days by hand."""
    files = [str(inbox / f"{day}.csv.gz") for day in days]
    called(run_program(["python", "-m", "pipeline.cli.main", "data", MAPPING, *files], folder))


def undisturbed(folder: Path, inbox: Path, days: list[str], own_stages: bool) -> None:
    """What the pipeline makes of the same days with nothing but `dvc repro`."""
    make_project(folder, inbox, own_stages)
    for day in days:
        deliver(inbox, day)
    land(folder, inbox, days)
    set_values(folder / "params.yaml", {"split.last_day": days[-1]})
    called(run_program(["dvc", "repro", "--quiet"], folder))
