"""Promotion with real git, dvc and gto."""

import json
import os
import re
import shutil
import time

import pytest

from pipeline.core.errors import ArtifactError, ReleaseError, ToolError
from pipeline.registry import tags
from pipeline.registry.history import status
from pipeline.registry.promote import on_hold, promote, rollback
from pipeline.registry.pull import pull
from pipeline.registry.verdicts import production
from tests.dvc_here import dvc
from tests.registry.conftest import add_remotes, git, next_model, params, refused


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


def test_a_promoter_whose_name_gto_cannot_read_is_refused(folder, monkeypatch):
    monkeypatch.setenv("GIT_COMMITTER_NAME", "Zo\udceb")  # Latin-1
    refused(folder, "UTF-8")


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
@pytest.mark.parametrize("odd", ["GIT_COMMITTER_DATE=2020-01-02T03:04:05Z", "PYTHONWARNINGS=error"])
def test_what_a_shell_has_exported_decides_nothing(folder, monkeypatch, odd):
    promote(folder)
    next_model(folder, copies=2)
    monkeypatch.setenv(*odd.split("="))
    promote(folder)
    assert production(folder).version == "v0.0.2"


@pytest.mark.slow
def test_promotion_leaves_the_home_folder_alone(home):
    assert list(home.rglob("*")) == []
