"""python -m bench.train [--rows N] [--json OUT]: training against a bare torch loop, torch-rechub.

16 categorical features, batches of 4096, embeddings of 8 and layers of 256, 128 and 64 units, Adam.
Ours is `pipeline.model.training.train` as the stage calls it, from encoded rows on the disk: one
epoch with hidden ids, checksums, a held-out day and a checkpoint. The bare loop has its tensors in
memory and does nothing but step; torch-rechub (pip install torch-rechub) trains by its CTRTrainer
and DataGenerator. All have the same network, rows, optimiser and number of threads, and each run
is a process of its own.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from statistics import median
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from bench import process
from pipeline.core.work import WorkProgress
from pipeline.model.examples import Examples, Shard, write_shard
from pipeline.model.network import BaseNetwork, initialise
from pipeline.model.training import train

FIELDS, BATCH = 16, 4096
RATE = 0.05  # of responses
RECIPE = SimpleNamespace(
    epochs=1,
    patience=1,
    batch_size=BATCH,
    learning_rate=0.002,
    weight_decay=1e-5,
    unseen_share=0.01,
    seed=1,
)
ADAM = {"lr": RECIPE.learning_rate, "weight_decay": RECIPE.weight_decay, "fused": True}


def shard_of(folder: Path, rows: int, values: int) -> Shard:
    """Encoded rows of Zipf values on the disk, the same for the same arguments."""
    rng = np.random.default_rng(1)
    ids = np.minimum(rng.zipf(1.2, (rows, FIELDS)), values - 1).astype(np.int32)
    observed = np.stack([np.ones(rows), rng.random(rows) < RATE], axis=1)
    return write_shard(folder, [Examples(ids, np.empty((rows, 0), "f4"), observed)], FIELDS, [])


def network_of(values: int) -> BaseNetwork:
    """The network of all three."""
    network = BaseNetwork([values] * FIELDS, 0, 8, [256, 128, 64])
    initialise(network, RECIPE.seed, RATE)
    return network


def run_ours(folder: Path, rows: int, values: int) -> float:
    """An epoch from the disk."""
    fitting = shard_of(folder / "fitting", rows, values)
    held_out = shard_of(folder / "held_out", BATCH, values)
    start = perf_counter()
    with WorkProgress("train", rows, "rows") as progress:
        train(
            network_of(values), fitting, held_out, RECIPE, folder=folder / "work", progress=progress
        )
    return perf_counter() - start


def run_bare(folder: Path, rows: int, values: int) -> float:
    """An epoch over tensors in memory."""
    read = shard_of(folder, rows, values).read(0, rows)
    ids, label = torch.tensor(read.categorical), torch.tensor(read.observed[:, 1]).float()
    none, network = torch.empty(BATCH, 0), network_of(values)
    optimizer = torch.optim.Adam(network.parameters(), **ADAM)
    start = perf_counter()
    for place in torch.randperm(rows).split(BATCH):
        logit = network(ids[place], none[: len(place)])
        loss = functional.binary_cross_entropy_with_logits(logit, label[place])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return perf_counter() - start


def run_rechub(folder: Path, rows: int, values: int) -> float:
    """An epoch of torch-rechub's trainer."""
    from torch_rechub.trainers import CTRTrainer
    from torch_rechub.utils.data import DataGenerator

    class Probabilities(torch.nn.Module):
        """The network as torch-rechub calls one: columns by name in, probabilities out."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network_of(values)

        def forward(self, columns: dict[str, torch.Tensor]) -> torch.Tensor:
            ids = torch.stack(list(columns.values()), dim=1)
            return torch.sigmoid(self.network(ids, torch.empty(len(ids), 0)))

    read = shard_of(folder, rows, values).read(0, rows)
    columns = {f"field_{place}": np.array(ids) for place, ids in enumerate(read.categorical.T)}
    few = {name: ids[:1] for name, ids in columns.items()}
    label = np.array(read.observed[:, 1])
    loader, _, _ = DataGenerator(columns, label).generate_dataloader(
        few, label[:1], few, label[:1], batch_size=BATCH
    )
    trainer = CTRTrainer(Probabilities(), optimizer_params=ADAM, n_epoch=1, model_path=str(folder))
    start = perf_counter()
    with redirect_stderr(StringIO()):  # its bar
        trainer.train_one_epoch(loader)
    return perf_counter() - start


RUNS: dict[str, Callable[[Path, int, int], float]] = {
    "ours": run_ours,
    "bare torch loop": run_bare,
    "torch-rechub": run_rechub,
}


def measure(who: str, rows: int, values: int) -> tuple[float, float]:
    """Seconds of an epoch, and the peak memory of its process in MB."""
    command = [sys.executable, "-m", "bench.train", "--run", who]
    command += ["--rows", str(rows), "--values", str(values)]
    finished = process.run(command, {"OMP_WAIT_POLICY": "PASSIVE", "ADACALIB_QUIET": "1"})
    return float(finished.said.splitlines()[-1]), finished.peak_mb


def compare(rows: int, values: int, runs: int) -> list[dict[str, Any]]:
    """Alternate all of them and print a line for each peer."""
    names = [name for name in RUNS if name != "torch-rechub" or find_spec("torch_rechub")]
    if len(names) < len(RUNS):
        print("torch-rechub is not installed; it is left out", file=sys.stderr)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for _ in range(runs):
        for name, measured in times.items():
            measured.append(measure(name, rows, values))
    seconds = {name: median(s for s, _ in measured) for name, measured in times.items()}
    peak, lines = max(mb for _, mb in times["ours"]), []
    for peer in names[1:]:
        found = {
            "what": f"an epoch of {FIELDS} features of {values:,} values, batches of {BATCH}",
            "rows": rows,
            "ours_s": round(seconds["ours"], 3),
            "peer": peer,
            "peer_s": round(seconds[peer], 3),
            "ratio": round(seconds[peer] / seconds["ours"], 3),
            "peak_mb": round(peak, 1),
        }
        lines.append(found)
        print(
            f"{found['what']:<56}{rows:>10,}{rows / seconds['ours']:>13,.0f}  {peer:<16}"
            f"{rows / seconds[peer]:>13,.0f}{found['ratio']:>7.2f}{peak:>9.0f}"
        )
    return lines


def main() -> None:
    """Measure, print a table, and write the JSON where asked."""
    parser = argparse.ArgumentParser(prog="bench.train", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100 * BATCH)
    parser.add_argument("--values", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--run", choices=RUNS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        with tempfile.TemporaryDirectory() as name:
            print(RUNS[arguments.run](Path(name), arguments.rows, arguments.values))
        return
    head = f"{'what':<56}{'rows':>10}{'ours rows/s':>13}  {'peer':<16}{'peer rows/s':>13}"
    print(f"{head}{'ratio':>7}{'peak MB':>9}")
    lines = compare(arguments.rows, arguments.values, arguments.runs)
    if arguments.json:
        arguments.json.write_text(json.dumps(lines, indent=2) + "\n")


if __name__ == "__main__":
    main()
