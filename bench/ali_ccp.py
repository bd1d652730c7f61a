"""python -m bench.ali_ccp [--lines N] [--json OUT]: joining files in the form of Ali-CCP.

A quarter of the lines of common features, then all of them; there is no peer.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

HISTORY = 300  # features of a common line: about 5 kB
ROWS = 5  # impressions for every two common lines
ITEM = "\x01".join(
    f"{field}\x02{number}\x031.0"
    for field, number in [("205", 4385603), ("206", 9), ("207", 11), ("301", 9351665), ("210", 10)]
)
OURS = """
from pathlib import Path; from time import perf_counter; import resource, sys
from pipeline.data.ingest.ali_ccp import land_files
start, place = perf_counter(), Path(sys.argv[1])
manifest = land_files(place / "data", "ali-ccp", sorted(place.glob("*.csv"))).manifest
seconds, peak = perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(seconds, peak, sum(day.rows for day in manifest.days.values()))
"""


def write_files(place: Path, lines: int) -> int:
    """Both files of a training part; the rows of the log."""
    rng = np.random.default_rng(1)
    names = np.array(["109_14", "110_14", "127_14", "150_14"])
    with (place / "common_features_train.csv").open("w") as common:
        for line in range(lines):
            fields, ids = rng.choice(names, HISTORY), rng.integers(0, 10**6, HISTORY)
            history = "\x01".join(
                f"{field}\x02{number}\x031.38629" for field, number in zip(fields, ids, strict=True)
            )
            user = f"101\x02{line}\x031.0\x01122\x02{3864880 + line % 13}\x031.0"
            common.write(f"{line:016x},{HISTORY + 2},{user}\x01{history}\n")
    rows = lines * ROWS // 2
    with (place / "sample_skeleton_train.csv").open("w") as skeleton:
        for row, line in enumerate(rng.integers(0, lines, rows)):
            skeleton.write(f"{row},{int(row % 25 == 0)},0,{line:016x},5,{ITEM}\n")
    return rows


def case(lines: int) -> dict[str, object]:
    """Seconds and peak memory of one landing in a process of its own."""
    with TemporaryDirectory() as name:
        place = Path(name)
        rows = write_files(place, lines)
        size = sum(path.stat().st_size for path in place.iterdir())
        command = [sys.executable, "-c", OURS, name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        assert int(said[2]) == rows
    return {
        "what": f"join Ali-CCP, {size / 1e6:,.0f} MB",
        "rows": rows,
        "ours_s": round(float(said[0]), 1),
        "peer": None,
        "peer_s": None,
        "ratio": None,
        "peak_mb": round(float(said[1])),
    }


def main() -> None:
    """Measure a quarter of the lines and all of them, print a table, write the JSON where asked."""
    parser = argparse.ArgumentParser(prog="bench.ali_ccp", description=__doc__)
    parser.add_argument("--lines", type=int, default=80_000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    print(f"{'what':<40}{'rows':>12}{'ours s':>9}{'peak MB':>9}")
    results = []
    for lines in (arguments.lines // 4, arguments.lines):
        found = case(lines)
        results.append(found)
        print(f"{found['what']:<40}{found['rows']:>12,}{found['ours_s']:>9}{found['peak_mb']:>9}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
