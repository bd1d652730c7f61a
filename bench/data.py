"""python -m bench.data [--rows N] [--json OUT]: landing CSV.gz against pyarrow.csv reading it."""

import argparse
import gzip
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from pyarrow import csv

BLOCK = 100_000  # rows written at a time
WEEK = 7 * 86400  # seconds
MAPPING = """
format: bench
kind: csv
time_zone: UTC
time: {column: ts, format: epoch_s}
columns: {id: text, item: text, site: text, device: text, price: float64, click: int8}
made: {hour: {rule: hour}}
"""
OURS = """
from pathlib import Path; from time import perf_counter; import sys
from pipeline.data.mapping import read_mapping; from pipeline.data.reader import land_files
start = perf_counter()
source, folder = Path(sys.argv[1]), Path(sys.argv[2])
manifest, _ = land_files(folder / "data", read_mapping(str(folder / "bench.yaml")), [source])
rows = sum(day.rows for day in manifest.days.values())
"""
PEER = """
from time import perf_counter; import sys
from pyarrow import csv
start = perf_counter()
rows = len(csv.read_csv(sys.argv[1]))
"""
SAY = """
import resource
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(perf_counter() - start, peak, rows)
"""


def write_log(path: Path, rows: int) -> None:
    """A click log of a week in order of time: 19-digit ids, Zipf items, hex sites."""
    rng = np.random.default_rng(1)
    with gzip.open(path, "wb", compresslevel=4) as file:
        stream = pa.PythonFile(file, "w")
        for start in range(0, rows, BLOCK):
            table = _block(rng, np.arange(start, min(start + BLOCK, rows)), rows)
            csv.write_csv(table, stream, csv.WriteOptions(include_header=start == 0))


def _block(rng: np.random.Generator, number: np.ndarray, rows: int) -> pa.Table:
    n = len(number)
    return pa.table(
        {
            "id": 1582218195625938945 + number * 7,
            "ts": 1_700_006_400 + number * WEEK // rows,
            "item": np.minimum(rng.zipf(1.3, n), 99_999),
            "site": [f"{site:08x}" for site in rng.integers(0, 2000, n) * 2_000_003],
            "device": rng.choice(["mobile", "desktop", "tablet"], n),
            "price": rng.lognormal(0, 1, n).round(2),
            "click": (rng.random(n) < 0.03).astype(np.int8),
        }
    )


def measured(program: str, source: Path, folder: Path) -> tuple[float, float, int]:
    """Seconds, peak resident memory in MB and rows of a program in a process of its own."""
    command = [sys.executable, "-c", program + SAY, str(source), str(folder)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(said[0]), float(said[1]), int(said[2])


def case(rows: int, runs: int) -> dict[str, object]:
    """Medians of alternating runs, each landing into a new folder."""
    times = []
    with TemporaryDirectory() as place:
        source = Path(place) / "log.csv.gz"
        write_log(source, rows)
        for run in range(runs):
            folder = Path(place) / str(run)
            folder.mkdir()
            (folder / "bench.yaml").write_text(MAPPING)
            ours, peer = measured(OURS, source, folder), measured(PEER, source, folder)
            assert ours[2] == peer[2] == rows
            times.append((ours[0], peer[0], ours[1]))
    ours_s, peer_s, peak_mb = (median(column) for column in zip(*times, strict=True))
    return {
        "what": "land CSV.gz",
        "rows": rows,
        "ours_s": round(ours_s, 2),
        "peer": "pyarrow.csv",
        "peer_s": round(peer_s, 2),
        "ratio": round(peer_s / ours_s, 2),
        "peak_mb": round(peak_mb, 1),
    }


def main() -> None:
    """Measure a tenth of the rows and all of them, print a table, write the JSON where asked."""
    parser = argparse.ArgumentParser(prog="bench.data", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    print(f"{'what':<40}{'rows':>12}{'ours s':>9}{'peer s':>9}{'ratio':>8}{'peak MB':>9}")
    results = []
    for rows in (arguments.rows // 10, arguments.rows):
        found = case(rows, arguments.runs)
        results.append(found)
        print(
            f"{found['what']:<40}{rows:>12,}{found['ours_s']:>9}{found['peer_s']:>9}"
            f"{found['ratio']:>8}{found['peak_mb']:>9}"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
