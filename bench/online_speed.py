"""python -m bench.online_speed: adacalib online on a log of 10⁷ impressions, seconds and memory.

Two arms, a million users, four weeks of which one is before the test, a thousand items, a price,
the probabilities of two versions. Beside it DuckDB sums the same file by user and arm, three
columns, in a process of its own: what reading and grouping alone take.
"""

import argparse
import shutil
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import duckdb

from bench.process import Finished, run
from pipeline.core.files import write_json

ROWS, USERS = 10_000_000, 1_000_000
LOG = """
    COPY (
      SELECT 'user-' || id AS user, if(id % 2 = 0, 'old', 'new') AS arm, click, price, p_old, p_new,
        DATE '2026-03-02' + (floor(random() * 28)::INT - 7) AS day,
        'item-' || (pow(random(), 3) * 1000)::INT AS carrier
      FROM (SELECT (pow(random(), 2) * {users})::INT AS id, (random() < 0.06)::INT AS click,
          random() AS price, 0.05 + random() * 0.02 AS p_old, 0.06 + random() * 0.01 AS p_new
        FROM range({rows}))
    ) TO '{target}' (FORMAT parquet)"""
CONTROL = """
import duckdb
with duckdb.connect(config={{"threads": 2}}) as database:
    database.execute("CREATE TABLE units AS SELECT \\"user\\", arm, count(*), sum(click), "
                     "sum(click * price) FROM '{log}' GROUP BY ALL")
"""


def prepared(folder: Path, rows: int) -> Path:
    """The log, in a folder that is a project."""
    with duckdb.connect(config={"threads": 2}) as database:
        database.execute("SELECT setseed(0.5)")
        log = folder / "log.parquet"
        database.execute(LOG.format(rows=rows, users=max(2, rows * USERS // ROWS), target=log))
    for name in ("dvc.yaml", "params.yaml", "pins.yaml"):
        shutil.copy(name, folder)
    (folder / ".dvc").mkdir()
    return log


def main() -> None:
    """Measure, print, and write the JSON where asked."""
    parser = argparse.ArgumentParser(prog="python -m bench.online_speed", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with TemporaryDirectory() as name:
        log = prepared(Path(name), options.rows)
        command = [
            *(str(Path(sys.executable).parent / "adacalib"), "online", str(log), "--arm", "arm"),
            *("--unit", "user", "--from", "2026-03-02", "--to", "2026-03-22", "--column"),
            *("responses=click", "--column", "price=price", "--separate-budgets"),
            *("--probability", "old=p_old", "--probability", "new=p_new"),
        ]
        control = [sys.executable, "-c", CONTROL.format(log=log)]
        runs: dict[str, list[Finished]] = {"adacalib online": [], "DuckDB's sums alone": []}
        for _ in range(options.runs):
            for what, words in zip(runs, (command, control), strict=True):
                runs[what].append(run(words, {}, Path(name)))
    results = [
        {"what": what, "rows": options.rows, "s": round(median(r.seconds for r in each), 2),
         "processor_s": round(median(r.processor for r in each), 2),
         "peak_mb": round(max(r.peak_mb for r in each))}
        for what, each in runs.items()
    ]  # fmt: skip
    for result in results:
        print(
            "{what:<22}{rows:>12,}{s:>8} s{processor_s:>8} s of processor{peak_mb:>7} MB".format(
                **result
            )
        )
    if options.json:
        write_json(options.json, results)


if __name__ == "__main__":
    main()
