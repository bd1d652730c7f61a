"""The small project of bench.soak: real git, DVC, landing and registry; stages of seconds."""

import gzip
import shutil
from datetime import date, timedelta
from pathlib import Path

from pipeline.params.params_file import set_values
from pipeline.registry.tools.programs import git, run_program

ROOT = Path(__file__).parent.parent
FIRST = date(2025, 3, 1)
SITES = ("alpha", "beta", "gamma")
DAG = """\
stages:
  validate:
    cmd: python work.py validate reports/validation.json
    deps: [work.py, data]
    params: [log, split, validate]
    metrics: [reports/validation.json: {cache: false}]
  merge:
    cmd: python work.py merge artifacts/model
    deps: [work.py, data/manifest.json, reports/validation.json]
    params: [merge]
    outs: [artifacts/model]
  evaluate:
    cmd: python work.py evaluate reports/evaluation.json
    deps: [work.py, artifacts/model]
    params: [evaluate]
    metrics: [reports/evaluation.json: {cache: false}]
  gate:
    cmd: python work.py gate reports/gate.json
    deps: [work.py, reports/evaluation.json, artifacts/model]
    params: [gate]
    metrics: [reports/gate.json: {cache: false}]
artifacts:
  model: {path: artifacts/model, type: model}
"""
WORK = '''\
"""A stage: python work.py STAGE OUTPUT. Half of the output is written, then a second passes."""
import json, os, sys, time
from pathlib import Path
from pipeline.core.files import publish, sha256_of, write_json
from pipeline.params.params_file import read_params
from pipeline.core.checksums import write_checksums
from pipeline.report.result_tables import METRICS

stage, output = sys.argv[1], Path(sys.argv[2])
last_day = read_params().split.last_day
if stage == "validate":
    days = json.loads(Path("data/manifest.json").read_text())["days"]
    write_json(output, {"last_day": last_day, "days": len(days)})
elif stage == "merge":
    days = json.loads(Path("data/manifest.json").read_text())["days"]
    known = {day: entry["content_sha256"] for day, entry in days.items() if day <= last_day}
    with publish(output) as folder:
        folder.mkdir()
        weights = folder / "weights.txt"
        weights.write_text("half")
        if "SOAK_MARK" in os.environ:
            Path(os.environ["SOAK_MARK"]).write_text(str(os.getpid()))
            time.sleep(3)
        weights.write_text(json.dumps(known, sort_keys=True) * 100)
        write_checksums(folder, {"last_day": last_day})
elif stage == "evaluate":
    metrics = {key: None for _, key, _ in METRICS} | {"logloss": 0.25}
    write_json(output, {"last_day": last_day, "methods": {"model": metrics}})
else:
    model = sha256_of(Path("artifacts/model/manifest.json"))
    check = {"name": "soak", "value": 1, "limit": 0, "passed": True, "sentence": "it is a soak"}
    write_json(output, {"passed": True, "verdict": "pass", "reasons": [], "checks": [check],
                        "last_day": last_day, "model_sha256": model})
'''


def day_of(number: int) -> str:
    """The day of a number, 0 the one that the project begins with."""
    return (FIRST + timedelta(days=number)).isoformat()


def deliver(inbox: Path, day: str, whole: bool = True) -> None:
    """The file of a day arrives; or the first half of it."""
    lines = ["date,id,clicks,impressions"]
    lines += [f"{day},{site},{(len(site) + int(day[-2:])) % 7},100" for site in SITES]
    content = gzip.compress("\n".join([*lines, ""]).encode(), mtime=0)
    (inbox / f"{day}.csv.gz").write_bytes(content if whole else content[: len(content) // 2])


def make_project(folder: Path, inbox: Path) -> None:
    """A project with one landed day, committed, with a git remote and a DVC remote beside it."""
    inbox.mkdir(parents=True)
    folder.mkdir(parents=True)
    for name in ("params.yaml", "prefect.yaml", ".gitignore", ".dvcignore"):
        shutil.copyfile(ROOT / name, folder / name)
    log = {"log.format": "daily-counts", "log.time_zone": "UTC", "log.label": "clicks"}
    log |= {"log.impressions": "impressions", "log.field": ["id"], "log.categorical": ["id"]}
    set_values(folder / "params.yaml", log | {"log.numeric": [], "split.last_day": day_of(0)})
    (folder / "dvc.yaml").write_text(DAG)
    (folder / "work.py").write_text(WORK)
    git(folder, "init", "--quiet", "-b", "main")
    git(folder, "config", "user.name", "Soak")
    git(folder, "config", "user.email", "soak@example.org")
    git(folder.parent, "init", "--quiet", "--bare", f"{folder}-remote.git")
    git(folder, "remote", "add", "origin", f"{folder}-remote.git")
    run_program(["dvc", "init", "--quiet"], folder)
    shutil.copyfile(ROOT / ".dvc/config", folder / ".dvc/config")
    remote = f"{folder}-stored"
    run_program(["dvc", "remote", "add", "--quiet", "-d", "kept", remote], folder)
    deliver(inbox, day_of(0))
    land(folder, inbox, [day_of(0)])
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "The project")


def land(folder: Path, inbox: Path, days: list[str]) -> None:
    """Land days by hand."""
    files = [str(inbox / f"{day}.csv.gz") for day in days]
    run_program(["python", "-m", "pipeline.cli.main", "data", "daily-counts", *files], folder)


def undisturbed(folder: Path, inbox: Path, days: list[str]) -> None:
    """What the pipeline makes of the same days with nothing but `dvc repro`."""
    make_project(folder, inbox)
    for day in days:
        deliver(inbox, day)
    land(folder, inbox, days)
    set_values(folder / "params.yaml", {"split.last_day": days[-1]})
    run_program(["dvc", "repro", "--quiet"], folder)
