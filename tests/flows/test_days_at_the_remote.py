"""The release branch at the git remote: data first, then git; what failed is finished later."""

import shutil
from pathlib import Path

import pytest

from flows import worktree
from flows.arrival import landed_days
from flows.worktree import (
    committed_days,
    fetch_days,
    git_output,
    release_worktree,
    share,
    take_code,
    unshared,
)
from pipeline.core.errors import ReleaseError, ToolError
from pipeline.registry.tools.programs import git
from tests.dvc_here import dvc
from tests.flows.conftest import land_tiny_log, run_day, save

REFUSING = """\
#!/bin/sh
left=$(cat left)
[ -z "$left" ] && exit 0
printf %s "${left#x}" > left
exit 1
"""


@pytest.fixture
def remote(history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bare git remote of `history`; the pushes of data are noted in `pushed` beside it."""
    bare = tmp_path / "remote.git"
    git(tmp_path, "init", "--quiet", "--bare", str(bare))
    git(history, "remote", "add", "origin", str(bare))
    monkeypatch.setattr(worktree, "dvc_remote", lambda folder: "somewhere")

    def push(release: Path) -> None:
        with (tmp_path / "pushed").open("a") as file:
            file.write((release / "dvc.lock").read_text())

    monkeypatch.setattr(worktree, "push", push)
    return bare


def refuse_pushes(bare: Path, times: int) -> None:
    """Let the remote refuse so many pushes."""
    hook = bare / "hooks/pre-receive"
    (bare / "left").write_text("x" * times)
    hook.write_text(REFUSING)
    hook.chmod(0o755)


def shared_days(bare: Path) -> list[str]:
    """The days at the remote, the last one first."""
    known = git(bare, "rev-parse", "--verify", "--quiet", "release", check=False)
    return [] if known.code else committed_days(bare, "release")


def test_a_push_that_fails_is_finished_by_the_next_run_with_the_data_of_every_day(
    history,
    remote,
    tmp_path,
):
    refuse_pushes(remote, 2)
    git(history, "config", "push.followTags", "true")
    git(history, "tag", "--annotate", "--message", "a person's own", "before-the-trip")
    for day, whole in (("2013-09-28", False), ("2013-09-29", False), ("2013-09-30", True)):
        run_day(history, day)
        with release_worktree(history, "test") as release:
            state = share.fn(str(release))
            assert state.is_completed() == whole, state.message
            assert git_output(release, "status", "--porcelain") == ""
            assert (release / "dvc.lock").read_text() == f"of {day}\n"
    assert shared_days(remote) == ["2013-09-30", "2013-09-29", "2013-09-28"]
    # Data goes before the branch, so that of a day was sent again with each try.
    sent = (tmp_path / "pushed").read_text().splitlines()
    assert sent[-3:] == ["of 2013-09-28", "of 2013-09-29", "of 2013-09-30"]
    with release_worktree(history, "test") as release:
        assert unshared(release) == []
        assert share.fn(str(release)).message == "nothing to push"
    assert not git_output(remote, "tag", "--list")


def test_data_that_cannot_be_sent_keeps_the_branch_back(history, remote, monkeypatch):
    def refuse(*_):
        raise ToolError("dvc push failed: the bucket is away")

    monkeypatch.setattr(worktree, "push", refuse)
    run_day(history, "2013-09-30")
    with release_worktree(history, "test") as release:
        assert share.fn(str(release)).message == "dvc push failed: the bucket is away"
    assert shared_days(remote) == []


def test_days_of_another_clone_are_followed_and_parted_ways_are_refused(
    history,
    remote,
    tmp_path,
):
    run_day(history, "2013-09-28")
    with release_worktree(history, "test") as release:
        share.fn(str(release))
    other = tmp_path / "other"
    git(tmp_path, "clone", "--quiet", "--branch", "release", str(remote), str(other))
    git(other, "config", "user.name", "Other")
    git(other, "config", "user.email", "other@example.org")
    git(other, "commit", "--quiet", "--allow-empty", "--message", "day=2013-09-29")
    git(other, "push", "--quiet")
    with release_worktree(history, "test") as release:
        fetch_days(release)
        assert committed_days(release) == ["2013-09-29", "2013-09-28"]
    git(other, "commit", "--quiet", "--allow-empty", "--message", "day=2013-09-30")
    git(other, "push", "--quiet")
    run_day(history, "2013-10-01")
    with (
        release_worktree(history, "test") as release,
        pytest.raises(ReleaseError, match=r"lacks what this clone has \(2013-10-01\); choose one"),
    ):
        fetch_days(release)


def test_a_clone_whose_first_run_failed_goes_on_from_the_days_of_another(history, remote, tmp_path):
    """Its branch has code alone, newer than theirs, and its worktree what the run left."""
    other = tmp_path / "other"
    git(tmp_path, "clone", "--quiet", str(history), str(other))
    (other / "champion.json").write_text("{}\n")
    save(other, "day=2013-09-28")
    git(other, "push", "--quiet", str(remote), "HEAD:release")
    (history / "code.py").write_text("newer\n")
    save(history)
    with release_worktree(history, "test") as release:
        (release / "champion.json").write_text("pinned before the run failed\n")
    with release_worktree(history, "test") as release:
        fetch_days(release)
        assert committed_days(release) == ["2013-09-28"]
        assert (release / "champion.json").read_text() == "{}\n"


def test_without_a_remote_there_is_nothing_to_push(history):
    run_day(history, "2013-09-30")
    with release_worktree(history, "test") as release:
        fetch_days(release)
        assert share.fn(str(release)).message == "nothing to push"


@pytest.mark.slow
def test_another_machine_goes_on_from_the_days_at_the_remotes(checkout, tmp_path):
    """Neither its cache nor the files in which the days arrived have them."""
    bare, store = tmp_path / "remote.git", tmp_path / "store"
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", str(bare))
    dvc(checkout, "remote", "add", "--quiet", "--default", "store", str(store))
    save(checkout, "A DVC remote")
    git(checkout, "remote", "add", "origin", str(bare))
    git(checkout, "push", "--quiet", "origin", "main")
    dvc(checkout, "push", "--quiet")
    begun = landed_days(checkout)
    git(tmp_path, "clone", "--quiet", str(bare), str(tmp_path / "other"))
    with release_worktree(tmp_path / "other", "test") as release:
        assert landed_days(release) == begun

    shutil.rmtree(checkout / "data")
    land_tiny_log(checkout / "data", [*begun, "2030-01-01"])
    dvc(checkout, "add", "--quiet", "data")
    save(checkout, "day=2030-01-01")
    dvc(checkout, "push", "--quiet")
    git(checkout, "push", "--quiet", "origin", "HEAD:release")
    with release_worktree(tmp_path / "other", "test") as release:
        fetch_days(release)
        assert landed_days(release) == [*begun, "2030-01-01"]

    (checkout / "code.py").write_text("newer than the last day\n")
    save(checkout)
    git(checkout, "push", "--quiet", "origin", "main")
    shallow = ("--depth=1", f"file://{bare}")  # its code seems to have nothing to do with the days
    git(tmp_path, "clone", "--quiet", *shallow, str(tmp_path / "third"))
    with release_worktree(tmp_path / "third", "test") as release:
        fetch_days(release)
        take_code(tmp_path / "third", release)
        assert landed_days(release) == [*begun, "2030-01-01"]
        assert (release / "code.py").exists()
