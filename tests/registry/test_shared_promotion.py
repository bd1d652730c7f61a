"""Promotion that others follow: by a git remote, which says so, and DVC's, which has the bytes."""

import re
import shutil
from pathlib import Path

import pytest

from pipeline.cli.doctor import diagnoses
from pipeline.core.errors import ArtifactError, ReleaseError, ToolError
from pipeline.registry import tags
from pipeline.registry.history import status
from pipeline.registry.promote import promote, rollback
from pipeline.registry.tools import dvc as dvc_tool
from pipeline.registry.verdicts import production
from tests.dvc_here import dvc
from tests.registry.conftest import git, next_model, refused


def test_several_remotes_of_which_none_is_meant_are_refused(folder):
    for name in ("one", "two"):
        git(folder, "remote", "add", name, str(folder.parent / name))
    refused(folder, "none is tracked")


def test_the_only_remote_is_meant_whatever_its_name(shared):
    git(shared, "remote", "rename", "origin", "company")
    git(shared, "switch", "--quiet", "--create", "release")  # as in the worktree of days
    assert "follows git remote 'company'" in promote(shared)


@pytest.mark.slow
def test_what_a_remote_took_before_it_went_away_is_in_production(shared, tmp_path):
    """Its answer was lost; where it cannot be asked again either, nothing is claimed."""
    hook = tmp_path / "remote.git/hooks/post-receive"
    hook.write_text("#!/bin/sh\nkill -9 $PPID\n")
    hook.chmod(0o755)
    assert "v0.0.1 is in production" in promote(shared)
    hook.write_text(f"#!/bin/sh\nmv {tmp_path}/remote.git {tmp_path}/away\nkill -9 $PPID\n")
    next_model(shared, copies=2)
    with pytest.raises(ReleaseError, match="nobody can say"):
        promote(shared)
    (tmp_path / "away").rename(tmp_path / "remote.git")
    assert "v0.0.2 is this model: it is in production" in promote(shared)


def test_a_shallow_clone_goes_back_whatever_a_person_refuses(twice, tmp_path, monkeypatch):
    shallow, source = tmp_path / "shallow", f"file://{tmp_path}/remote.git"
    git(tmp_path, "clone", "--quiet", "--depth=1", "--branch=main", source, str(shallow))
    refusing = {"COUNT": "1", "KEY_0": "clone.rejectShallow", "VALUE_0": "true"}
    for name, value in refusing.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    assert "v0.0.1 is back in production" in rollback(shallow)


def test_a_remote_that_does_not_answer_is_refused(folder):
    git(folder, "remote", "add", "origin", str(folder.parent / "nowhere"))
    refused(folder, "does not answer")
    assert status(folder).startswith("As far as this clone knows (git remote 'origin' does not ans")


def test_a_version_whose_bytes_nobody_could_fetch_is_not_told_to_everyone(folder, monkeypatch):
    git(folder.parent, "init", "--quiet", "--bare", "remote.git")
    git(folder, "remote", "add", "origin", "../remote.git")
    refused(folder, "no default DVC remote that says where the bytes are: dvc remote add")
    monkeypatch.chdir(folder)  # and the doctor knows it the evening before
    said = {name: (good, how) for name, good, how in diagnoses()}
    assert not said["dvc cache and remote"][0]
    assert "no default DVC remote" in said["dvc cache and remote"][1]


@pytest.mark.slow
def test_a_promotion_sends_no_tags_of_a_persons_own(shared, tmp_path):
    git(shared, "config", "push.followTags", "true")
    git(shared, "tag", "--annotate", "--message", "mine", "before-the-trip")
    promote(shared)
    tags = git(tmp_path / "remote.git", "tag", "--list").split()
    assert tags == ["model#prod#1", "model@v0.0.1"]


@pytest.mark.slow
def test_of_two_promoters_of_a_remote_the_second_loses_whole(shared, tmp_path, monkeypatch):
    """They overlap, one wins, the other says so and has changed nothing."""
    other = Path(shutil.copytree(shared, tmp_path / "other", symlinks=True))
    next_model(other, copies=2)

    def promoted_in_between(folder):
        """The other promoter was faster after this one had looked."""
        monkeypatch.undo()
        fetch(folder)
        said = promote(other)
        assert "v0.0.1 is in production (for everyone who follows git remote 'origin')" in said
        assert f"read back from DVC remote {tmp_path / 'store'}" in said

    fetch = tags.fetch_tags
    monkeypatch.setattr(tags, "fetch_tags", promoted_in_between)
    refused(shared, "another promotion came first")
    with pytest.raises(ReleaseError, match=r"v0\.0\.1 .* made from days up to 2013-10-01"):
        promote(shared)
    assert tags.assignments(shared) == tags.assignments(other)
    assert tags.assignments(tmp_path / "remote.git") == tags.assignments(other)
    assert production(shared).last_day == "2013-10-01"


@pytest.mark.slow
def test_tags_that_are_here_alone_are_told_and_sent_by_the_same_promotion_again(twice, tmp_path):
    bare = tmp_path / "remote.git"
    git(bare, "tag", "--delete", "model@v0.0.2", "model#prod#2")
    git(twice, "config", "fetch.prune", "true")  # a person's habit, which takes no tag of ours
    assert status(twice).startswith("As far as this clone knows (git remote 'origin' lacks 2 tags")
    promote(twice)
    assert [a.version for a in tags.assignments(bare)] == ["v0.0.1", "v0.0.2"]
    assert status(twice).startswith("v0.0.2 is in production")


def test_a_lock_that_a_killed_git_left_is_not_taken_for_another_promoter(shared, tmp_path):
    lock = tmp_path / "remote.git/refs/tags/model@v0.0.9.lock"
    lock.touch()
    new = {"refs/tags/model@v0.0.9": git(shared, "rev-parse", "HEAD").strip()}
    with pytest.raises(ReleaseError, match=re.escape(lock.name)):
        tags.push_tags(shared, new)
    lock.unlink()
    tags.push_tags(shared, new)


@pytest.mark.slow
def test_what_the_remote_lost_while_it_was_pushed_is_not_promoted(shared, tmp_path, monkeypatch):
    pushed = dvc_tool.push

    def push_and_lose(folder):
        pushed(folder)
        for stored in (tmp_path / "store/files").rglob("*"):
            if stored.is_file() and stored.read_bytes() == b"rows!":
                stored.unlink()

    monkeypatch.setattr(dvc_tool, "push", push_and_lose)
    with pytest.raises(ToolError, match=r"reading the model of commit .* from DVC remote") as error:
        promote(shared)
    listed = re.search(r"remove (\S+) there, if", str(error.value))
    assert (tmp_path / "store" / listed[1]).is_file()
    assert production(shared) is None


@pytest.mark.slow
def test_bytes_damaged_at_the_remote_are_named_with_the_step_that_mends_them(shared, tmp_path):
    """What the sentence says to remove is there, and promoting again sends it again."""
    for content in (b"rowt!", b""):
        dvc(shared, "push")
        (stored,) = (
            p for p in (tmp_path / "store").rglob("*") if p.is_file() and p.read_bytes() == b"rows!"
        )
        stored.chmod(0o644)
        stored.write_bytes(content)
        with pytest.raises(ArtifactError, match=r"^weights\.txt is not as .* DVC remote") as error:
            promote(shared)
        assert str(tmp_path / "store") in str(error.value)
        assert "adacalib-" not in str(error.value)
        removed = re.search(r"remove (\S+) and (\S+) there, and send", str(error.value))
        assert tmp_path / "store" / removed[1] == stored
        for name in removed.groups():
            (tmp_path / "store" / name).unlink()
        assert production(shared) is None
    assert "read back from DVC remote" in promote(shared)
