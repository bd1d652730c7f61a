"""python -m bench.kernel [--rows N] [--json OUT]: field statistics against polars, DuckDB, np.sort.

Ours makes the bins of K = 5, 10 and 20 and a grid of 160 cells; polars and DuckDB make the bins of
K = 20 alone, from tables they already hold in memory. np.sort sorts as many random uint64. Memory
that is freed stays with the process, as the allocators of polars and DuckDB keep theirs.
"""

import argparse
import ctypes
import json
import os
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from pipeline.calibration.statistics.bins import tabulate
from pipeline.formats.scores import Scores
from pipeline.formats.sort_keys import usable_threads

FIELD_VALUES = 969
CANDIDATES, GRID = (5, 10, 20), 160
PEER_BINS = 20
Work = Callable[[], Any]


def simulated(rows: int, days: int, seed: int = 1) -> Scores:
    """A log with Zipf field values, one impression a row, a response rate of about 7 %."""
    rng = np.random.default_rng(seed)
    share = np.cumsum(1 / np.arange(1, FIELD_VALUES + 1))
    value = np.searchsorted(share, rng.random(rows) * share[-1]).astype(np.int32)
    logit = rng.standard_normal(rows, dtype=np.float32) - np.float32(3)
    labels = (rng.random(rows, dtype=np.float32) < 1 / (1 + np.exp(-logit))).astype(np.int32)
    day = rng.integers(15_000, 15_000 + days, rows, dtype=np.int32)
    return Scores(logit, value, np.ones(rows, np.int32), labels, day, FIELD_VALUES)


def polars_bins(scores: Scores) -> Work:
    """Rank within the field value, then group by; the fastest of four ways that were tried."""
    import polars as pl

    frame = pl.DataFrame(
        {"z": scores.field_value_id, "x": scores.uncalibrated_logit, "y": scores.responses}
    )
    rank = pl.col("x").rank("ordinal").over("z") - 1
    bin_id = (rank * PEER_BINS // pl.len().over("z")).alias("b")
    sums = [
        pl.len().alias("n"),
        pl.col("y").sum(),
        pl.col("x").min().alias("low"),
        pl.col("x").max().alias("high"),
    ]
    query = frame.lazy().with_columns(bin_id).group_by("z", "b").agg(sums)
    return lambda: query.collect().sort("z", "b").select("n", "y").to_numpy()


def duckdb_bins(scores: Scores) -> Work:
    """ntile over a window, then group by."""
    import duckdb
    import pyarrow as pa

    connection = duckdb.connect(
        config={"threads": usable_threads(), "preserve_insertion_order": False}
    )
    connection.execute("SET enable_progress_bar = false")
    columns = {"z": scores.field_value_id, "x": scores.uncalibrated_logit, "y": scores.responses}
    connection.register("rows", pa.table(columns))
    connection.execute("CREATE TABLE log AS SELECT * FROM rows")
    query = f"""
        SELECT z, b, count(*) AS n, sum(y)::BIGINT AS y, min(x), max(x) FROM
            (SELECT z, x, y, ntile({PEER_BINS}) OVER (PARTITION BY z ORDER BY x) AS b FROM log)
        GROUP BY z, b ORDER BY z, b
    """

    def work() -> np.ndarray:
        result = connection.execute(query).fetchnumpy()
        return np.stack([result["n"], result["y"]], axis=1)

    return work


def sort_as_many(rows: int) -> Callable[[], float]:
    """Seconds that np.sort takes, in place, on random keys."""
    keys = np.random.default_rng(1).integers(0, 2**63, rows).astype(np.uint64)
    copy = keys.copy()

    def work() -> float:
        copy[:] = keys
        start = perf_counter()
        copy.sort()
        return perf_counter() - start

    return work


def check_same(ours: np.ndarray, theirs: np.ndarray, peer: str) -> None:
    """Stop where a peer's bins are not ours, but for ties and how a remainder is shared out.

    Both are impressions and responses, [bins, 2]. ntile gives the first n mod K bins one row more,
    so that its cuts lie up to K / 4 rows farther.
    """
    if ours.shape != theirs.shape or (ours.sum(axis=0) != theirs.sum(axis=0)).any():
        raise SystemExit(f"{peer} counts other rows than we do: {theirs.sum(axis=0)}")
    if (np.abs(ours - theirs) > PEER_BINS / 2 + 0.01 * ours).any():
        raise SystemExit(f"{peer} makes other bins than we do")


@dataclass(frozen=True)
class Measured:
    """Medians of alternating runs of one log."""

    what: str
    rows: int
    seconds: dict[str, float]
    peak_mb: float

    def lines(self) -> list[dict[str, Any]]:
        """One object for each peer."""
        ours = self.seconds["ours"]
        return [
            {
                "what": self.what,
                "rows": self.rows,
                "ours_s": round(ours, 4),
                "peer": peer,
                "peer_s": round(seconds, 4),
                "ratio": round(seconds / ours, 3),
                "peak_mb": round(self.peak_mb, 1),
            }
            for peer, seconds in self.seconds.items()
            if peer != "ours"
        ]


def measure(rows: int, days: int, runs: int) -> Measured:
    """Our tables, the peers' bins and the bare sort, turn by turn."""
    scores = simulated(rows, days)
    peers = {"polars": polars_bins(scores), "duckdb": duckdb_bins(scores)}
    bare_sort = sort_as_many(rows)
    times: dict[str, list[float]] = {"ours": [], "np.sort": [], **{peer: [] for peer in peers}}
    for _ in range(runs):
        start = perf_counter()
        bins, _ = tabulate(scores, CANDIDATES, GRID)
        times["ours"].append(perf_counter() - start)
        times["np.sort"].append(bare_sort())
        of_k = bins.candidate(PEER_BINS)
        ours = np.stack([of_k.impressions, of_k.responses], axis=1)
        for peer, work in peers.items():
            start = perf_counter()
            theirs = work()
            times[peer].append(perf_counter() - start)
            check_same(ours, theirs, peer)
    seconds = {name: median(values) for name, values in times.items()}
    what = f"bins of K = 5, 10, 20 and {GRID} cells, {days} day{'s' * (days > 1)}"
    return Measured(what, rows, seconds, peak_mb(lambda: tabulate(scores, CANDIDATES, GRID)))


def peak_mb(work: Work) -> float:
    """Most memory in use at a time beyond what was there before, in MB."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def keep_freed_memory() -> None:
    """Tell glibc not to give memory back to the system: else each run pays for getting it again."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        trim_threshold, mmap_max = -1, -4  # malloc.h
        mallopt(trim_threshold, 2**31 - 1)
        mallopt(mmap_max, 0)


def main() -> None:
    """Measure, print a table, and write the JSON where asked."""
    parser = argparse.ArgumentParser(prog="bench.kernel", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--days", type=int, nargs="+", default=[1, 28])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    keep_freed_memory()
    os.environ.setdefault("POLARS_MAX_THREADS", str(usable_threads()))
    print(
        f"{'what':<45}{'rows':>12}{'ours s':>9}  {'peer':<9}{'peer s':>8}{'ratio':>7}{'peak MB':>9}"
    )
    lines = []
    for days in arguments.days:
        for line in measure(arguments.rows, days, arguments.runs).lines():
            lines.append(line)
            print(
                f"{line['what']:<45}{line['rows']:>12,}{line['ours_s']:>9.3f}  {line['peer']:<9}"
                f"{line['peer_s']:>8.3f}{line['ratio']:>7.2f}{line['peak_mb']:>9.0f}"
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(lines, indent=2) + "\n")


if __name__ == "__main__":
    main()
