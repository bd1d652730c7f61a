"""python -m bench.scale [--rows N…] [--engine local:N…] [--json OUT]: all stages, logs of any size.

Each size is landed (56 days, 200 items) and goes through every stage of dvc.yaml with the values of
examples/simulated.yaml, one epoch of training, each stage in a process of its own as DVC runs it;
its peak is the most memory that process had, files that it maps included. The last lines compare
what a row more costs between neighbouring sizes: no stage may cost more, the larger the log.

With --engine the stages that map over days run again in worker processes (ADACALIB_DASK): the same
bytes must come out. What that adds to the processor's seconds is printed, how much of a stage is
done by workers (processor's seconds of theirs over all, what they need to start left out), and the
most memory that a process had.
"""

import argparse
import hashlib
import json
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from bench import process
from pipeline.data.ingest.simulated import Simulation
from pipeline.formats.champion import start_pin
from pipeline.params.params_file import flat, set_values

ROOT = Path(__file__).parent.parent
LAND = """
import sys
from pathlib import Path
from pipeline.data.ingest.sources import land
land("simulated", Path("data"), rows=int(sys.argv[1]))
"""
MAPPED = ("validate", "score", "tabulate", "check_tables", "evaluate")  # by pipeline/engine
STAGE = """
import resource, sys
from pipeline.engine import day_map
from pipeline.__main__ import main
try:
    main()
finally:
    day_map.release()
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        print(usage.ru_utime + usage.ru_stime)
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


def walk(rows: int, engines: list[str]) -> dict[str, Cost]:
    """What landing and every stage cost on a log of so many rows."""
    costs = {}
    with tempfile.TemporaryDirectory(prefix="scale-") as name:
        prepare(Path(name))
        for stage, command in commands(rows).items():
            costs[stage] = measured(command, Path(name))
            show(stage, rows, costs[stage])
        for engine in engines:
            by_workers(engine, Path(name), rows, costs)
    seconds, processor, peaks = zip(*costs.values(), strict=True)
    costs["all"] = sum(seconds), sum(processor), max(peaks)
    show("all", rows, costs["all"])
    return costs


def by_workers(engine: str, folder: Path, rows: int, threads: dict[str, Cost]) -> None:
    """Run the stages that map over days again, in worker processes; print what that costs.

    Raises:
        SystemExit: a byte is another.
    """
    before, whole = outputs(folder), sum(cost[1] for cost in threads.values())
    more, idle = 0.0, started(engine, folder)
    print(f"{engine}: {idle:.1f} s of processor to start and end them")
    for stage in MAPPED:
        command = commands(rows)[stage]
        environment = {"PYTHONPATH": str(ROOT), "ADACALIB_QUIET": "1", "ADACALIB_DASK": engine}
        words = [sys.executable, "-c", STAGE, *command[3:]]
        finished = process.run(words, environment, folder)
        own, workers = (float(line) for line in finished.said.split())
        share = max(workers - idle, 0.0) / max(own + workers - idle, 1e-9)
        more += finished.processor - threads[stage][1]
        cost = finished.seconds, finished.processor, finished.peak_mb
        show(f"{stage} {engine}", rows, cost, f"{share:8.0%} by workers")
    if outputs(folder) != before:
        raise SystemExit(f"{engine} made other bytes than threads")
    print(f"{engine}: the same bytes, {more / whole:+.0%} of the walk's processor time")


def started(engine: str, folder: Path) -> float:
    """Seconds of processor that worker processes take to start and to end, doing nothing."""
    code = STAGE.replace("main()", f"day_map.width_of({engine!r})")
    environment = {"PYTHONPATH": str(ROOT), "ADACALIB_DASK": engine}
    finished = process.run([sys.executable, "-c", code], environment, folder)
    return float(finished.said.split()[1])


def outputs(folder: Path) -> dict[str, str]:
    """Every file that stages left, by its sha256."""
    files = [path for top in ("artifacts", "reports") for path in (folder / top).rglob("*")]
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.is_file()
    }


def show(stage: str, rows: int, cost: Cost, more: str = "") -> None:
    """Print a line of the table."""
    seconds, processor, peak = cost
    said = f"{stage:<22}{rows:>13,}{seconds:>9.1f}{processor:>11.1f}{peak:>9.0f}{more}"
    print(said, flush=True)


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
    parser.add_argument("--engine", nargs="+", default=[], help="local:N, as ADACALIB_DASK")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    for rows in arguments.rows:
        Simulation(rows=rows)  # refuses what is too few
    print(f"{'stage':<22}{'rows':>13}{'seconds':>9}{'processor':>11}{'peak MB':>9}")
    costs = {rows: walk(rows, arguments.engine) for rows in sorted(arguments.rows)}
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
