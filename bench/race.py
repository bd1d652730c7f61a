"""python -m bench.race [--rounds N] [--json OUT]: two promoters, a serving host, a looping reader.

In each round two clones make a model of the round's day and promote it at the same moment, to one
git remote and one DVC remote. Meanwhile a third clone, without a cache, pulls production into a
folder again and again, and a reader verifies every byte of what that folder shows. The stages are
stand-ins that write a model of 2 MB in eight files; git, DVC, GTO, promotion and pull are real.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline.core.errors import AdaCalibError, ReleaseError
from pipeline.core.files import verify
from pipeline.registry import tags
from pipeline.registry.promote import promote
from pipeline.registry.pull import pull
from pipeline.registry.tools.programs import git, run_program

NAMES = ("ann", "bob")
FIRST = date(2025, 3, 1)
WORK = '''\
"""A stage: python work.py STAGE."""
import random, sys
from pathlib import Path
from ruamel.yaml import YAML
from pipeline.core.files import publish, sha256_of, write_json
from pipeline.core.files import write_checksums

params = YAML(typ="safe").load(Path("params.yaml").read_text())
if sys.argv[1] == "merge":
    chance = random.Random(f"{params['by']} {params['day']}")
    with publish(Path("artifacts/model")) as folder:
        folder.mkdir()
        for part in range(8):
            (folder / f"part-{part}").write_bytes(chance.randbytes(1 << 18))
        write_checksums(folder, params)
else:
    model = sha256_of(Path("artifacts/model/manifest.json"))
    write_json(Path("reports/gate.json"), {"passed": True, "reasons": [], "checks": [],
               "model_sha256": model, "last_day": params["day"]})
'''
DAG = """\
stages:
  merge:
    cmd: python work.py merge
    deps: [work.py]
    params: [day, by]
    outs: [artifacts/model]
  gate:
    cmd: python work.py gate
    deps: [work.py, artifacts/model]
    params: [day]
    metrics: [reports/gate.json: {cache: false}]
artifacts:
  model: {path: artifacts/model, type: model}
"""
CONFIG = """\
[core]
    analytics = false
    check_update = false
    remote = kept
['remote "kept"']
    url = ../../kept
"""


@dataclass
class Seen:
    """What the reader saw.

    Attributes:
        reads: how often it read all bytes of the folder.
        broken: sentences about reads that were not whole and valid.
        days: the day of each version, in the order in which they showed.
    """

    reads: int
    broken: list[str]
    days: list[str]


@dataclass
class Result:
    """What came of the rounds.

    Attributes:
        rounds: how many.
        said: how often promoters won, lost, were refused, or failed in another way.
        versions: in the registry.
        pulls: how often the host asked.
        failed_pulls: sentences of those that failed.
        seen: by the reader.
        seconds: all in all.
    """

    rounds: int
    said: dict[str, int]
    versions: int
    pulls: int
    failed_pulls: list[str]
    seen: Seen
    seconds: float

    def mistakes(self) -> list[str]:
        """What must not have happened."""
        days = self.seen.days
        back = [f"{b} after {a}" for a, b in pairwise(days) if b < a]
        odd = [f"{what}: {n}" for what, n in self.said.items() if what not in CLEAN]
        fewer = self.said.get("won", 0) != self.versions or self.versions < self.rounds
        counted = [f"{self.versions} versions of {self.said}"] if fewer else []
        last = [] if days[-1:] == [day_of(self.rounds - 1)] else [f"the last seen is {days[-1:]}"]
        return self.seen.broken + self.failed_pulls + back + odd + counted + last


CLEAN = ("won", "another promotion came first", "an older model never replaces a newer one")


def day_of(number: int) -> str:
    """The day of a round."""
    return (FIRST + timedelta(days=number)).isoformat()


def make_project(place: Path) -> None:
    """A git remote, a DVC remote, a clone for each promoter and one for the serving host."""
    first = place / NAMES[0]
    (first / ".dvc").mkdir(parents=True)
    files = {
        "work.py": WORK,
        "dvc.yaml": DAG,
        ".dvc/config": CONFIG,
        ".gitignore": "/artifacts\n",
        ".dvc/.gitignore": "/config.local\n/tmp\n/cache\n",
        "params.yaml": "{}\n",
    }
    for name, text in files.items():
        (first / name).write_text(text)
    git(place, "init", "--quiet", "--bare", "--initial-branch=main", "remote.git")
    git(first, "init", "--quiet", "--initial-branch=main")
    _configure(first)
    git(first, "add", "--all")
    git(first, "commit", "--quiet", "--message", "The project")
    git(first, "remote", "add", "origin", "../remote.git")
    git(first, "push", "--quiet", "--set-upstream", "origin", "main")
    for name in (*NAMES[1:], "host"):
        git(place, "clone", "--quiet", "remote.git", name)
        _configure(place / name)


def _configure(clone: Path) -> None:
    git(clone, "config", "user.name", clone.name)
    git(clone, "config", "user.email", f"{clone.name}@example.org")


def make_model(clone: Path, day: str) -> None:
    """A model of a day, by the clone's promoter."""
    (clone / "params.yaml").write_text(f"day: '{day}'\nby: {clone.name}\n")
    done = run_program(["dvc", "repro", "--quiet"], clone)
    if done.code:
        raise AdaCalibError(f"dvc repro failed: {done.output}")


def try_to_promote(clone: Path) -> str:
    """Won, or why not."""
    try:
        promote(clone)
    except ReleaseError as error:
        return next((reason for reason in CLEAN if reason in str(error)), str(error))
    except AdaCalibError as error:
        return str(error)
    return "won"


def follow(host: Path, target: Path, stop: Path) -> None:
    """Pull until there is a file `stop`, and once more; write what failed beside it."""
    failed, pulls, last = [], 0, False
    while not last:
        last = stop.exists()
        try:
            pull(host, target)
        except AdaCalibError as error:
            if "nothing in production yet" not in str(error):
                failed.append(str(error))
        pulls += 1
        time.sleep(0.5)
    stop.with_name("pulls.json").write_text(json.dumps({"pulls": pulls, "failed": failed}))


def read(target: Path, stop: Path) -> None:
    """Verify what a folder shows until there is a file `stop`; write what was seen beside it."""
    seen, last = Seen(0, [], []), False
    while not last:
        last = stop.exists()
        if os.path.lexists(target):
            try:
                day = verify(target.resolve())["day"]
            except (AdaCalibError, OSError) as error:
                seen.broken.append(str(error))
            else:
                seen.days += [day] if seen.days[-1:] != [day] else []
            seen.reads += 1
        time.sleep(0.02)
    stop.with_name("seen.json").write_text(json.dumps(asdict(seen)))


def race(place: Path, rounds: int) -> Result:
    """Run the rounds in an empty folder."""
    began = time.monotonic()
    make_project(place)
    target, said = place / "served/model", Counter[str]()
    clones = [place / name for name in NAMES]
    spawn = multiprocessing.get_context("spawn")
    host = spawn.Process(target=follow, args=(place / "host", target, place / "stop-host"))
    reader = spawn.Process(target=read, args=(target, place / "stop-reader"))
    for process in (host, reader):
        process.start()
    with ProcessPoolExecutor(len(NAMES), mp_context=spawn) as pool:
        for number in range(rounds):
            list(pool.map(make_model, clones, [day_of(number)] * len(clones)))
            said.update(pool.map(try_to_promote, clones))
            print(f"round {number + 1}: {dict(said)}", file=sys.stderr, flush=True)
    for process, stop in ((host, "stop-host"), (reader, "stop-reader")):
        (place / stop).touch()
        process.join()
    asked = json.loads((place / "pulls.json").read_text())
    seen = Seen(**json.loads((place / "seen.json").read_text()))
    versions = len(tags.versions(place / "remote.git"))
    seconds = time.monotonic() - began
    return Result(rounds, dict(said), versions, asked["pulls"], asked["failed"], seen, seconds)


def main() -> None:
    """Print the table; exit code 1 where something happened that must not."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with TemporaryDirectory(prefix="adacalib-race-") as place:
        result = race(Path(place), given.rounds)
    rows = {
        "rounds": result.rounds,
        **{f"promoters: {what}": count for what, count in result.said.items()},
        "versions": result.versions,
        "pulls by the host": result.pulls,
        "versions that the reader saw": len(result.seen.days),
        "reads": result.seen.reads,
        "reads that were not whole and valid": len(result.seen.broken),
        "seconds": round(result.seconds),
    }
    for what, count in rows.items():
        print(f"{what:55} {count:>9,}")
    if given.json:
        given.json.write_text(json.dumps(asdict(result), indent=2) + "\n")
    if result.mistakes():
        sys.exit("\n".join(result.mistakes()))


if __name__ == "__main__":
    main()
