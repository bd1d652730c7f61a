"""A small project with the walk's last two stages, under real git and dvc."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.core.errors import ReleaseError
from pipeline.registry.promote import promote
from tests.dvc_here import dvc

MAKE = """
import json, sys, time
from pathlib import Path
from ruamel.yaml import YAML
from pipeline.core.files import publish, sha256_of, write_json
from pipeline.core.files import write_checksums

params = YAML(typ="safe").load(Path("params.yaml").read_text())
stage, *paths = sys.argv[1:]
if params["refuse"] == stage:
    sys.exit(f"{stage}: the day 2013-09-30 has no rows")
time.sleep(params["seconds"])
if stage == "merge":
    with publish(Path(paths[1])) as folder:
        folder.mkdir()
        rows = Path(paths[0], "part.txt").read_text()
        (folder / "weights.txt").write_text(rows * params["copies"] + "!")
        write_checksums(folder, {"field_values": [None, "AA"]})
else:
    verdict = {
        "passed": params["passed"],
        "reasons": [] if params["passed"] else ["LogLoss gains nothing"],
        "checks": [{"name": "logloss_gain", "sentence": "LogLoss gains +0.01"}],
        "model_sha256": sha256_of(Path(paths[0], "manifest.json")),
        "last_day": params["last_day"],
    }
    write_json(Path(paths[1]), verdict)
"""
DAG = """
stages:
  merge:
    cmd: python make.py merge data artifacts/model
    deps: [data, make.py]
    params: [copies, seconds, refuse]
    outs: [artifacts/model]
  gate:
    cmd: python make.py gate artifacts/model reports/gate.json
    deps: [artifacts/model, make.py]
    params: [passed, last_day]
    metrics:
      - reports/gate.json: {cache: false}
artifacts:
  model: {path: artifacts/model, type: model}
"""
SETTINGS = "[core]\n    analytics = false\n    check_update = false\n"
PERSON = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "Ann"), ("EMAIL", "ann@example.org"))
}


def params(folder: Path, **values: object) -> None:
    """Write params.yaml with the given values in place of the usual ones."""
    usual = {"copies": 1, "seconds": 0, "refuse": "", "passed": True, "last_day": "2013-09-30"}
    lines = [
        f"{name}: {str(value).lower() if isinstance(value, bool) else repr(value)}\n"
        for name, value in (usual | values).items()
    ]
    (folder / "params.yaml").write_text("".join(lines))


def git(folder: Path, *arguments: str, **variables: str) -> str:
    """The output of a git command."""
    environment = os.environ | variables
    return subprocess.run(
        ["git", *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    ).stdout


@pytest.fixture(scope="package", autouse=True)
def home(tmp_path_factory):
    """No configuration of the person who runs the tests is read, and nothing of theirs written."""
    home_folder = tmp_path_factory.mktemp("home")
    own = {
        **PERSON,
        "HOME": str(home_folder),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "DVC_NO_ANALYTICS": "1",
        "DVC_SITE_CACHE_DIR": str(tmp_path_factory.mktemp("site")),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in own.items():
            patch.setenv(name, value)
        patch.setenv(
            "PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        )
        yield home_folder


@pytest.fixture(scope="package")
def made(home, tmp_path_factory) -> Path:
    """The project after its first run, everything committed; never to be changed."""
    folder = tmp_path_factory.mktemp("made") / "project"
    (folder / ".dvc").mkdir(parents=True)
    (folder / "data").mkdir()
    (folder / "pipeline").mkdir()
    (folder / "data" / "part.txt").write_text("rows")
    (folder / "pipeline" / "code.py").write_text("CODE = 1\n")
    (folder / "make.py").write_text(MAKE)
    (folder / "dvc.yaml").write_text(DAG)
    (folder / ".dvc" / "config").write_text(SETTINGS)
    (folder / ".dvc" / ".gitignore").write_text("/config.local\n/tmp\n/cache\n")
    (folder / ".gitignore").write_text("/data\n/artifacts\n")
    params(folder)
    git(folder.parent, "init", "--quiet", "--initial-branch=main", str(folder))
    dvc(folder, "add", "data")
    dvc(folder, "repro")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "The project")
    return folder


@pytest.fixture
def folder(made, tmp_path) -> Path:
    """A copy of the project to work on."""
    return Path(shutil.copytree(made, tmp_path / "project", symlinks=True))


def add_remotes(folder: Path) -> None:
    """Give the project a bare git remote and a DVC remote beside it; all is pushed but tags."""
    git(folder.parent, "init", "--quiet", "--bare", "remote.git")
    (folder.parent / "store").mkdir()
    with (folder / ".dvc/config").open("a") as file:
        file.write("    remote = store\n['remote \"store\"']\n    url = ../../store\n")
    git(folder, "commit", "--quiet", "--all", "--message", "A DVC remote")
    git(folder, "remote", "add", "origin", "../remote.git")
    git(folder, "push", "--quiet", "--set-upstream", "origin", "main")


def next_model(folder: Path, **values: object) -> None:
    """Make another model, with the given parameters, of a newer day."""
    params(folder, **{"last_day": "2013-10-01"} | values)
    dvc(folder, "repro")


@pytest.fixture
def shared(folder) -> Path:
    """The project with remotes, nothing in production."""
    add_remotes(folder)
    return folder


@pytest.fixture(scope="package")
def made_twice(made, tmp_path_factory) -> Path:
    """The project with remotes and v0.0.2 in production in place of v0.0.1; not to be changed."""
    place = tmp_path_factory.mktemp("twice")
    folder = Path(shutil.copytree(made, place / "project", symlinks=True))
    add_remotes(folder)
    promote(folder)
    next_model(folder, copies=2)
    promote(folder)
    return place


@pytest.fixture
def twice(made_twice, tmp_path) -> Path:
    """A copy of `made_twice` to work on."""
    shutil.copytree(made_twice, tmp_path, symlinks=True, dirs_exist_ok=True)
    return tmp_path / "project"


@pytest.fixture
def host(twice, tmp_path) -> Path:
    """Another machine's clone of `twice`, with no cache."""
    git(tmp_path, "clone", "--quiet", "--no-tags", "--branch", "main", "remote.git", "host")
    return tmp_path / "host"


def tagged(folder: Path, name: str, minute: int, commit: str = "HEAD", who: str = "Ann") -> None:
    """An annotated tag of a certain minute."""
    date = f"2026-01-02T03:{minute:02d}:00Z"
    git(
        folder, "tag", "--annotate", "--message", "said", name, commit,
        GIT_COMMITTER_DATE=date, GIT_COMMITTER_NAME=who,
    )  # fmt: skip


@pytest.fixture
def judged(tmp_path) -> Path:
    """A git repository with two versions; the second was refused and overridden, then left."""
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    (tmp_path / "reports").mkdir()
    gate = {
        "passed": True,
        "reasons": [],
        "model_sha256": "a" * 64,
        "last_day": "2026-01-01",
        "checks": [],
    }
    check = {"name": "pcoc", "passed": False, "structural": False, "sentence": "PCOC is 3"}
    other = gate | {"passed": False, "last_day": "2026-01-02", "checks": [check]}
    spoken = {
        "model_sha256": "a" * 64,
        "reason": "the mix is meant",
        "who": "Bob <bob@example.org>",
        "checks": ["pcoc"],
    }
    for files in ({"gate": gate}, {"gate": other, "override": spoken}):
        for name, content in files.items():
            (tmp_path / f"reports/{name}.json").write_text(json.dumps(content))
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "--quiet", "--message", "Judged")
    first, second = git(tmp_path, "rev-list", "--reverse", "HEAD").split()
    tagged(tmp_path, "model@v0.0.1", 0, first)
    tagged(tmp_path, "model#prod#1", 0, first)
    tagged(tmp_path, "model@v0.0.2", 5, second, "Bob")
    tagged(tmp_path, "model#prod#2", 5, second, "Bob")
    tagged(tmp_path, "model#prod#3", 9, first, "Cleo")
    tagged(tmp_path, "model#prod#4", 11, first, "Dan")  # again the same: no change of production
    return tmp_path


def state(folder: Path) -> tuple[str, str]:
    """What a promotion may change: the commit and the tags."""
    return git(folder, "rev-parse", "HEAD"), git(folder, "for-each-ref", "refs/tags")


def refused(folder: Path, match: str, error: type[Exception] = ReleaseError) -> None:
    """Promotion is refused with a sentence, and changes neither commits nor tags."""
    before = state(folder)
    with pytest.raises(error, match=match):
        promote(folder)
    assert state(folder) == before
