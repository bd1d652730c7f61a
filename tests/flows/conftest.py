"""A project whose stages take no time, and one Prefect server for all tests that need one."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

# Set before anything imports Prefect, so that no test sees or changes a developer's own.
os.environ["PREFECT_HOME"] = tempfile.mkdtemp(prefix="adacalib-prefect-")
os.environ.pop("PREFECT_API_URL", None)

from flows.settings import use_defaults
from pipeline.data.flights import KIND
from pipeline.data.landing import land_log
from pipeline.release.programs import git, run_leashed

use_defaults()
atexit.register(shutil.rmtree, os.environ["PREFECT_HOME"], ignore_errors=True)

HERE = Path(__file__).parent
DAG = """\
stages:
  gate:
    cmd: python cheap.py gate reports/gate.json
    deps: [cheap.py, reports/evaluation.json, artifacts/model]
    params: [gate]
    metrics: [reports/gate.json: {cache: false}]
  evaluate:
    cmd: python cheap.py evaluate reports/evaluation.json
    deps: [cheap.py, artifacts/model]
    params: [evaluate]
    metrics: [reports/evaluation.json: {cache: false}]
  validate:
    cmd: python cheap.py validate reports/validation.json
    deps: [cheap.py, data]
    params: [log, validate]
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
    columns = {field.name: pa.array([1]).cast(field.type) for field in KIND.schema}
    land_log(folder, KIND, lambda: ((day, pa.table(columns)) for day in days))


def save(folder: Path, message: str = "work") -> None:
    """Commit all files of a folder."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", message)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git and DVC project with today's params.yaml and prefect.yaml, and some days of log."""
    folder = tmp_path_factory.mktemp("template") / "project"
    folder.mkdir()
    project = HERE.parent.parent
    for name in ("params.yaml", "prefect.yaml", ".gitignore", ".dvcignore"):
        shutil.copyfile(project / name, folder / name)
    shutil.copyfile(HERE / "cheap.py", folder / "cheap.py")
    (folder / "dvc.yaml").write_text(DAG)
    git(folder, "init", "--quiet", "-b", "main")
    git(folder, "config", "user.name", "Somebody")
    git(folder, "config", "user.email", "somebody@example.org")
    run_leashed(["dvc", "init", "--quiet"], folder)
    shutil.copyfile(project / ".dvc/config", folder / ".dvc/config")
    today = datetime.now(ZoneInfo(KIND.time_zone)).date().isoformat()
    land_tiny_log(folder / "data", sorted({*days_around(today), *days_around("2013-09-29")}))
    run_leashed(["dvc", "add", "--quiet", "data"], folder)
    save(folder)
    return folder


@pytest.fixture
def checkout(template: Path, tmp_path: Path) -> Path:
    """The project, in a folder of its own."""
    return Path(shutil.copytree(template, tmp_path / "checkout", symlinks=True))


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[None]:
    """A Prefect server with an empty database, for all tests of the session."""
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=120):
        yield
