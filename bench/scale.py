"""python -m bench.scale [--rows N…] [--json OUT]: the whole pipeline on simulated logs of any size.

Each size is landed (56 days, 200 items) and goes through every stage of dvc.yaml with the values of
examples/simulated.yaml, one epoch of training, each stage in a process of its own as DVC runs it;
its peak is the most memory that process had, files that it maps included. The last lines compare
what a row more costs between neighbouring sizes: no stage may cost more, the larger the log.
"""

import argparse
import json
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from bench import process
from pipeline.cli.workspace import flat
from pipeline.data.ingest.simulated import Simulation
from pipeline.formats.champion import start_pin
from pipeline.params.params_file import set_values

ROOT = Path(__file__).parent.parent
LAND = """
import sys
from pathlib import Path
from pipeline.data.ingest.sources import land
land("simulated", Path("data"), lambda rows: None, rows=int(sys.argv[1]))
"""
Cost = tuple[float, float, float]  # seconds, seconds of processor, MB


def commands(rows: int) -> dict[str, list[str]]:
    """Landing and every stage, in order, with the command of each."""
    stages = YAML(typ="safe", pure=True).load((ROOT / "dvc.yaml").read_text())["stages"]
    landing = {"landing": [sys.executable, "-c", LAND, str(rows)]}
    return landing | {
        name: [sys.executable, *stage["cmd"].split()[1:]] for name, stage in stages.items()
    }


def prepare(folder: Path) -> None:
    """Give `folder` the parameters of the example, and no champion."""
    values = YAML(typ="safe", pure=True).load((ROOT / "examples/simulated.yaml").read_text())
    (folder / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    set_values(folder / "params.yaml", flat(values) | {"train_base.epochs": 1})
    start_pin(folder)


def measured(command: list[str], folder: Path) -> Cost:
    """Seconds of a command, its processor's, and the peak memory of its process in MB.

    Raises:
        SystemExit: the command failed.
    """
    environment = {"PYTHONPATH": str(ROOT), "ADACALIB_QUIET": "1"}
    finished = process.run(command, environment, folder)
    return finished.seconds, finished.processor, finished.peak_mb


def walk(rows: int) -> dict[str, Cost]:
    """What landing and every stage cost on a log of so many rows."""
    costs = {}
    with tempfile.TemporaryDirectory(prefix="scale-") as name:
        prepare(Path(name))
        for stage, command in commands(rows).items():
            costs[stage] = measured(command, Path(name))
            show(stage, rows, costs[stage])
    seconds, processor, peaks = zip(*costs.values(), strict=True)
    costs["all"] = sum(seconds), sum(processor), max(peaks)
    show("all", rows, costs["all"])
    return costs


def show(stage: str, rows: int, cost: Cost) -> None:
    """Print a line of the table."""
    seconds, processor, peak = cost
    print(f"{stage:<14}{rows:>13,}{seconds:>9.1f}{processor:>11.1f}{peak:>9.0f}", flush=True)


def line(what: str, rows: int, ours: float, peak_mb: float, **peer: Any) -> dict[str, Any]:
    """An object of the JSON."""
    against = {"peer": None, "peer_s": None, "ratio": None} | peer
    return {"what": what, "rows": rows, "ours_s": ours, **against, "peak_mb": round(peak_mb)}


def marginals(costs: dict[int, dict[str, Cost]], kind: int) -> dict[tuple[int, int], float]:
    """Microseconds that a row more costs, between each size and the next; kind as in Cost."""
    return {
        (few, many): 1e6 * (costs[many]["all"][kind] - costs[few]["all"][kind]) / (many - few)
        for few, many in pairwise(costs)
    }


def compared(costs: dict[int, dict[str, Cost]]) -> list[dict[str, Any]]:
    """A line for each pair of neighbouring steps: what a million rows more take, and took."""
    lines = []
    for kind, name in enumerate(("seconds", "seconds of processor")):
        for small, large in pairwise(marginals(costs, kind).items()):
            (few, many), ours = large
            print(f"a row more, {few:,} to {many:,}: {ours:.2f} µs ({name}), ", end="")
            print(f"{ours / small[1]:.2f} times what it cost up to {few:,}")
            before = {"peer": f"up to {few:,}", "peer_s": small[1], "ratio": small[1] / ours}
            what = f"a million rows more, {name}"
            lines.append(line(what, many, ours, costs[many]["all"][2], **before))
    return lines


def main() -> None:
    """Walk every size, print the table, write the JSON where asked."""
    parser = argparse.ArgumentParser(prog="bench.scale", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10**6, 10**7, 10**8])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    for rows in arguments.rows:
        Simulation(rows=rows)  # refuses what is too few
    print(f"{'stage':<14}{'rows':>13}{'seconds':>9}{'processor':>11}{'peak MB':>9}")
    costs = {rows: walk(rows) for rows in sorted(arguments.rows)}
    lines = [
        line(stage, rows, round(seconds, 2), peak)
        for rows, of_size in costs.items()
        for stage, (seconds, _, peak) in of_size.items()
    ]
    lines += compared(costs)
    if arguments.json:
        arguments.json.write_text(json.dumps(lines, indent=2) + "\n")


if __name__ == "__main__":
    main()
