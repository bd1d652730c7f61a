"""What calibrators are compared on: calibration rows to fit on, test rows to be judged on."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit

from pipeline.calibration.paper.paper_rows import RowFeatures
from pipeline.core.errors import DataError
from pipeline.formats.scores import Scores

COLUMNS = {
    **dict.fromkeys(("window", "split", "date", "id"), str),
    **{"seed": int, "impressions": int, "clicks": int, "uncalibrated_logit": np.float32},
}
UNSEEN = "\x00"  # names what the field vocabulary lacks
SLOTS = 6
TANH_RATE = 1.5  # per unit of logit
SIMULATED_DAYS = 10  # of calibration, and as many of test


@dataclass(frozen=True)
class Case:
    """One window and seed.

    Attributes:
        window: "first day train/calibration/test", or what was simulated.
        seed: of the base model or of the simulation.
        calibration: the rows that calibrators see.
        calibration_features: the base model's features of these rows; None where not known.
        test: the rows that they are judged on.
        test_features: the features of those.
        true_probability: float64 of each test row, None where it is not known.
        field_values: by id; None where equal ids are the same field value in all cases.
        test_values: the test rows with a field value id for those values, too, that calibrators do
            not know; None where they know all.
    """

    window: str
    seed: int
    calibration: Scores
    calibration_features: RowFeatures | None
    test: Scores
    test_features: RowFeatures | None
    true_probability: np.ndarray | None = None
    field_values: pd.Index | None = None
    test_values: Scores | None = None


def _scores(rows: pd.DataFrame, field_values: pd.Index) -> Scores:
    """Rows with the ids of their field values; values that are not among those have the id 0."""
    days = rows["date"].to_numpy().astype("datetime64[D]").astype(np.int32)
    ids = (field_values.get_indexer(pd.Index(rows["id"])) + 1).astype(np.int32)
    logit = rows["uncalibrated_logit"].to_numpy(np.float32)
    counts = (rows["impressions"].to_numpy(np.int64), rows["clicks"].to_numpy(np.int64))
    return Scores(logit, ids, *counts, days, len(field_values) + 1)


def frozen_cases(
    path: Path, windows: Collection[str] | None, seeds: Collection[int] | None
) -> Iterator[Case]:
    """The cases of a file of frozen base scores, in the order of windows and seeds.

    Its columns are window, seed, split (train, calibration, test), date, id, impressions, clicks
    and uncalibrated_logit. Field values are those of training and calibration rows.

    Args:
        path: a Parquet file.
        windows: which windows; None is all.
        seeds: which seeds; None is all.

    Raises:
        DataError: there is no such file, a column is missing, or a window or seed is not in it.
    """
    if not path.is_file():
        raise DataError(f"{path} does not exist; name a Parquet file of frozen base scores")
    frame = pd.read_parquet(path)
    if missing := sorted(set(COLUMNS) - set(frame.columns)):
        raise DataError(f"{path} lacks the columns {missing}; it needs {list(COLUMNS)}")
    frame = frame[list(COLUMNS)].astype(COLUMNS)
    for name, wanted in (("window", windows), ("seed", seeds)):
        found = frame[name].unique().tolist()
        for one in wanted or ():
            if one not in found:
                raise DataError(f"{path} has no {name} {one!r}; it has {sorted(found)}")
    for window in sorted(frame["window"].unique() if windows is None else windows):
        rows = frame[frame["window"] == window]
        for seed in sorted(rows["seed"].unique() if seeds is None else seeds):
            yield _frozen_case(window, int(seed), rows[rows["seed"] == seed])


def _frozen_case(window: str, seed: int, rows: pd.DataFrame) -> Case:
    known = rows["id"][rows["split"] != "test"]
    field_values = pd.Index(np.sort(known.unique()))
    of_part = dict(iter(rows.groupby("split")))
    calibration, test = (_scores(of_part[part], field_values) for part in ("calibration", "test"))
    every = field_values.append(pd.Index(of_part["test"]["id"].unique()).difference(field_values))
    return Case(
        window, seed, calibration, None, test, None,
        field_values=field_values.insert(0, UNSEEN), test_values=_scores(of_part["test"], every),
    )  # fmt: skip


@dataclass(frozen=True)
class _TrueLogits:
    """True logit = s + shift + (slope - 1)(s - centre) + height · tanh(r (s - centre))."""

    share: np.ndarray
    centre: np.ndarray
    shift: np.ndarray
    slope: np.ndarray
    height: np.ndarray

    @classmethod
    def draw(cls, rng: np.random.Generator, n_values: int) -> "_TrueLogits":
        share = 1 / np.arange(3, n_values + 3)
        steep = rng.random(n_values) < 0.5
        slope = np.where(steep, rng.uniform(0.2, 0.6, n_values), rng.uniform(1.6, 2.2, n_values))
        flattest = rng.uniform(0.1, 0.4, n_values)  # slope at the centre of a flat value
        height = np.where(steep, rng.uniform(1.0, 2.5, n_values), (flattest - slope) / TANH_RATE)
        centre, shift = rng.normal(-2.8, 0.5, n_values), rng.normal(0, 0.4, n_values)
        return cls(share / share.sum(), centre, shift, slope, height)

    def rows(self, rng: np.random.Generator, n_rows: int) -> tuple[np.ndarray, ...]:
        """Field value ids from 1 on, logits, true logits, each [n_rows]."""
        z = rng.choice(len(self.share), n_rows, p=self.share)
        logit = (self.centre[z] + rng.normal(0, 1, n_rows)).astype(np.float32)
        away = logit - self.centre[z]
        true = logit + self.shift[z] + (self.slope[z] - 1) * away
        return z + 1, logit, true + self.height[z] * np.tanh(TANH_RATE * away)


def simulated_case(
    seed: int, n_rows: int = 1_000_000, n_values: int = 300, slot_spread: float = 0.0
) -> Case:
    """A case whose truth is no line in the logit: each value has its own hyperbolic tangent.

    Args:
        seed: of everything that is drawn.
        n_rows: calibration rows; there are half as many test rows.
        n_values: field values, with Zipf frequencies.
        slot_spread: standard deviation over slots, the one feature, of what they add to the true
            logit unknown to the base model: what only an auxiliary network can learn.
    """
    rng = np.random.default_rng(seed)
    truths = _TrueLogits.draw(rng, n_values)
    slots = np.append(0.0, slot_spread * rng.normal(0, 1, SLOTS))
    calibration, slot, _ = _draw(rng, truths, slots, 0, n_rows)
    test, test_slot, probability = _draw(rng, truths, slots, SIMULATED_DAYS, n_rows // 2)
    name = f"simulated {n_rows} rows {n_values} values"
    return Case(name, seed, calibration, slot, test, test_slot, probability)


def _draw(
    rng: np.random.Generator, truths: _TrueLogits, slots: np.ndarray, first_day: int, n: int
) -> tuple[Scores, RowFeatures, np.ndarray]:
    """n rows of SIMULATED_DAYS days, their feature and their true probabilities."""
    z, logit, true = truths.rows(rng, n)
    slot = rng.integers(1, SLOTS + 1, n)
    probability = expit(true + slots[slot])
    response = (rng.random(n) < probability).astype(np.int32)
    day = (first_day + np.arange(n) * SIMULATED_DAYS // n).astype(np.int32)
    n_field_values = len(truths.share) + 1
    scores = Scores(logit, z.astype(np.int32), np.ones(n, np.int32), response, day, n_field_values)
    features = RowFeatures(
        slot[:, None].astype(np.int32), np.empty((n, 0), np.float32), (SLOTS + 1,)
    )
    return scores, features, probability
