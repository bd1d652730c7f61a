"""python -m bench.tail [--rows N] [--seeds 1,2,3] [--json OUT]: what hashing does for rare values.

A simulated log whose feature has 50,000 Zipf values, each with an effect of its own; 5 % of the
test rows have values that no day had before. The base model is trained by the recipe of params.yaml
with 2,000 values that have embeddings of their own, and the tail (see `train_base.tail_rows`)
unknown, hashed to some embeddings, or given as many embeddings without a hash. Figures are LogLoss
above the true probability's, in 10⁻³ nats, as differences from the first line. In the second log
rare values answer unlike frequent ones.
"""

import argparse
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import expit

from pipeline.core.progress import WorkProgress
from pipeline.encoding.vocabulary import ValueCounts, Vocabulary
from pipeline.model.examples import Examples
from pipeline.model.network import BaseNetwork
from pipeline.model.scoring import logits_of
from pipeline.model.shards import Shard, write_shard
from pipeline.model.training import Recipe, train
from pipeline.params.reader import read_params

VALUES, NEW, SLOTS = 50_000, 5_000, 10  # of the feature, of test rows alone, of the other feature
OWN = 2_000  # values with an embedding of their own
FORMS = ((OWN, 0), (OWN, 100), (OWN, 1_000), (OWN, 10_000), (OWN + 10_000, 0), (VALUES, 0))
LOGS = {"rare values alike": 0.0, "rare values differ": 0.5}  # effect lost by popularity
NAMES = np.array([f"item-{i:06d}" for i in range(VALUES + NEW)])


@dataclass(frozen=True)
class Rows:
    """Drawn rows: item int64 [n], slot int64 [n], true probability and response [n]."""

    item: np.ndarray
    slot: np.ndarray
    probability: np.ndarray
    response: np.ndarray

    @property
    def texts(self) -> pa.StringArray:
        """The items as a log spells them."""
        return pa.array(NAMES[self.item])


class World:
    """The effects of all values, from which rows are drawn."""

    def __init__(self, seed: int, popularity: float) -> None:
        self._rng = np.random.default_rng([seed, 7])
        ranks = np.arange(1, VALUES + 1.0)
        self._share = (1 / ranks) / (1 / ranks).sum()
        rarity = np.log(ranks) - self._share @ np.log(ranks)
        rarity /= np.sqrt(self._share @ rarity**2)
        self._effect = self._rng.normal(size=VALUES + NEW)
        self._effect[:VALUES] -= popularity * rarity
        self._effect[VALUES:] -= popularity * rarity[OWN:].mean()
        self._of_slot = 0.7 * self._rng.normal(size=SLOTS)

    def draw(self, n: int, new: float) -> Rows:
        """`n` rows, of which the share `new` has values that come nowhere else."""
        item = self._rng.choice(VALUES, n, p=self._share)
        is_new = self._rng.random(n) < new
        item[is_new] = VALUES + self._rng.integers(0, NEW, is_new.sum())
        slot = self._rng.integers(0, SLOTS, n)
        probability = expit(-2.2 + self._effect[item] + self._of_slot[slot])
        return Rows(item, slot, probability, self._rng.random(n) < probability)


def encoded(rows: Rows, known: Vocabulary) -> np.ndarray:
    """The ids of both features, int32 [n, 2]."""
    return np.stack([known.ids(rows.texts), rows.slot + 1], axis=1).astype(np.int32)


def shard_of(folder: Path, rows: Rows, known: Vocabulary) -> Shard:
    """The rows as the trainer reads them."""
    observed = np.stack([np.ones(len(rows.item)), rows.response], axis=1)
    none = np.empty((len(rows.item), 0), np.float32)
    return write_shard(folder, [Examples(encoded(rows, known), none, observed)], 2, [])


def trained(fitting: Rows, held_out: Rows, known: Vocabulary) -> BaseNetwork:
    """The base model on these rows, as the stage trains it."""
    chosen = read_params(Path("params.yaml")).train_base
    network = BaseNetwork(
        [len(known) + 1, SLOTS + 1], 0, chosen.embedding_size, chosen.hidden_sizes
    )
    recipe = Recipe(
        chosen.epochs, chosen.patience, chosen.batch_size, chosen.learning_rate,
        chosen.weight_decay, chosen.unseen_share, chosen.seed,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as name, WorkProgress("train", 1, "rows") as progress:
        sides = (shard_of(Path(name) / s, r, known) for s, r in (("f", fitting), ("h", held_out)))
        train(network, *sides, recipe, folder=Path(name) / "work", progress=progress)
    return network


def excess(network: BaseNetwork, rows: Rows, known: Vocabulary) -> np.ndarray:
    """Expected LogLoss of each row above the truth's, in nats, float64 [n]."""
    none = np.empty((len(rows.item), 0), np.float32)
    logit = logits_of(network, encoded(rows, known), none, 4096).astype(np.float64)
    p = rows.probability
    against = np.log(p / (1 - p))
    return np.logaddexp(0, logit) - p * logit - (np.logaddexp(0, against) - p * against)


def compare(rows: int, seed: int, popularity: float) -> list[dict[str, float]]:
    """Excess of every form on the log of one seed: of all test rows, and of those of new values."""
    world = World(seed, popularity)
    fitting, held_out, test = (
        world.draw(rows, 0.0),
        world.draw(rows // 8, 0.02),
        world.draw(rows // 2, 0.05),
    )
    unseen = ~np.isin(test.item, fitting.item)
    counts, found = ValueCounts(fitting.texts), []
    for own, tail_rows in FORMS:
        known = Vocabulary.of(counts, own, tail_rows)
        above = 1e3 * excess(trained(fitting, held_out, known), test, known)
        found.append({"all": float(above.mean()), "unseen": float(above[unseen].mean())})
    return found


def table(log: str, by_seed: list[list[dict[str, float]]]) -> list[dict[str, Any]]:
    """Print a log's lines and give them as objects."""
    lines = []
    for at, (own, tail_rows) in enumerate(FORMS):
        line: dict[str, Any] = {"what": log, "own": own, "tail_rows": tail_rows}
        for rows in ("all", "unseen"):
            change = [forms[at][rows] - forms[0][rows] for forms in by_seed]
            line[rows] = [mean(change), min(change), max(change)]
        spread = "".join("{:+10.2f} [{:+.2f}, {:+.2f}]".format(*line[r]) for r in ("all", "unseen"))
        print(f"{log:<20}{own:>8,}{tail_rows:>8,}{spread}", flush=True)
        lines.append(line)
    return lines


def main() -> None:
    """Train every form on every log and seed, print the table, write the JSON where asked."""
    parser = argparse.ArgumentParser(prog="bench.tail", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=800_000)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    print(f"{'log':<20}{'own':>8}{'hashed':>8}{'all rows':>12}{'unseen values':>28}")
    lines = []
    for log, popularity in LOGS.items():
        lines += table(log, [compare(arguments.rows, seed, popularity) for seed in seeds])
    if arguments.json:
        arguments.json.write_text(json.dumps(lines, indent=2) + "\n")


if __name__ == "__main__":
    main()
