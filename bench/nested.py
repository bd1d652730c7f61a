"""Field values that belong to parents: what the tree is worth, to new ones and to all.

    python -m bench.nested

A log whose true probabilities are known, of children (campaigns) of parents (advertisers). What is
true differs from what the calibrator assumes: parents differ by Student's t with four degrees of
freedom and move along sine waves, children by a Laplace distribution, new ones are lower for some
days, children end, and a tenth of every day's impressions is on children born that day. Shown is
the excess of LogLoss over that of the true probabilities, with and without the tree, beside an
oracle for new children, which knows their parent's level, how children differ and how low new ones
are; one that knows the tree and all variances, and learns the levels from the days before; and what
that one would need if no parent moved.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.special import expit, log_expit

from pipeline.calibration.roll import roll
from pipeline.calibration.statistics.bins import tabulate
from pipeline.calibration.statistics.counting import count_cells, fitting_grid, with_later_days
from pipeline.formats.rolling import rolled
from pipeline.formats.scores import Scores
from pipeline.formats.tables import NO_MOVES, FieldTree
from pipeline.metrics.summary import measure, pcoc_intervals
from pipeline.params.params_file import read_params

PARENTS, CHILDREN, DAYS, TEST_DAYS = 200, 5_000, 42, 14
NEW = 0.1  # of a day's impressions are on children that are born on it
SPREAD_OF_PARENTS, SPREAD_OF_CHILDREN, LOW = 0.5, 0.3, 0.2
MOVED, PERIODS = 0.2, (20, 60)  # of the parents' sine waves: how far, days
DRAWS = 4_000  # of children, behind what the oracle says of one


@dataclass(frozen=True)
class NestedLog:
    """A log with its truth.

    Attributes:
        scores: one row an impression, day by day; ids of children, then of parents.
        truth: float64 [n], true logits.
        of_new: float64 [n], logit of what the oracle says of a child that is new.
        unknown: float64 [n], least variance of its parent's level for whoever has to learn that.
        if_still: float64 [n], the same if no parent moved.
        born: int64 [V], day of each child.
        tree: what belongs to what.
    """

    scores: Scores
    truth: np.ndarray
    of_new: np.ndarray
    unknown: np.ndarray
    if_still: np.ndarray
    born: np.ndarray
    tree: FieldTree


def nested_log(seed: int, rows_a_day: int) -> NestedLog:
    """The log of a seed."""
    rng = np.random.default_rng(seed)
    first = CHILDREN * 2 // 3
    later = np.sort(rng.integers(1, DAYS, CHILDREN - first))
    born = np.r_[np.zeros(first, np.int64), later]
    ends = born + rng.geometric(1 / 40, CHILDREN) + 1
    size = 1 / (1 + rng.permutation(CHILDREN))
    of_parent = 1 / (np.arange(PARENTS) + 3.0)
    parent = rng.choice(PARENTS, CHILDREN, p=of_parent / of_parent.sum())
    level = SPREAD_OF_PARENTS / np.sqrt(2) * rng.standard_t(4, PARENTS)
    wave = rng.uniform(*PERIODS, PARENTS), rng.random(PARENTS)
    own = rng.laplace(0, SPREAD_OF_CHILDREN / np.sqrt(2), CHILDREN)
    tilt, usual = 0.1 * rng.normal(size=CHILDREN), -2.9 + 0.3 * rng.normal(size=CHILDREN)
    parts = []
    for today in range(DAYS):
        share = np.where((born <= today) & (ends > today), size, 0.0)
        new = (born == today) & (today > 0)
        share[new] *= NEW / (1 - NEW) * share[~new].sum() / max(share[new].sum(), 1e-300)
        child = rng.choice(CHILDREN, rows_a_day, p=share / share.sum())
        away = 0.7 * rng.normal(size=rows_a_day)
        moved = level + MOVED * np.sin(2 * np.pi * (today / wave[0] + wave[1]))
        at = usual[child] + away + moved[parent[child]]
        low = LOW * np.exp(-(today - born) / 3.0)
        truth = at + own[child] - low[child] + tilt[child] * away
        parts.append(
            (np.full(rows_a_day, today), child, usual[child] + away, truth, at - LOW, away)
        )
    day, child, logit, truth, expected, away = map(np.concatenate, zip(*parts, strict=True))
    response = (rng.random(len(day)) < expit(truth)).astype(np.int32)
    n = 1 + CHILDREN + PARENTS
    columns = logit.astype(np.float32), (child + 1).astype(np.int32), np.ones_like(response)
    tree = FieldTree(
        np.r_[0, 1 + CHILDREN + parent, np.zeros(PARENTS, np.int64)],
        np.r_[2, np.zeros(CHILDREN, np.int64), np.ones(PARENTS, np.int64)], NO_MOVES,
    )  # fmt: skip
    return NestedLog(
        Scores(*columns, response, day.astype(np.int32), n), truth, _of_new(expected, away, rng),
        *_unknown(truth, day, child, parent), np.r_[-1, born, np.full(PARENTS, -1)], tree,
    )  # fmt: skip


def _of_new(at: np.ndarray, away: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Logit of the mean probability over children, of logits without what each has of its own."""
    drawn = rng.laplace(0, SPREAD_OF_CHILDREN / np.sqrt(2), DRAWS)
    tilted = drawn + 0.1 * rng.normal(size=DRAWS) * np.sqrt(np.mean(away**2))
    grid = np.linspace(at.min(), at.max(), 400)
    p = expit(grid[:, None] + tilted).mean(axis=1)
    return np.interp(at, grid, np.log(p) - np.log1p(-p))


def _unknown(
    truth: np.ndarray, day: np.ndarray, child: np.ndarray, parent: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """What the rows of the days before leave open of each row's parent, were all else known.

    All else: how much parents and children differ, and how much and how fast parents move; then,
    as if none ever moved. A parent's levels of the days are jointly normal, each child has the
    child's own spread, and its rows say of both what their expected variance lets them.
    """
    said = np.zeros((DAYS, CHILDREN))
    np.add.at(said, (day, child), expit(truth) * expit(-truth))
    apart = np.abs(np.subtract.outer(np.arange(DAYS), np.arange(DAYS)))
    waves = np.cos(2 * np.pi * apart[..., None] / np.linspace(*PERIODS, 400)).mean(axis=-1)
    still = np.full((DAYS, DAYS), SPREAD_OF_PARENTS**2)
    found = []
    for prior in (still + MOVED**2 / 2 * waves, still):
        variance = np.empty((DAYS, PARENTS))
        for today in range(DAYS):
            of_child = said[:today] / np.sqrt(SPREAD_OF_CHILDREN**-2 + said[:today].sum(axis=0))
            for each in range(PARENTS):
                own = parent == each
                known = np.diag(said[:today, own].sum(axis=1))
                known -= of_child[:, own] @ of_child[:, own].T
                before = prior[:today, :today]
                gain = np.linalg.solve(np.eye(today) + known @ before, known @ prior[:today, today])
                variance[today, each] = prior[today, today] - prior[today, :today] @ gain
        found.append(variance[day, parent[child]])
    return found[0], found[1]


def forecasts(log: NestedLog, tree: FieldTree | None) -> dict[str, np.ndarray]:
    """Method -> the logit of each test row under the map of its morning."""
    params, scores = read_params(), log.scores
    until = DAYS - TEST_DAYS - 1
    known, test = scores.take(scores.day <= until), scores.take(scores.day > until)
    candidates, cells = params.tabulate.candidates, params.tabulate.grid_cells
    cut = tabulate(known, (*candidates, cells), cells)
    later = [count_cells(test, fitting_grid(cut[0]))]
    tables = with_later_days(cut, until, later, candidates, scores.n_field_values)
    asked = dict.fromkeys(range(until + 1, DAYS))
    maps = roll(
        replace(tables, tree=tree or tables.tree), params.calibrate, known_until=until, asked=asked
    )
    columns = test.uncalibrated_logit, test.field_value_id, test.day
    return {name: rolled(of_days, *columns) for name, of_days in maps.maps.items()}


def measured(log: NestedLog, logit: np.ndarray) -> Iterator[tuple[str, float, str]]:
    """Group of test rows, excess LogLoss, and PCOC with its interval."""
    test = log.scores.day > DAYS - TEST_DAYS - 1
    rows, truth = log.scores.take(test), log.truth[test]
    p = expit(truth)
    excess = p * (log_expit(truth) - log_expit(logit))
    excess += (1 - p) * (log_expit(-truth) - log_expit(-logit))
    age = rows.day - log.born[rows.field_value_id]
    for name, picked in (("new", age == 0), ("1-2 days", (age > 0) & (age < 3)), ("all", age >= 0)):
        counts = measure(logit[picked], rows.take(picked)).counts.sum(axis=1).reshape(-1, 1)
        pcoc, low, high = (float(end[0]) for end in pcoc_intervals(counts))
        yield name, 1e4 * float(excess[picked].mean()), f"{pcoc:.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    """Print the table of all seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows-a-day", type=int, default=50_000)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    found = []
    for seed in range(options.seeds):
        log = nested_log(seed, options.rows_a_day)
        test = log.scores.day > DAYS - TEST_DAYS - 1
        flat, tree = forecasts(log, None), forecasts(log, log.tree)
        methods = {"EB-Platt, flat": flat["eb_platt"], "AdaCalib, flat": flat["adacalib"],
                   "EB-Platt, tree": tree["eb_platt"], "AdaCalib, tree": tree["adacalib"],
                   "oracle of new ones": log.of_new[test]}  # fmt: skip
        for method, logit in methods.items():
            of_rows = measured(log, logit)
            found += [(seed, method, *each) for each in of_rows]
        new = test & (log.scores.day == log.born[log.scores.field_value_id])
        p = expit(log.of_new[new])
        oracle = next(excess for _, method, name, excess, _ in reversed(found)
                      if (method, name) == ("oracle of new ones", "new"))  # fmt: skip
        for name, unknown in (("that learns levels", log.unknown), ("if still", log.if_still)):
            added = 1e4 * float(np.mean(p * (1.0 - p) * unknown[new])) / 2.0
            found.append((seed, f"oracle {name}", "new", oracle + added, ""))
    table = pd.DataFrame(found, columns=["seed", "method", "rows", "excess", "pcoc"])
    for column in ("excess", "pcoc"):
        print(table.pivot(index=["rows", "seed"], columns="method", values=column).to_string())


if __name__ == "__main__":
    main()
