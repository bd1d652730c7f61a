"""python -m bench.fit [--rows N…] [--json OUT]: calibrators from field statistics against MCGrad.

Ours is made of the tables of ten calibration days and 28 test days (bins of K = 5, 10 and 20, a
grid of 160 cells by day), which are made first and not counted. AdaCalib: everything that is
learned on the calibration days, variances among them, and the map of every test day; once more with
variances given. EB-Platt: one fit on all calibration days. MCGrad (pip install mcgrad) is fitted
once on 10⁶ rows of calibration days: its seconds grow with the rows, ours should not.
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
from pipeline.calibration.adacalib.shapes import serving_map
from pipeline.calibration.baselines import eb_platt_of_cells
from pipeline.calibration.prior.filter import Variances
from pipeline.calibration.statistics.bins import tabulate
from pipeline.calibration.statistics.counting import count_cells, fitting_grid, with_later_days
from pipeline.formats.tables import FieldTables
from pipeline.params.params_file import read_params

DAYS = 10
TEST_DAYS = 28
PEER_ROWS = 1_000_000
Fit = Callable[[], Any]


def tables_of(rows: int) -> FieldTables:
    """Tables of a log of so many calibration rows, and as many a day on the test days."""
    scores = simulated(rows * (DAYS + TEST_DAYS) // DAYS, DAYS + TEST_DAYS)
    known = scores.day < scores.day.min() + DAYS
    cut = tabulate(scores.take(known), (*CANDIDATES, GRID), GRID)
    until = int(scores.day[known].max())
    later = count_cells(scores.take(~known), fitting_grid(cut[0]))
    return with_later_days(cut, until, [later], CANDIDATES, FIELD_VALUES)


def our_fits(rows: int) -> dict[str, Fit]:
    """What is fitted on the tables of a log of so many rows, by name."""
    tables, settings = tables_of(rows), read_params().calibrate
    known = tables.cells.take(tables.made_of)
    days = range(tables.made_until + 1, tables.made_until + TEST_DAYS + 1)

    def adacalib(variances: Variances | None) -> Any:
        fitted = fit_adacalib(tables, settings, known_until=tables.made_until, variances=variances)
        return [
            serving_map(fitted.passed.forecasts[d], fitted.shapes.last, settings.min_slope)
            for d in days
        ]

    return {
        "AdaCalib": lambda: adacalib(None),
        "AdaCalib, variances given": lambda: adacalib(Variances()),
        "EB-Platt": lambda: eb_platt_of_cells(known, FIELD_VALUES),
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
    from bench.baselines.peers import mcgrad

    logging.disable(logging.WARNING)  # it speaks of every round
    scores = simulated(PEER_ROWS, DAYS)  # as many calibration rows as ours in its smallest row
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
