"""python -m bench.online: false alarms and coverage of adacalib online over simulated tests.

Users differ: each has its own click and conversion rate, basket and price, so impressions of a
user resemble one another. A treatment multiplies every user's click rate by 1.1 and conversion rate
by 1.1. Logs are drawn as sums by user, which is what an analysis reads.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import tea_tasting as tt
from tea_tasting.aggr import Aggregates

from bench.quality_tables import aligned
from pipeline.core.files import write_json
from pipeline.online.analysis import (
    LEAST_RATIO_PVALUE,
    Arms,
    effects,
    moments,
    sample_ratio,
    stratified,
)
from pipeline.online.experiment_log import SUMMED

METRICS = ("CTR", "CVR", "GMV per unit", "eCPM", "revenue per unit")
LIFT = 1.1
TRUE = dict(zip(METRICS, (LIFT, LIFT, LIFT * LIFT, LIFT, LIFT), strict=True))
"""Treatment over control of each metric in expectation."""


@dataclass(frozen=True)
class Simulated:
    """Tests that are alike but for chance.

    Attributes:
        logs: how many.
        units: users of each.
        lift: of click rate and of conversion rate; 1: A/A.
        shares: the treatment's share in each period; users of a later period click more.
        lost: share of treated users whose rows are missing, as of a broken log.
        seed: of everything that is drawn.
    """

    logs: int
    units: int = 2000
    lift: float = 1.0
    shares: tuple[float, ...] = (0.5,)
    lost: float = 0.0
    seed: int = 0

    def tests(self, pre: bool = False) -> list[list[Arms]]:
        """The moments of every log's periods, with `pre` also of the sums before."""
        table = self._units(("", "pre_") if pre else ("",))
        with duckdb.connect() as database:
            cells = moments(
                database.from_arrow(table), [c for c in table.column_names if c != "cell"]
            )
        periods = len(self.shares)
        numbers = np.arange(self.logs * periods).reshape(self.logs, periods).tolist()
        return [[{arm: cells[2 * n + arm] for arm in (0, 1)} for n in log] for log in numbers]

    def _units(self, prefixes: tuple[str, ...]) -> pa.Table:
        """A row for each user of every log: its cell and its sums."""
        rng = np.random.default_rng(self.seed)
        n = self.logs * self.units
        period = rng.integers(0, len(self.shares), n)
        treated = rng.random(n) < np.array(self.shares)[period]
        lift = np.where(treated, self.lift, 1.0)
        often = rng.gamma(1.5, 4.0, n)
        click = rng.beta(2, 18, n) * (1 + period)
        convert = rng.beta(3, 12, n)
        basket, price = rng.lognormal(3, 0.5, n), rng.lognormal(-1, 0.4, n)
        columns: dict[str, np.ndarray] = {}
        for prefix in prefixes:
            times = 1.0 if prefix else lift
            impressions = rng.poisson(often)
            clicks = rng.binomial(impressions, np.minimum(click * times, 1))
            responses = rng.binomial(clicks, np.minimum(convert * times, 1))
            sums = (impressions, clicks, responses, responses * basket, clicks * price)
            columns |= {f"{prefix}{c}": s for c, s in zip(SUMMED, sums, strict=True)}
        log = np.repeat(np.arange(self.logs), self.units)
        table = pa.table({"cell": 2 * (log * len(self.shares) + period) + treated, **columns})
        return table.filter(pa.array(~treated | (rng.random(n) >= self.lost)))


def analysed(simulated: Simulated, pre: bool) -> Iterator[dict[str, dict[str, float]]]:
    """Each log's effects by metric."""
    for periods in simulated.tests(pre):
        yield {row["metric"]: row for row in effects(stratified(periods), METRICS, pre)}


def alarms(simulated: Simulated, pre: bool) -> dict[str, float]:
    """Share of logs in which p < 0.05, by metric; of `any`, in which an adjusted p is."""
    found = list(analysed(simulated, pre))
    shares = {m: float(np.mean([log[m]["pvalue"] < 0.05 for log in found])) for m in METRICS}
    return shares | {
        "any": float(np.mean([any(r["significant"] for r in log.values()) for log in found]))
    }


def coverage(simulated: Simulated, pre: bool) -> dict[str, tuple[float, float]]:
    """Share of logs whose interval holds the true effect, and the intervals' mean width."""
    found, shown = list(analysed(simulated, pre)), {}
    for metric, true in TRUE.items():
        ends = np.array([(log[metric]["low"], log[metric]["high"]) for log in found])
        held = (ends[:, 0] <= true - 1) & (true - 1 <= ends[:, 1])
        shown[metric] = float(held.mean()), float(np.diff(ends).mean())
    return shown


def broken(simulated: Simulated) -> float:
    """Share of logs whose sample ratio withholds all effects."""
    shares = simulated.shares
    return float(np.mean([
        any(sample_ratio(arms, share) < LEAST_RATIO_PVALUE / len(shares)
            for arms, share in zip(periods, shares, strict=True))
        for periods in simulated.tests()
    ]))  # fmt: skip


def naive_alarms(simulated: Simulated) -> dict[str, float]:
    """Share of logs in which p < 0.05 where impressions (or clicks) are taken for independent."""
    rates = {"CTR": ("clicks", "impressions"), "CVR": ("responses", "clicks")}
    found: dict[str, list[bool]] = {metric: [] for metric in rates}
    for (arms,) in simulated.tests():
        for metric, (top, bottom) in rates.items():
            counts = {
                arm: Aggregates(
                    round(a.count() * a.mean(bottom)), {"x": a.mean(top) / a.mean(bottom)}
                )
                for arm, a in arms.items()
            }
            found[metric].append(
                tt.Proportion("x", method="norm").analyze(counts, 0, 1).pvalue < 0.05
            )
    return {metric: float(np.mean(alarmed)) for metric, alarmed in found.items()}


def main() -> None:
    """Simulate, print the table, and write the JSON where asked."""
    parser = argparse.ArgumentParser(prog="python -m bench.online", description=__doc__)
    parser.add_argument(
        "--logs", type=int, default=1000, help="A/A logs; half as many with effects"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    same, other = Simulated(options.logs), Simulated(options.logs // 2, lift=LIFT)
    ramp = Simulated(options.logs, shares=(0.1, 0.5))
    plain, reduced, stratum = alarms(same, False), alarms(same, True), alarms(ramp, False)
    held, narrower = coverage(other, False), coverage(other, True)
    naive = naive_alarms(same)
    lines = [["metric", "A/A alarms", "with pre-period", "ramp", "rows as units", "coverage",
              "with pre-period", "width", "with pre-period"]]  # fmt: skip
    for metric in METRICS:
        shares = (plain[metric], reduced[metric], stratum[metric], naive.get(metric))
        held_by, wide = zip(held[metric], narrower[metric], strict=True)
        cells = [f"{share:.1%}" if share is not None else "–" for share in (*shares, *held_by)]
        lines.append([metric, *cells, *(f"{width:.3f}" for width in wide)])
    any_of = (plain["any"], reduced["any"], stratum["any"])
    lines.append(["any, adjusted", *(f"{s:.1%}" for s in any_of), *["–"] * 5])
    print(aligned(lines))
    lost = Simulated(options.logs // 10, 20_000, lost=0.1, seed=1)
    withheld = {"sound": broken(same), "10 % of the treated lost, 20,000 users": broken(lost)}
    print("effects withheld by the sample ratio:", withheld)
    if options.json:
        write_json(options.json, {
            "alarms": plain, "alarms_pre": reduced, "alarms_ramp": stratum, "alarms_naive": naive,
            "coverage": held, "coverage_pre": narrower, "withheld": withheld,
        })  # fmt: skip


if __name__ == "__main__":
    main()
