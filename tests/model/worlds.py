"""A log with known truth for the base model's tests, and trainings of it."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from pipeline.core.work import WorkProgress
from pipeline.model.examples import Examples, Shard, write_shard
from pipeline.model.network import BaseNetwork, initialise
from pipeline.model.training import Recipe, train


def recipe_of(**values: float) -> Recipe:
    """A quick training, with values replaced."""
    section = {
        "epochs": 4,
        "patience": 4,
        "batch_size": 64,
        "learning_rate": 0.01,
        "weight_decay": 1e-5,
        "unseen_share": 0.01,
        "seed": 1,
    }
    return SimpleNamespace(**{**section, **values})


def world(rows: int, seed: int = 1) -> tuple[Examples, np.ndarray]:
    """Rows of two categorical and two numeric features, and the true logit of each."""
    random = np.random.default_rng(seed)
    categorical = np.stack([random.integers(1, size, rows) for size in (4, 9)], axis=1)
    numeric = random.normal(size=(rows, 2))
    truth = -1.0 + 0.8 * (categorical[:, 0] - 2) + 0.3 * (categorical[:, 1] % 3) + numeric[:, 0]
    impressions = random.integers(1, 4, rows)
    responses = random.binomial(impressions, 1 / (1 + np.exp(-truth)))
    observed = np.stack([impressions, responses], axis=1).astype(np.float64)
    return Examples(categorical.astype(np.int32), numeric.astype(np.float32), observed), truth


def untrained() -> BaseNetwork:
    """A network for the world's features."""
    network = BaseNetwork([4, 9], 2, 4, [16, 8, 8])
    initialise(network, 1, 0.3)
    return network


def trained(
    folder: Path,
    fitting: Examples,
    held_out: Examples,
    recipe: Recipe | None = None,
    progress: WorkProgress | None = None,
) -> tuple[BaseNetwork, list]:
    """The network after a training, and its history."""
    network = untrained()
    progress = progress or WorkProgress("train", 1, "rows")
    rows = folder.with_name(f"{folder.name}.rows")
    shards = [shard(rows / name, side) for name, side in (("fit", fitting), ("held", held_out))]
    history = train(network, *shards, recipe or recipe_of(), folder=folder, progress=progress)
    return network, history


def shard(folder: Path, *parts: Examples) -> Shard:
    """The rows of the world on disk."""
    return write_shard(folder, parts, 2, ["price", "age"])


def weights(network: BaseNetwork) -> bytes:
    """All weights of a network."""
    return b"".join(tensor.numpy().tobytes() for tensor in network.state_dict().values())
