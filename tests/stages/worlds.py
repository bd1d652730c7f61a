"""A landed log of seven days, its split, and a base model trained on it."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.core.files import read_json, write_json
from pipeline.params.sections import LogParams, TrainBaseParams
from pipeline.stages import train_base
from tests.tiny_logs import tiny_log_params, write_log

TRAINING = [f"2024-03-{day:02}" for day in range(4, 8)]
CALIBRATION = ["2024-03-08", "2024-03-09"]
TEST = ["2024-03-10"]
PARTS = {"training": TRAINING, "calibration": CALIBRATION, "test": TEST}


def busy_day(day: str, rows: int = 60, **columns: Any) -> pa.Table:
    """Clicks that follow the item and the price; columns replaced."""
    random = np.random.default_rng(int(day[-2:]))
    item, price = random.integers(0, 4, rows), random.lognormal(1, 1, rows)
    click = random.random(rows) < 1 / (1 + np.exp(1 + item - np.log(price)))
    values = {
        "item": np.array(["a", "b", "001", "NA"])[item],
        "price": price,
        "shown": np.ones(rows, np.int64),
        "click": click.astype(np.int8),
    }
    return pa.table({**values, **columns})


def log_of(folder: Path, days: dict[str, pa.Table] | None = None, **log: Any) -> LogParams:
    """A log in `folder`/data with some days replaced, and its split; the log section comes back."""
    tables = {day: busy_day(day) for part in PARTS.values() for day in part}
    write_log(folder / "data", tables | (days or {}))
    section = tiny_log_params(**log)
    write_split(folder, PARTS, section.model_dump())
    return section


def write_split(
    folder: Path, parts: dict[str, list[str]], conventions: dict[str, Any], **about: Any
) -> None:
    """`folder`/split, as split itself divides the log in `folder`/data."""
    landed = read_json(folder / "data" / "manifest.json")["days"]
    hashes = {d: landed[d]["content_sha256"] for days in parts.values() for d in days}
    training = {day: hashes[day] for day in parts.get("training", [])}
    document = {"parts": parts, "binning_days": parts["calibration"], "data": hashes} | about
    contract = {"days": training, "conventions": conventions}
    for name, written in (("manifest", document), ("training", contract)):
        write_json(folder / "split" / f"{name}.json", written | {"conventions": conventions})


def train_params(**values: Any) -> TrainBaseParams:
    """A quick training, with values replaced."""
    section = {
        "embedding_size": 4,
        "hidden_sizes": (8, 8, 8),
        "max_vocabulary": 100,
        "epochs": 3,
        "patience": 3,
        "batch_size": 32,
        "learning_rate": 0.01,
        "weight_decay": 0.00001,
        "unseen_share": 0.01,
        "held_out_share": 0.1,
        "seed": 1,
    }
    return TrainBaseParams(**{**section, **values})


def train(folder: Path, log: Any, target: str = "base", **values: Any) -> Path:
    """The base model that train_base publishes for the log of `log_of`."""
    paths = (folder / "data", folder / "split" / "training.json", folder / target)
    train_base.run(*paths, params=train_params(**values), log=log)
    return folder / target
