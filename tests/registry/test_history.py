"""The history of production, from nothing but git: tags and the verdicts that commits hold."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline.cli.console import Voice, versions_table
from pipeline.cli.main import app
from pipeline.core.errors import ArtifactError, ToolError
from pipeline.registry.clean import named_by
from pipeline.registry.history import Span, history, status
from pipeline.registry.promote import on_hold
from pipeline.registry.tools.dvc import fetch
from pipeline.registry.verdicts import gate_of, production
from tests.registry.conftest import git, tagged

SINCE = ("2026-01-02 03:00", "2026-01-02 03:09")


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


def test_a_clone_that_git_reads_for_its_owner_alone_is_not_one_without_production(
    judged, monkeypatch
):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(ToolError, match=r"safe\.directory"):
        status(judged)


def test_the_table_has_a_line_for_each_time_in_production(judged, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")  # in a narrow window, cells are folded
    lines = versions_table(history(judged)).splitlines()
    assert any("v0.0.2" in line and "overrode pcoc" in line for line in lines)
    assert any(
        "2026-01-02 03:09 to now" in line and "rolled back to by Cleo" in line for line in lines
    )


def test_a_long_name_folds_beside_its_own_time_and_moves_no_other(judged, monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    found = history(judged)
    long = [replace(span, by="A user of a rather long name") for span in found[1].spans]
    lines = versions_table([replace(found[1], spans=tuple(long))]).splitlines()
    first, second = ([n for n, text in enumerate(lines) if since in text] for since in SINCE)
    assert "promoted by A" in lines[first[0]]
    assert "rolled back to" in lines[second[0]]


def test_reasons_are_shown_as_they_were_given(judged, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    reason = "refuse; overrode pcoc: [/promo] :smile: [red]x"
    assert reason in versions_table([replace(history(judged)[0], verdict=reason)])


def test_programs_get_the_same_as_json(judged, monkeypatch):
    (judged / "dvc.yaml").touch()
    (judged / ".dvc").mkdir()
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


def test_a_rollback_holds_what_promotes_by_itself_until_a_person_has_promoted(judged):
    held = on_hold(judged)
    assert all(name in held for name in ("Cleo", "v0.0.1", "v0.0.2"))
    assert held in status(judged)
    git(judged, "commit", "--quiet", "--allow-empty", "--message", "Judged")
    tagged(judged, "model@v0.0.3", 12)
    tagged(judged, "model#prod#5", 12)
    assert on_hold(judged) is None


def test_without_a_rollback_nothing_is_held(judged):
    for number in (4, 3):
        git(judged, "tag", "--delete", f"model#prod#{number}")
    assert on_hold(judged) is None
    for number in (2, 1):
        git(judged, "tag", "--delete", f"model#prod#{number}")
    assert on_hold(judged) is None


def test_without_a_version_there_is_no_history(judged, tmp_path_factory):
    empty = tmp_path_factory.mktemp("empty")
    with pytest.raises(ToolError, match="no clone of the project"):
        history(empty)
    git(empty, "init", "--quiet")
    assert history(empty) == []
    assert versions_table([]).startswith("no version was ever promoted")


def test_a_tag_by_another_name_assigns_nothing(judged):
    """GTO numbers its assignments; what a person called otherwise is no fault of the history."""
    before = versions_table(history(judged))
    for number, name in enumerate(("model#prod#latest", "model#prod#", "model@v0.0.2-rc1")):
        tagged(judged, name, 20 + number)
    git(judged, "tag", "model#prod#99")  # has no maker and no moment
    assert versions_table(history(judged)) == before


@pytest.mark.parametrize("content", ["", "{}", "[]", "<<<<<<< HEAD\n"])
def test_a_version_without_a_verdict_is_told_with_what_takes_its_tag_away(judged, content):
    (judged / "reports/gate.json").write_text(content)
    git(judged, "commit", "--quiet", "--all", "--message", "By hand")
    tagged(judged, "model@v0.0.3", 20)
    commit = git(judged, "rev-parse", "HEAD")[:10]
    with pytest.raises(ArtifactError, match=f"git tag --points-at {commit} names it"):
        history(judged)
    git(judged, "tag", "-d", "model@v0.0.3")
    assert len(history(judged)) == 2


@pytest.mark.parametrize("what", [":reports/gate.json", "^{tree}", "^{commit}"])
@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(b"")])
def test_what_git_lost_is_not_taken_for_what_never_was(judged, what, damage):
    """Nobody is told to remove the tag of a version, and no bytes of it are taken for unused."""
    commit = git(judged, "rev-parse", "model@v0.0.1^{}").strip()
    lost = git(judged, "rev-parse", f"{commit}{what}").strip()
    file = judged / ".git/objects" / lost[:2] / lost[2:]
    file.chmod(0o600)
    damage(file)
    with pytest.raises(ToolError, match="git fetch --refetch"):
        gate_of(judged, commit)
    if what != ":reports/gate.json":
        with pytest.raises(ToolError, match="git fetch --refetch"):
            named_by(judged, commit)
        with pytest.raises(ToolError, match="git fetch --refetch"):
            fetch(judged, commit, judged / "model")
