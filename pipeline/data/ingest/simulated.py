"""A simulated ad log of any size whose true response probabilities are known.

In the first half of the log the logit of a response is additive in the features, which the base
network learns well:

    s = a + item + slot + device + hour + weekday + 0.8·affinity − 0.3·price + drift_item(day)

where each item drifts slowly up and down and each day has a level of its own. In the middle the
market turns: within two days each field value z (an item) answers the same score along its own
curve, shifted, tilted and bent by a hyperbolic tangent, still rising in s:

    logit = s + w_z(day)·[shift_z + (slope_z − 1)·(s − c_z) + bend_z·tanh(1.5·(s − c_z))]

with w_z(day) from 0 to 1. So a base model trained on the first half ranks well and is wrong in
level and shape on every item; a line in the logit cannot express the bend. Items have Zipf
frequencies.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from pipeline.core.errors import DataError
from pipeline.data.log_store.landing import LogKind
from pipeline.formats.days import day_name, day_number

FIRST_DAY = "2025-01-01"
SLOTS = ("feed", "search", "side", "story")
DEVICES = ("desktop", "phone", "tablet")
CONSTANT = -3.2  # a: about 7 % of impressions are answered
BEND_RATE = 1.5  # per unit of logit
LEAST_SLOPE = 0.1  # of every item's curve, so that ranking survives the turn

SCHEMA = pa.schema(
    {
        "item_id": pa.string(),
        "slot": pa.string(),
        "device": pa.string(),
        "hour": pa.int8(),
        "weekday": pa.int8(),  # 1 = Monday
        "affinity": pa.float32(),
        "price": pa.float32(),
        "true_probability": pa.float64(),
        "click": pa.int8(),
    }
)


@dataclass(frozen=True)
class Simulation:
    """The size and the seed of a log: equal simulations are equal logs.

    Attributes:
        rows: impressions in all, spread evenly over the days.
        days: number of days from 2025-01-01 on.
        field_values: number of items.
        seed: of everything that is drawn.
    """

    rows: int = 400_000
    days: int = 56
    field_values: int = 200
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("rows", "days", "field_values"):
            if getattr(self, name) < 1:
                raise DataError(f"simulated needs {name} >= 1, got {getattr(self, name)}")
        if self.rows < self.days:
            raise DataError(f"simulated needs a row a day, got {self.rows} rows, {self.days} days")

    def kind(self) -> LogKind:
        """What the days of this log have in common."""
        return LogKind("simulated", "UTC", SCHEMA, {"generator": 1, **asdict(self)})

    def tables(self) -> Iterator[tuple[str, pa.Table]]:
        """Every day and its rows, drawn one day at a time."""
        for index in range(self.days):
            yield day_name(day_number(FIRST_DAY) + index), self.day(index)

    def day(self, index: int) -> pa.Table:
        """The rows of the day `index` (from 0); the same whichever days were drawn before."""
        rng = np.random.default_rng([self.seed, 1, index])
        rows = self.rows * (index + 1) // self.days - self.rows * index // self.days
        features = self._features(rng, rows, index)
        logit = self._turned(self._score(features, index), features["item"], index)
        probability = 1 / (1 + np.exp(-logit))
        items = [f"item-{number:06}" for number in range(1, self.field_values + 1)]
        columns = {
            "item_id": pa.array(items).take(pa.array(features["item"])),
            "slot": pa.array(SLOTS).take(pa.array(features["slot"])),
            "device": pa.array(DEVICES).take(pa.array(features["device"])),
            **{name: pa.array(features[name]) for name in ("hour", "weekday", "affinity", "price")},
            "true_probability": pa.array(probability),
            "click": pa.array(rng.random(rows) < probability),
        }
        return pa.table(columns).cast(SCHEMA)

    def _features(self, rng: np.random.Generator, rows: int, index: int) -> dict[str, np.ndarray]:
        item = rng.choice(self.field_values, rows, p=self._world["share"])
        affinity = self._world["taste"][item] + rng.normal(size=rows)
        weekday = (day_number(FIRST_DAY) + index + 3) % 7 + 1  # 1970-01-01 was a Thursday
        return {
            "item": item,
            "slot": rng.choice(len(SLOTS), rows, p=[0.45, 0.25, 0.2, 0.1]),
            "device": rng.choice(len(DEVICES), rows, p=[0.3, 0.6, 0.1]),
            "hour": np.minimum(24 * rng.beta(2.2, 1.4, rows), 23).astype(np.int8),
            "weekday": np.full(rows, weekday, np.int8),
            "affinity": affinity.astype(np.float32),
            "price": rng.gamma(2.0, 0.5, rows).astype(np.float32),
        }

    def _score(self, features: dict[str, np.ndarray], index: int) -> np.ndarray:
        """s, float64 [n]; the constant a is part of `item`."""
        return (
            self._world["item"][features["item"]]
            + np.array([0.2, 0.5, -0.4, 0.0])[features["slot"]]
            + np.array([0.1, 0.0, -0.3])[features["device"]]
            + 0.25 * np.sin(2 * np.pi * (features["hour"] - 15) / 24)
            + np.where(features["weekday"] >= 6, 0.15, 0.0)
            + 0.8 * features["affinity"].astype(np.float64)
            - 0.3 * features["price"].astype(np.float64)
            + self._drift(index)[features["item"]]
        )

    def _drift(self, index: int) -> np.ndarray:
        """How far every item stands from its mean on a day, float64 [V]."""
        world = self._world
        wave = np.sin(2 * np.pi * (index / world["period"] + world["phase"]))
        return world["level"][index] + world["drift"] * wave

    def _turned(self, score: np.ndarray, item: np.ndarray, index: int) -> np.ndarray:
        """The logit of a response at score s, float64 [n]."""
        shift, slope, bend, centre, turn = (
            self._world[name][item] for name in ("shift", "slope", "bend", "centre", "turn")
        )
        weight = 1 / (1 + np.exp(-4 * (index - turn)))
        distance = score - centre
        curve = shift + (slope - 1) * distance + bend * np.tanh(BEND_RATE * distance)
        return score + weight * curve

    @cached_property
    def _world(self) -> dict[str, np.ndarray]:
        """Every item's share and curve, and the level of every day."""
        rng = np.random.default_rng([self.seed, 0])
        n = self.field_values
        share = 1 / (np.arange(n) + 3.0)
        steep = rng.random(n) < 0.5
        bend = np.where(steep, rng.uniform(0.9, 1.8, n), -rng.uniform(0.3, 0.7, n))
        slope = np.where(steep, rng.uniform(0.3, 0.8, n), rng.uniform(1.1, 1.6, n))
        taste = rng.normal(0, 0.4, n)
        item = rng.normal(0, 0.6, n)
        typical = item + 0.8 * taste - 0.3 + CONSTANT
        return {
            "share": share / share.sum(),
            "taste": taste,
            "item": item + CONSTANT,
            "shift": rng.normal(0, 0.4, n),
            "slope": np.maximum(slope, LEAST_SLOPE - BEND_RATE * np.minimum(bend, 0)),
            "bend": bend,
            "centre": typical + rng.normal(0.4, 0.4, n),
            "turn": self.days / 2 - 0.5 + rng.uniform(-0.5, 0.5, n),
            "level": rng.normal(0, 0.04, self.days),
            "drift": rng.uniform(0, 0.2, n),
            "period": rng.uniform(40, 80, n),  # days
            "phase": rng.random(n),
        }
