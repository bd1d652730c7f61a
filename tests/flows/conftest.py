"""A project whose stages take no time, and one Prefect server for all tests that need one."""

import atexit
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from ruamel.yaml import YAML

# Set before anything imports Prefect, so that no test sees or changes a developer's own.
os.environ["PREFECT_HOME"] = tempfile.mkdtemp(prefix="adacalib-prefect-")
os.environ.pop("PREFECT_API_URL", None)

from flows.settings import use_defaults
from flows.worktree import commit_day, release_worktree, take_code
from pipeline.data.ingest.fetched import PUBLIC
from pipeline.data.log_store.landing import land_log
from pipeline.registry.tools.programs import git
from pipeline.report.result_tables import METRICS
from tests.dvc_here import dvc

use_defaults()
atexit.register(shutil.rmtree, os.environ["PREFECT_HOME"], ignore_errors=True)

FLIGHTS = PUBLIC["flights"].kind()
HERE = Path(__file__).parent
SECONDS = 300  # on a busy machine; half a minute on an idle one
DAG = """\
stages:
  gate:
    cmd: python cheap.py gate reports/gate.json reports/evaluation.json
    deps: [cheap.py, artifacts/model]
    params: [evaluate, gate]
    metrics: [reports/gate.json: {cache: false}, reports/evaluation.json: {cache: false}]
  validate:
    cmd: python cheap.py validate reports/validation.json
    deps: [cheap.py, data]
    params: [log, split, validate]
    metrics: [reports/validation.json: {cache: false}]
  merge:
    cmd: python cheap.py merge artifacts/model
    deps: [cheap.py, data/manifest.json, reports/validation.json]
    params: [merge]
    outs: [artifacts/model]
artifacts:
  model: {path: artifacts/model, type: model}
"""


def days_around(today: str) -> list[str]:
    """Four days, the third of which is `today`."""
    first = datetime.fromisoformat(today) - timedelta(days=2)
    return [(first + timedelta(days=n)).date().isoformat() for n in range(4)]


def land_tiny_log(folder: Path, days: list[str]) -> None:
    """One flight a day, under the manifest of the log that params.yaml names: nothing to fetch."""
    columns = {field.name: pa.array([1]).cast(field.type) for field in FLIGHTS.schema}
    land_log(folder, FLIGHTS, lambda: ((day, pa.table(columns)) for day in days))


def save(folder: Path, message: str = "work") -> None:
    """Commit all files of a folder."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", message)


def until(true: Callable[[], object]) -> None:
    """Wait for something that comes."""
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(autouse=True, scope="module")
def no_draws_beside_other_tests() -> Iterator[None]:
    """End Prefect's senders, whose threads draw from `random` while a property test does."""
    yield
    from prefect.events.worker import EventsWorker

    EventsWorker.drain_all()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git and DVC project with today's params.yaml and prefect.yaml, and some days of log."""
    folder = tmp_path_factory.mktemp("template") / "project"
    folder.mkdir()
    project = HERE.parent.parent
    for name in ("params.yaml", "prefect.yaml", ".gitignore", ".dvcignore"):
        shutil.copyfile(project / name, folder / name)
    shutil.copyfile(HERE / "cheap.py", folder / "cheap.py")
    (folder / "metrics.json").write_text(json.dumps({key: None for _, key, _ in METRICS}))
    (folder / "dvc.yaml").write_text(DAG)
    git(folder, "init", "--quiet", "-b", "main")
    git(folder, "config", "user.name", "Somebody")
    git(folder, "config", "user.email", "somebody@example.org")
    dvc(folder, "init", "--quiet")
    shutil.copyfile(project / ".dvc/config", folder / ".dvc/config")
    today = datetime.now(ZoneInfo(FLIGHTS.time_zone)).date().isoformat()
    land_tiny_log(folder / "data", sorted({*days_around(today), *days_around("2013-09-29")}))
    dvc(folder, "add", "--quiet", "data")
    save(folder)
    return folder


@pytest.fixture
def checkout(template: Path, tmp_path: Path) -> Path:
    """The project, in a folder of its own."""
    return Path(shutil.copytree(template, tmp_path / "checkout", symlinks=True))


@pytest.fixture
def history(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with some code and a record of its own, where DVC is left out."""
    monkeypatch.setattr("flows.worktree.share_cache", lambda *_: None)
    monkeypatch.setattr("flows.worktree.restore_data", lambda *_: True)
    (checkout / "code.py").write_text("first\n")
    (checkout / "dvc.lock").write_text("of a person\n")
    (checkout / "reports").mkdir()
    (checkout / "reports/gate.json").write_text("{}\n")
    save(checkout)
    return checkout


def run_day(checkout: Path, day: str) -> None:
    """What a refresh does to the files it commits."""
    with release_worktree(checkout, "test") as release:
        take_code(checkout, release)
        (release / "params.yaml").write_text(f"last_day: {day}\n")
        (release / "dvc.lock").write_text(f"of {day}\n")
        (release / "reports/gate.json").write_text(f'{{"day": "{day}"}}\n')
        commit_day(release, day)


def add_remotes(checkout: Path) -> Path:
    """A bare git remote, and a DVC remote `stored` beside it."""
    bare, stored = checkout.parent / "remote.git", checkout.parent / "stored"
    git(checkout.parent, "init", "--quiet", "--bare", str(bare))
    git(checkout, "remote", "add", "origin", str(bare))
    dvc(checkout, "remote", "add", "--quiet", "--default", "kept", str(stored))
    save(checkout)
    return bare


def refuse_first_push(bare: Path, stored: Path) -> Path:
    """Let a git remote refuse the first push, and note what DVC's remote held at each."""
    (bare / "hooks/pre-receive").write_text(
        f"#!/bin/sh\nfind {stored} -type f | wc -l >> held\n[ $(wc -l < held) -gt 1 ]\n"
    )
    (bare / "hooks/pre-receive").chmod(0o755)
    return bare


@dataclass(frozen=True)
class Server:
    """A Prefect server and a worker, as `make up` starts them in a project of their own."""

    api: str
    project: Path

    def command(self, action: str, *options: str) -> "subprocess.CompletedProcess[str]":
        """`python -m flows.local`, run in the project as a person would."""
        return subprocess.run(
            [sys.executable, "-m", "flows.local", action, *options],
            check=False,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            cwd=self.project,
            env=os.environ
            | {"PREFECT_HOME": str(self.project / ".prefect"), "PREFECT_WORKER_QUERY_SECONDS": "3"},
        )

    def ask(self, what: str, **query: Any) -> Any:
        """The answer of the server to a POST, such as a filter; one that is busy is asked again."""
        request = urllib.request.Request(
            f"{self.api}/{what}", json.dumps(query).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer) if answer.status in (200, 201) else None
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
            time.sleep(0.5)
            return self.ask(what, **query)


def known_database(server: Server, home: Path) -> dict[str, str]:
    """A home of Prefect whose database need not be made first, which takes long."""
    home.mkdir()
    with (
        closing(sqlite3.connect(server.project / ".prefect/prefect.db")) as made,
        closing(sqlite3.connect(home / "prefect.db")) as copy,
    ):
        made.backup(copy)
    return {"PREFECT_HOME": str(home)}


def free_port() -> int:
    """A port of the loopback address that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def schedule_often(prefect_yaml: Path) -> None:
    """Let `refresh` be due every few seconds instead of daily, once it is resumed."""
    yaml = YAML()
    declared = yaml.load(prefect_yaml)
    declared["deployments"][0]["schedules"] = [{"interval": 15, "timezone": "America/New_York"}]
    declared["deployments"][0]["paused"] = True
    yaml.dump(declared, prefect_yaml)


@pytest.fixture(scope="session")
def prefect_server(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The one Prefect server of the session; the flows that tests call use it too."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    project = tmp_path_factory.mktemp("served") / "project"
    shutil.copytree(template, project, symlinks=True)
    schedule_often(project / "prefect.yaml")
    save(project)
    port = free_port()
    server = Server(f"http://127.0.0.1:{port}/api", project)
    try:
        started = server.command("up", "--port", str(port))
        assert f"Prefect is at http://127.0.0.1:{port}, a worker" in started.stdout, started.stderr
        with temporary_settings({PREFECT_API_URL: server.api}):
            yield server
    finally:
        server.command("down")
