"""python -m bench.data [--rows N] [--json OUT]: landing CSV.gz against pyarrow.csv reading it.

Once as it comes, and once with log.event_id, by which duplicates are looked for.
"""

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
from pipeline.data.log_store.landing import LandingOptions
from pipeline.data.ingest.mapping import read_mapping
from pipeline.data.ingest.file_reader import land_files
start = perf_counter()
source, folder = Path(sys.argv[1]), Path(sys.argv[2])
options = LandingOptions("bench", sys.argv[3] if len(sys.argv) > 3 else None)
mapping = read_mapping(str(folder / "bench.yaml"))
manifest = land_files(folder / "data", mapping, [source], options=options).manifest
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


def measured(program: str, source: Path, folder: Path, *more: str) -> tuple[float, float, int]:
    """Seconds, peak resident memory in MB and rows of a program in a process of its own."""
    command = [sys.executable, "-c", program + SAY, str(source), str(folder), *more]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(said[0]), float(said[1]), int(said[2])


def cases(rows: int, runs: int) -> list[dict[str, object]]:
    """Medians of alternating runs, each landing into a new folder: as it comes, and by event id."""
    times = []
    with TemporaryDirectory() as place:
        source = Path(place) / "log.csv.gz"
        write_log(source, rows)
        for _ in range(runs):
            plain, peer, once = (_run(source, Path(place), what) for what in ((), None, ("id",)))
            assert plain[2] == peer[2] == once[2] == rows
            times.append((plain[0], plain[1], peer[0], once[0], once[1]))
    plain_s, plain_mb, peer_s, once_s, once_mb = map(median, zip(*times, strict=True))
    return [
        _result("land CSV.gz", rows, plain_s, plain_mb, peer_s),
        _result("land CSV.gz, duplicates by event id", rows, once_s, once_mb, peer_s),
    ]


def _run(source: Path, place: Path, more: tuple[str, ...] | None) -> tuple[float, float, int]:
    """Ours with more arguments, or the peer where there are None."""
    if more is None:
        return measured(PEER, source, place)
    with TemporaryDirectory(dir=place) as folder:
        (Path(folder) / "bench.yaml").write_text(MAPPING)
        return measured(OURS, source, Path(folder), *more)


def _result(
    what: str, rows: int, ours_s: float, peak_mb: float, peer_s: float
) -> dict[str, object]:
    return {
        "what": what,
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
        for found in cases(rows, arguments.runs):
            results.append(found)
            print(
                f"{found['what']:<40}{rows:>12,}{found['ours_s']:>9}{found['peer_s']:>9}"
                f"{found['ratio']:>8}{found['peak_mb']:>9}",
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
