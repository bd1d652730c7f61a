"""python -m bench.daily [--rows N…] [--json OUT]: what one more day costs, beside a whole refresh.

A project with the values of examples/simulated.yaml (56 days: 28 of training, 14 of calibration,
14 of test) is reproduced by `dvc repro`; then its last day moves by one, the base model stays, and
it is reproduced again: that is the day. The control is another project that reproduces the same
last day from nothing. Seconds are the processor's, DVC's own included, landing is not. The last
column says whether both have the same bytes in every artifact and report.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from bench import process
from pipeline.core.files import file_sums
from pipeline.data.ingest.simulated import Simulation
from pipeline.data.ingest.sources import land
from pipeline.formats.champion import start_pin
from pipeline.formats.days import day_name, day_number
from pipeline.params.params_file import flat, set_values

ROOT = Path(__file__).parent.parent
FIRST_DAY, DAYS = "2025-01-01", 57
LAST = day_name(day_number(FIRST_DAY) + DAYS - 1)
PROGRAMS = Path(sys.executable).parent


def make_project(folder: Path, rows: int) -> None:
    """A repository with the project's code and a landed log of 57 days, `rows` in 56 of them."""
    folder.mkdir()
    for name in ("pipeline", ".dvc"):
        kept_out = shutil.ignore_patterns("__pycache__", "cache", "tmp", "config.local")
        shutil.copytree(ROOT / name, folder / name, ignore=kept_out)
    for name in ("params.yaml", "pins.yaml", "dvc.yaml", ".dvcignore"):
        shutil.copy(ROOT / name, folder / name)
    values = YAML(typ="safe", pure=True).load((ROOT / "examples/simulated.yaml").read_text())
    grid = {"split.retrain_every_days": 7, "split.training_until": day_name(day_number(LAST) - 29)}
    set_values(folder / "params.yaml", flat(values) | grid)
    start_pin(folder)
    run(folder, "git", "init", "--quiet")
    land("simulated", folder / "data", rows=rows * DAYS // (DAYS - 1), days=DAYS)


def run(folder: Path, *command: str) -> float:
    """Seconds of the processor that a command and all that it starts take.

    Raises:
        SystemExit: it failed.
    """
    path = f"{PROGRAMS}:{os.environ['PATH']}"
    environment = {"PATH": path, "PYTHONPATH": str(folder), "ADACALIB_QUIET": "1"}
    return process.run(list(command), environment, folder).processor


def reproduce(folder: Path, last_day: str) -> float:
    """Seconds of the processor to reproduce every stage for a last day."""
    set_values(folder / "params.yaml", {"split.last_day": last_day})
    return run(folder, str(PROGRAMS / "dvc"), "repro", "--quiet")


def made(folder: Path) -> dict[str, str]:
    """Every artifact and report, and its sha256."""
    return file_sums(folder / "artifacts") | file_sums(folder / "reports")


def measured(rows: int) -> dict[str, Any]:
    """A line of the table."""
    with tempfile.TemporaryDirectory(prefix="daily-") as name:
        daily, whole = Path(name) / "daily", Path(name) / "whole"
        make_project(daily, rows)
        reproduce(daily, day_name(day_number(LAST) - 1))
        day = reproduce(daily, LAST)
        make_project(whole, rows)
        refresh = reproduce(whole, LAST)
        same = made(daily) == made(whole)
    return {"rows": rows, "day_s": round(day, 1), "refresh_s": round(refresh, 1),
            "share": round(day / refresh, 3), "same_bytes": same}  # fmt: skip


def main() -> None:
    """Measure every size, print the table, write the JSON where asked."""
    parser = argparse.ArgumentParser(prog="bench.daily", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10**6, 10**7])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    for rows in arguments.rows:
        Simulation(rows=rows)  # refuses what is too few
    print(f"{'rows':>12}{'one day s':>12}{'refresh s':>12}{'share':>8}  same bytes")
    lines = []
    for rows in arguments.rows:
        line = measured(rows)
        lines.append(line)
        print(f"{rows:>12,}{line['day_s']:>12}{line['refresh_s']:>12}{line['share']:>8}"
              f"  {'yes' if line['same_bytes'] else 'no'}", flush=True)  # fmt: skip
    if arguments.json:
        arguments.json.write_text(json.dumps(lines, indent=2) + "\n")


if __name__ == "__main__":
    main()
