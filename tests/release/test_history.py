"""The history of production, from nothing but git: tags and the verdicts that commits hold."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline.cli import app
from pipeline.errors import ReleaseError
from pipeline.release.history import Span, history, table
from pipeline.release.promotion import production
from pipeline.voice import Voice
from tests.release.conftest import git


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
    gate = {"passed": True, "model_sha256": "a" * 64, "last_day": "2026-01-01", "checks": []}
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


def test_versions_come_newest_first_with_their_times_in_production(judged):
    second, first = history(judged)
    assert (second.version, second.last_day, second.by) == ("v0.0.2", "2026-01-02", "Bob")
    assert second.verdict == ("refuse; Bob <bob@example.org> overrode pcoc: the mix is meant")
    assert second.spans == (Span("2026-01-02 03:05", "2026-01-02 03:09", "promoted", "Bob"),)
    assert (first.version, first.verdict, first.registered) == (
        "v0.0.1", "pass", "2026-01-02 03:00",
    )  # fmt: skip
    assert first.spans == (
        Span("2026-01-02 03:00", "2026-01-02 03:05", "promoted", "Ann"),
        Span("2026-01-02 03:09", None, "rolled back to", "Cleo"),
    )
    assert production(judged).since == "2026-01-02 03:09 UTC"


def test_the_table_has_a_line_for_each_time_in_production(judged, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")  # in a narrow window, cells are folded
    lines = table(history(judged)).splitlines()
    assert any("v0.0.2" in line and "overrode pcoc" in line for line in lines)
    assert any(
        "2026-01-02 03:09 to now" in line and "rolled back to by Cleo" in line for line in lines
    )


def test_programs_get_the_same_as_json(judged, monkeypatch):
    monkeypatch.chdir(judged)
    monkeypatch.setattr(Voice, "as_json", False)  # as it was, afterwards
    done = CliRunner().invoke(app, ["--json", "history"])
    told = json.loads(done.output)["versions"]
    assert [version["version"] for version in told] == ["v0.0.2", "v0.0.1"]
    assert told[1]["spans"][1] == {
        "since": "2026-01-02 03:09",
        "until": None,
        "how": "rolled back to",
        "by": "Cleo",
    }


def test_without_a_version_there_is_no_history(judged, tmp_path_factory):
    empty = tmp_path_factory.mktemp("empty")
    with pytest.raises(ReleaseError, match="no clone of the project"):
        history(empty)
    git(empty, "init", "--quiet")
    with pytest.raises(ReleaseError, match="no version was ever promoted"):
        history(empty)
