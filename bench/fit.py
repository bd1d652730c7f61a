"""python -m bench.fit [--rows N…] [--json OUT]: calibrators from field statistics against MCGrad.

Ours is fitted on the tables of ten calibration days (bins of K = 5, 10 and 20, a grid of 160 cells
by day), which are made first and not counted: AdaCalib with everything that it chooses out of
sample, and EB-Platt, its anchor alone. MCGrad (pip install mcgrad) reads the rows, 10⁶ of them: its
seconds grow with the rows, ours should not.
"""

import argparse
import json
import logging
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from bench.kernel import CANDIDATES, FIELD_VALUES, GRID, peak_mb, simulated
from pipeline.calibration.adacalib.fit import fit_adacalib
from pipeline.calibration.folds import all_counts
from pipeline.calibration.prior.base_map import static_anchor
from pipeline.calibration.statistics.bins import tabulate
from pipeline.params.params_file import read_params

DAYS = 10
PEER_ROWS = 1_000_000
Fit = Callable[[], Any]


def our_fits(rows: int) -> dict[str, Fit]:
    """What is fitted on the tables of a log of so many rows, by name."""
    bins, cells = tabulate(simulated(rows, DAYS), CANDIDATES, GRID)

    settings = read_params().calibrate

    def eb_platt() -> Any:
        return static_anchor(cells, all_counts(cells), FIELD_VALUES).as_map()

    return {
        "AdaCalib": lambda: fit_adacalib(bins, cells, FIELD_VALUES, settings),
        "EB-Platt": eb_platt,
    }


def seconds(fit: Fit) -> float:
    """How long it takes once."""
    start = perf_counter()
    fit()
    return perf_counter() - start


def peer_seconds(runs: int) -> float | None:
    """Median seconds of MCGrad; None where it is not installed."""
    if find_spec("mcgrad") is None:
        print("mcgrad is not installed; it is left out", file=sys.stderr)
        return None
    from bench.baselines import mcgrad

    logging.disable(logging.WARNING)  # it speaks of every round
    scores = simulated(PEER_ROWS, DAYS)
    return median(seconds(lambda: mcgrad(scores)) for _ in range(runs))


def main() -> None:
    """Measure, print a table, and write the JSON where asked."""
    parser = argparse.ArgumentParser(prog="bench.fit", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10**6, 10**7, 10**8])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    peer_s = peer_seconds(arguments.runs)
    print(f"{'what':<28}{'rows':>12}{'ours s':>9}  MCGrad s, 10⁶ rows{'ratio':>8}{'peak MB':>9}")
    results = []
    for rows in arguments.rows:
        for name, fit in our_fits(rows).items():
            ours_s = median(seconds(fit) for _ in range(arguments.runs))
            found = {
                "what": f"{name}, {FIELD_VALUES} field values",
                "rows": rows,
                "ours_s": round(ours_s, 3),
                "peer": peer_s and "mcgrad",
                "peer_s": peer_s and round(peer_s, 2),
                "ratio": peer_s and round(peer_s / ours_s, 2),
                "peak_mb": round(peak_mb(fit), 1),
            }
            results.append(found)
            peer, ratio = found["peer_s"] or "", found["ratio"] or ""
            print(
                f"{found['what']:<28}{rows:>12,}{ours_s:>9.2f}{peer:>20}{ratio:>8}"
                f"{found['peak_mb']:>9}",
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
