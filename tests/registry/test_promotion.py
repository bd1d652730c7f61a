"""Promotion with real git, dvc and gto."""

import json
import os
import re
import shutil
import time
from pathlib import Path

import pytest

from pipeline.cli.doctor import diagnoses
from pipeline.core.errors import ArtifactError, ReleaseError, ToolError
from pipeline.registry import tags
from pipeline.registry.history import status
from pipeline.registry.promote import on_hold, promote, rollback
from pipeline.registry.pull import pull
from pipeline.registry.tools import dvc as dvc_tool
from pipeline.registry.verdicts import production
from tests.dvc_here import dvc
from tests.registry.conftest import add_remotes, git, next_model, params


def state(folder: Path) -> tuple[str, str]:
    """What a promotion may change: the commit and the tags."""
    return git(folder, "rev-parse", "HEAD"), git(folder, "for-each-ref", "refs/tags")


def refused(folder: Path, match: str, error: type[Exception] = ReleaseError) -> None:
    """Promotion is refused with a sentence, and changes neither commits nor tags."""
    before = state(folder)
    with pytest.raises(error, match=match):
        promote(folder)
    assert state(folder) == before


def test_nothing_is_in_production_at_first(folder):
    assert production(folder) is None
    assert "Nothing is in production" in status(folder)
    assert "passed its verdict" in status(folder)


def test_a_folder_outside_git_has_no_production(tmp_path):
    assert "Nothing is in production" in status(tmp_path)
    assert "dvc repro" in status(tmp_path)


def test_a_verdict_that_says_no_is_not_promoted_and_its_reasons_are_repeated(folder):
    gate = json.loads((folder / "reports/gate.json").read_text())
    gate |= {"passed": False, "reasons": ["PCOC is 3.1"]}
    (folder / "reports/gate.json").write_text(json.dumps(gate))
    refused(folder, "PCOC is 3.1")
    assert "PCOC is 3.1" in status(folder)


@pytest.mark.parametrize("passed", [None, "true", 1])
def test_only_true_is_a_pass(folder, passed):
    gate = json.loads((folder / "reports/gate.json").read_text()) | {"passed": passed}
    (folder / "reports/gate.json").write_text(json.dumps(gate))
    refused(folder, "the verdict is no.*dvc repro")


def test_a_clock_that_was_set_back_orders_no_assignment_before_the_newest(folder):
    """The newest was made an hour ahead: nothing changes until the clock has passed it, or until
    somebody does what the sentence says.
    """
    promote(folder)
    newest = git(folder, "tag", "--list", "*#*").strip()
    later = f"{int(time.time()) + 3600} +0000"
    again = "tag", "--annotate", "--force", "--message", "promoted", newest, f"{newest}^{{}}"
    git(folder, *again, GIT_COMMITTER_DATE=later)
    next_model(folder, copies=2)
    named = re.escape(f"git tag -d {newest}")
    refused(folder, f"in the future of this machine's clock; set the clock right.*{named}")
    assert production(folder).version == "v0.0.1"
    assert "v0.0.1" in status(folder)
    git(folder, "tag", "--delete", newest)
    assert promote(folder).startswith("v0.0.2 is in production")


@pytest.mark.parametrize("keep_stamp", [True, False])
@pytest.mark.parametrize("name", ["artifacts/model/weights.txt", "artifacts/model/manifest.json"])
def test_a_damaged_file_is_mended_as_the_sentence_says(folder, name, keep_stamp):
    """Also where DVC takes it for the same by its size and time stamp."""
    file = folder / name
    stamp, good = file.stat(), file.read_bytes()
    file.chmod(0o644)
    file.write_bytes(good[:-2] + b"?" + good[-1:])
    if keep_stamp:
        os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    refused(folder, f"{file.name} is not.*; remove it, and dvc repro", ArtifactError)
    file.unlink()
    dvc(folder, "repro", "--quiet")
    assert file.read_bytes() == good
    assert promote(folder).startswith("v0.0.1")


def test_without_a_verdict_nothing_is_promoted(folder):
    (folder / "reports/gate.json").unlink()
    refused(folder, r"gate\.json does not exist", ArtifactError)


def test_a_verdict_about_another_model_does_not_count(folder):
    gate = json.loads((folder / "reports/gate.json").read_text()) | {"model_sha256": "0" * 64}
    (folder / "reports/gate.json").write_text(json.dumps(gate))
    refused(folder, "judged the model 0000000000")


def test_a_model_that_dvc_lock_does_not_name_is_not_promoted(folder):
    lock = folder / "dvc.lock"
    lock.write_text(lock.read_text().replace(".dir", "0.dir"))
    refused(folder, "is not about what is here")


@pytest.mark.parametrize("name", ["pipeline/code.py", "pipeline/new.py", "dvc.yaml"])
def test_modified_code_is_refused_by_name(folder, name):
    with (folder / name).open("a") as file:
        file.write("# changed\n")
    refused(folder, name)


def test_a_note_beside_the_code_is_nobodys_business(folder):
    (folder / "notes.txt").write_text("remember")
    params(folder, passed=False)
    refused(folder, "the verdict is not about what is here: gate")  # it got past the code


def test_a_hook_that_refuses_the_commit_is_quoted_and_passed_as_the_sentence_says(folder):
    hook = folder / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\necho reports/gate.json is no house style; exit 1\n")
    hook.chmod(0o755)
    next_model(folder, copies=2)
    refused(folder, r"gate.json is no house style; .*git commit --no-verify", ToolError)
    git(folder, "commit", "--quiet", "--no-verify", "--all", "--message", "As it was made")
    assert promote(folder).startswith("v0.0.1 is in production")


def test_an_unknown_promoter_is_refused(folder, monkeypatch):
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.delenv(f"GIT_{role}_NAME")
        monkeypatch.delenv(f"GIT_{role}_EMAIL")
    refused(folder, "git does not know who promotes")


def test_a_copy_inside_another_repository_is_no_place_to_promote_from(folder):
    inner = folder / "demo"
    shutil.copytree(folder / "reports", inner / "reports")
    with pytest.raises(ReleaseError, match="not the top of a git repository"):
        promote(inner)


def test_commits_on_no_branch_are_refused(folder):
    git(folder, "switch", "--quiet", "--detach")
    refused(folder, "on no branch")
    assert "on no branch" in status(folder)


def test_a_repository_without_commits_is_refused(tmp_path):
    git(tmp_path, "init", "--quiet")
    with pytest.raises(ReleaseError, match="has no commit"):
        promote(tmp_path)


def test_several_remotes_of_which_none_is_meant_are_refused(folder):
    for name in ("one", "two"):
        git(folder, "remote", "add", name, str(folder.parent / name))
    refused(folder, "none is tracked")


def test_the_only_remote_is_meant_whatever_its_name(shared):
    git(shared, "remote", "rename", "origin", "company")
    git(shared, "switch", "--quiet", "--create", "release")  # as in the worktree of days
    assert "follows git remote 'company'" in promote(shared)


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
def test_without_a_git_remote_a_promotion_is_this_clones_own_and_says_so(folder):
    said = promote(folder)
    assert "v0.0.1 is in production (in this clone alone: it has no git remote)" in said
    assert "this folder's DVC cache alone" in said
    first = production(folder)
    assert (first.version, first.last_day) == ("v0.0.1", "2013-09-30")
    assert first.commit == git(folder, "rev-parse", "HEAD").strip()
    assert "it is in production since" in promote(folder)  # again: nothing to do
    got = folder.parent / "got"
    dvc(folder, "artifacts", "get", ".", "model", "--stage", "prod", "-o", str(got))
    assert (got / "weights.txt").read_text() == "rows!"


@pytest.mark.slow
def test_a_promotion_sends_no_tags_of_a_persons_own(shared, tmp_path):
    git(shared, "config", "push.followTags", "true")
    git(shared, "tag", "--annotate", "--message", "mine", "before-the-trip")
    promote(shared)
    tags = git(tmp_path / "remote.git", "tag", "--list").split()
    assert tags == ["model#prod#1", "model@v0.0.1"]


def test_versions_follow_one_another_and_rollback_goes_back_and_never_forward(twice):
    """An older day never replaces a newer version, whoever promotes it late."""
    second = production(twice)
    assert (second.version, second.last_day) == ("v0.0.2", "2013-10-01")
    assert git(twice, "show", f"{second.commit}:params.yaml") == (
        (twice / "params.yaml").read_text()
    )
    assert git(twice, "status", "--porcelain") == ""
    assert "v0.0.2 is in production since" in status(twice)
    assert "LogLoss gains +0.01" in status(twice)
    assert "The model of this folder is the one in production" in status(twice)

    next_model(twice, copies=3, last_day="2013-09-15")
    refused(twice, "an older model never replaces a newer one")

    git(twice, "switch", "--quiet", "--detach")  # it makes no commit that could be lost
    said = rollback(twice)
    assert "v0.0.1 is back in production in place of v0.0.2" in said
    assert on_hold(twice) in said
    git(twice, "switch", "--quiet", "main")
    assert production(twice).version == "v0.0.1"
    with pytest.raises(ReleaseError, match=r"nothing was in production before v0\.0\.1, so there"):
        rollback(twice)
    with pytest.raises(ReleaseError, match=r"registry has v0\.0\.1, v0\.0\.2"):
        rollback(twice, "v0.0.9")
    assert production(twice).version == "v0.0.1"
    next_model(twice, copies=2, last_day="2013-10-01")
    refused(twice, "v0.0.2 is this model, which was in production before and is not now")


@pytest.mark.slow
def test_what_was_promoted_before_there_was_a_remote_is_gone_back_to_where_others_can(
    folder, tmp_path
):
    """Its tag goes along with the next promotion; its bytes have to be sent."""
    promote(folder)
    add_remotes(folder)
    next_model(folder, copies=2)
    promote(folder)
    git(tmp_path, "clone", "--quiet", "--branch", "main", "remote.git", "host")
    assert list(tags.versions(tmp_path / "host")) == ["v0.0.1", "v0.0.2"]

    with pytest.raises(ToolError, match=r"reading the model .* nothing was changed: .* dvc push"):
        rollback(folder)
    assert production(folder).version == "v0.0.2"
    git(folder, "restore", "--source", "model@v0.0.1", "dvc.lock", "data.dvc")
    dvc(folder, "push")
    git(folder, "restore", "dvc.lock", "data.dvc")
    assert "v0.0.1 is back in production in place of v0.0.2" in rollback(folder)
    pull(tmp_path / "host", tmp_path / "serving")
    assert (tmp_path / "serving/weights.txt").read_text() == "rows!"


@pytest.mark.parametrize(
    ("order", "before"),
    [
        ("1", None),
        ("12", "1"),
        ("123", "2"),
        ("1232", "1"),  # after one rollback, the next goes further back
        ("12321", None),
        ("1214", "1"),  # 2 was rolled back from: 4 took the place of 1
        ("12313", "2"),  # a person named 3 to go forward again
    ],
)
def test_the_predecessor_is_what_was_there_when_the_version_first_came(order, before):
    held = [tags.Tag(v, v * 40, f"model#prod#{n}", n) for n, v in enumerate(order, 1)]
    found = tags.predecessor(held)
    assert (found.version if found else None) == before


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


@pytest.mark.slow
def test_promotion_leaves_the_home_folder_alone(home):
    assert list(home.rglob("*")) == []
