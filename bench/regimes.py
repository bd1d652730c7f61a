"""python -m bench.regimes [--seeds N] [--kinds NAME…] [--json OUT]: what ships in which log.

Simulated logs whose true probabilities are known: field values whose impressions fall off as
1 / rank answer the base model's logit each by an offset and a slope, 28 days are learned from and
14 forecast one after the other by the pipeline's own procedure. Each kind of log differs from the
first in what its name says. Shown is the excess of LogLoss over that of the true probabilities,
10⁻⁴ nats per impression, of every calibrator, of what the days before the test chose (what ships),
and how often it chose which.
"""

import argparse
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, logit

from bench.quality_rolling import OURS, rolled_by_the_pipeline
from bench.quality_tables import aligned
from pipeline.formats.rolling import rolled
from pipeline.formats.scores import Scores

LEARNED, TESTED = 28, 14  # days
FIRST_DAY = 20_000


@dataclass(frozen=True)
class Kind:
    """How a log is made.

    Attributes:
        values: how many field values.
        rows: impressions a day.
        rate: of responses where a field value has no offset.
        differ: standard deviation of offsets.
        slopes: standard deviation of ln slope.
        base_slope: of the base model's logit in the one that slopes are of.
        bend: how far a curve leaves its line, a unit of logit away from the middle.
        walk: standard deviation of a day's step of an offset, which stays.
        single: standard deviation of what one day adds to a field value's offset.
        week: amplitude of a field value's wave over the week.
    """

    values: int = 200
    rows: int = 20_000
    rate: float = 0.05
    differ: float = 0.5
    slopes: float = 0.0
    base_slope: float = 1.0
    bend: float = 0.0
    walk: float = 0.0
    single: float = 0.0
    week: float = 0.0


KINDS = {
    "values differ, nothing moves": Kind(),
    "values do not differ": Kind(differ=0.0),
    "five values": Kind(values=5),
    "5,000 values, rare responses": Kind(values=5_000, rate=0.005),
    "500 impressions a day": Kind(rows=500),
    "one response in a thousand": Kind(rate=0.001),
    "the base model's slope is 0.3": Kind(base_slope=0.3),
    "slopes differ": Kind(slopes=0.4),
    "curves bend": Kind(bend=0.3),
    "values move slowly": Kind(walk=0.05),
    "values move fast": Kind(walk=0.15),
    "values move fast, 5,000 values": Kind(values=5_000, walk=0.1),
    "every day is another for each value": Kind(single=0.3),
    "values have weeks": Kind(week=0.3),
}


def drawn(kind: Kind, seed: int) -> tuple[Scores, np.ndarray]:
    """A log of such a kind, sorted by field value and logit, and float64 [n] true probabilities."""
    random, days = np.random.default_rng(seed), LEARNED + TESTED
    shares = 1.0 / np.arange(1, kind.values + 1)
    offset = random.normal(0.0, kind.differ, kind.values)
    slope = np.exp(random.normal(0.0, kind.slopes, kind.values))
    steps = random.normal(0.0, kind.walk, (days, kind.values)).cumsum(axis=0)
    single = random.normal(0.0, kind.single, (days, kind.values))
    phase = 2.0 * np.pi * np.arange(days)[:, None] / 7.0 + np.arange(kind.values)
    level = offset + steps + single + kind.week * np.sin(phase)
    day = np.repeat(np.arange(days), kind.rows)
    value = random.choice(kind.values, day.size, p=shares / shares.sum())
    away = random.normal(0.0, 1.0, day.size) + 0.3 * np.sin(value)
    bend = kind.bend * np.abs(away) * np.sin(7.0 * value)
    truth = expit(logit(kind.rate) + level[day, value] + slope[value] * away + bend)
    base = (kind.base_slope * (logit(kind.rate) + away)).astype(np.float32)
    responses = (random.random(day.size) < truth).astype(np.int64)
    ids, days_of = value.astype(np.int32) + 1, (day + FIRST_DAY).astype(np.int32)
    ones = np.ones(day.size, np.int64)
    order = np.lexsort((base, value))
    scores = Scores(base, ids, ones, responses, days_of, kind.values + 1)
    return scores.take(order), truth[order]


def excess(kind: Kind, seed: int) -> tuple[dict[str, float], str]:
    """Excess LogLoss of every calibrator on the test days, and the one that was chosen."""
    scores, truth = drawn(kind, seed)
    tested = scores.day >= FIRST_DAY + LEARNED
    test, p = scores.take(tested), truth[tested]
    forecast = rolled_by_the_pipeline(scores.take(~tested), test)
    least = -(p * np.log(p) + (1.0 - p) * np.log1p(-p)).mean()
    columns = test.uncalibrated_logit, test.field_value_id, test.day
    logits = {name: rolled(forecast.maps[name], *columns).astype(np.float64) for name in OURS}
    losses = {name: (np.logaddexp(0.0, z) - p * z).mean() - least for name, z in logits.items()}
    return losses, forecast.chosen


def measured(name: str, seeds: int) -> dict[str, Any]:
    """A line of the table: means over seeds."""
    found = [excess(KINDS[name], seed) for seed in range(seeds)]
    means = {method: 1e4 * float(np.mean([of[method] for of, _ in found])) for method in OURS}
    ships = 1e4 * float(np.mean([of[chosen] for of, chosen in found]))
    return {"kind": name, **means, "ships": ships, "chosen": Counter(c for _, c in found)}


def main() -> None:
    """Measure, print a table, and write the JSON where asked."""
    parser = argparse.ArgumentParser(prog="bench.regimes", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = [measured(name, arguments.seeds) for name in arguments.kinds]
    lines = [["kind of log", *OURS, "what ships", "chosen"]]
    for line in results:
        amounts = [f"{line[name]:.2f}" for name in (*OURS, "ships")]
        chosen = ", ".join(f"{name} {times}" for name, times in line["chosen"].most_common())
        lines.append([line["kind"], *amounts, chosen])
    print(aligned(lines))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
