"""python -m bench.tables [--rows N] [--json OUT]: field statistics of scored days in Parquet files.

Ours is the tabulate stage as it runs, from files to files: bins of K = 5, 10 and 20 and a grid of
160 cells by day. DuckDB makes the bins of K = 20 alone and keeps them. Each runs in a process of
its own with `--memory` gigabytes; its peak is the most memory that process had.
"""

import argparse
import json
import sys
import tempfile
from datetime import date, timedelta
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from bench import process
from bench.kernel import CANDIDATES, FIELD_VALUES, GRID, PEER_BINS, simulated
from pipeline.formats.days import day_number
from pipeline.formats.scores import scored_day, write_day, write_scores_manifest
from pipeline.formats.sort_keys import usable_threads
from pipeline.params.sections import TabulateParams

DAYS = [(date(2026, 1, 1) + timedelta(days=i)).isoformat() for i in range(28)]


def write_log(folder: Path, rows: int) -> None:
    """Scored calibration days, `rows` in all."""
    folder.mkdir()
    days = {}
    for seed, day in enumerate(DAYS):
        scores = simulated(rows // len(DAYS), 1, seed)
        scores.day[:] = day_number(day)
        days[day] = write_day(folder, day, *scored_day(day, scores, {}))
    manifest = {
        "parts": {"calibration": DAYS, "test": []},
        "binning_days": DAYS,
        "days": days,
        "field": {"values": [None, *map(str, range(1, FIELD_VALUES))]},
        "features": {"categorical": [], "numeric": []},
        "conventions": {},
    }
    write_scores_manifest(folder, manifest)


def run_ours(folder: Path) -> None:
    """The stage."""
    from pipeline.stages.tabulate import run

    params = TabulateParams(candidates=CANDIDATES, grid_cells=GRID)
    run(folder / "scores", folder / "tables", params=params)


def run_duckdb(folder: Path, memory: float) -> None:
    """ntile over a window, then group by."""
    import duckdb

    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": usable_threads(),
        "memory_limit": f"{memory}GB",
        "temp_directory": str(folder / "spill"),
        "preserve_insertion_order": False,
    }
    connection = duckdb.connect(config=config)
    connection.execute("SET enable_progress_bar = false")
    connection.execute(f"""
        CREATE TABLE bins AS SELECT z, b, count(*), sum(y), min(x), max(x) FROM
            (SELECT field_value_id AS z, uncalibrated_logit AS x, responses AS y,
                    ntile({PEER_BINS}) OVER (PARTITION BY field_value_id ORDER BY x) AS b
             FROM '{folder}/scores/*.parquet')
        GROUP BY z, b
    """)


def measure(which: str, folder: Path, memory: float) -> tuple[float, float]:
    """Seconds of the work, and the peak memory of its process in MB."""
    command = [sys.executable, "-m", "bench.tables", "--run", which, str(folder), str(memory)]
    finished = process.run(command, {"ADACALIB_MEMORY_GB": str(memory)})
    return float(finished.said), finished.peak_mb


def main() -> None:
    """Measure, print a table, and write the JSON where asked."""
    parser = argparse.ArgumentParser(prog="bench.tables", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--memory", type=float, default=4.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        which, folder, memory = arguments.run
        start = perf_counter()
        if which == "ours":
            run_ours(Path(folder))
        else:
            run_duckdb(Path(folder), float(memory))
        print(perf_counter() - start)
        return
    with tempfile.TemporaryDirectory() as name:
        write_log(Path(name) / "scores", arguments.rows)
        result = compare(Path(name), arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps([result], indent=2) + "\n")


def compare(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Alternate the two and print the line."""
    runs: dict[str, list[tuple[float, float]]] = {"ours": [], "duckdb": []}
    for _ in range(arguments.runs):
        for which, measured in runs.items():
            measured.append(measure(which, folder, arguments.memory))
    (ours_s, ours_mb), (peer_s, peer_mb) = (
        (median(s for s, _ in measured), max(mb for _, mb in measured))
        for measured in runs.values()
    )
    what = f"bins of K = 5, 10, 20 and {GRID} cells from Parquet"
    head = f"{'what':<51}{'rows':>13}{'ours s':>9}{'MB':>7}  {'peer':<8}"
    print(f"{head}{'peer s':>8}{'MB':>7}{'ratio':>7}")
    print(
        f"{what:<51}{arguments.rows:>13,}{ours_s:>9.2f}{ours_mb:>7.0f}  {'duckdb':<8}"
        f"{peer_s:>8.2f}{peer_mb:>7.0f}{peer_s / ours_s:>7.2f}"
    )
    return {
        "what": what,
        "rows": arguments.rows,
        "ours_s": round(ours_s, 3),
        "peer": "duckdb",
        "peer_s": round(peer_s, 3),
        "ratio": round(peer_s / ours_s, 3),
        "peak_mb": round(ours_mb, 1),
    }


if __name__ == "__main__":
    main()
