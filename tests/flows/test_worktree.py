"""The release worktree: whose code, whose record, one at a time, days that only move forward."""

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from flows.worktree import (
    BACKFILL,
    commit_day,
    committed_days,
    git_output,
    newest_day,
    release_worktree,
    take_code,
)
from pipeline.core.errors import ReleaseError, ToolError
from pipeline.registry.tools.dvc import commit_data
from pipeline.registry.tools.programs import git
from pipeline.registry.tools.stores import cache_folder, dvc_remote
from tests.flows.conftest import run_day, save


def test_the_worktree_begins_as_what_is_committed_in_the_history(history):
    (history / "code.py").write_text("not committed\n")
    with release_worktree(history, "test") as release:
        assert (release / "code.py").read_text() == "first\n"
        assert git_output(release, "branch", "--show-current") == "release"


def test_a_persons_tree_is_never_touched(history):
    (history / "code.py").write_text("not committed\n")
    before = git_output(history, "status", "--short"), git_output(history, "rev-parse", "HEAD")
    run_day(history, "2013-09-29")
    assert git_output(history, "status", "--short") == before[0]
    assert git_output(history, "rev-parse", "HEAD") == before[1]
    assert (history / "dvc.lock").read_text() == "of a person\n"


def test_the_history_reads_as_one_commit_a_day(history):
    for day in ("2013-09-28", "2013-09-29", "2013-09-30"):
        run_day(history, day)
    subjects = git_output(history, "log", "--first-parent", "--format=%s", "main..release")
    assert subjects.splitlines() == ["day=2013-09-30", "day=2013-09-29", "day=2013-09-28"]
    assert newest_day(history / ".release") == "2013-09-30"


def test_a_persons_list_of_ignored_files_takes_nothing_from_a_day(history, tmp_path):
    (tmp_path / "ignored").write_text("*.csv\n*.lock\n")
    git(history, "config", "core.excludesFile", str(tmp_path / "ignored"))
    with release_worktree(history, "test") as release:
        (release / "reports/trend.csv").write_text("day\n")
        commit_day(release, "2013-09-30")
    assert git_output(history, "show", "release:reports/trend.csv") == "day"


HOOKS = {
    "prepare-commit-msg": 'sed -i "1s/^/[TICKET-1] /" "$1"',
    "commit-msg": "exit 1",
    "pre-commit": "exit 1",
    "post-checkout": "exit 2",  # as that of git-lfs where a schedule's PATH lacks it
}


def test_a_persons_hooks_change_and_stop_no_day(history):
    for name, command in HOOKS.items():
        hook = history / ".git/hooks" / name
        hook.write_text(f"#!/bin/sh\n{command}\n")
        hook.chmod(0o755)
    run_day(history, "2013-09-29")
    without = ("-c", f"core.hooksPath={os.devnull}")
    git(history, *without, "commit", "--quiet", "--allow-empty", "--message", "New code")
    run_day(history, "2013-09-30")
    assert committed_days(history / ".release") == ["2013-09-30", "2013-09-29"]


SIGN = """#!/bin/sh
cat > /dev/null
echo "[GNUPG:] SIG_CREATED " >&2
echo "-----BEGIN PGP SIGNATURE-----\n\n-----END PGP SIGNATURE-----"
"""


def test_signed_days_are_read_however_a_person_has_git_show_and_search_them(history, tmp_path):
    (tmp_path / "sign").write_text(SIGN)
    (tmp_path / "sign").chmod(0o755)
    shown = {"commit.gpgsign": "true", "log.showSignature": "true", "grep.patternType": "fixed"}
    for name, value in (shown | {"gpg.program": str(tmp_path / "sign")}).items():
        git(history, "config", name, value)
    run_day(history, "2013-09-30")
    assert committed_days(history / ".release") == ["2013-09-30"]


def test_a_checkout_on_the_branch_of_days_itself_is_refused(history):
    """Its files would be those of yesterday, and its next commit would undo today's."""
    git(history, "switch", "--quiet", "--create", "release")
    with pytest.raises(ReleaseError, match="git switch main"):
        release_worktree(history, "a run").__enter__()
    assert not (history / ".release").exists()


def test_a_day_that_changed_nothing_is_not_committed_twice(history):
    run_day(history, "2013-09-30")
    first = git_output(history, "rev-parse", "release")
    run_day(history, "2013-09-30")
    assert git_output(history, "rev-parse", "release") == first


def test_new_code_arrives_with_the_next_day_and_the_record_stays(history):
    run_day(history, "2013-09-29")
    (history / "code.py").write_text("second\n")
    (history / "dvc.lock").write_text("of a person, again\n")
    (history / "new.py").write_text("new\n")
    save(history)
    git(history, "config", "merge.verifySignatures", "true")  # it is for what a person merges
    with release_worktree(history, "test") as release:
        take_code(history, release)
        assert (release / "code.py").read_text() == "second\n"
        assert (release / "new.py").read_text() == "new\n"
        assert (release / "dvc.lock").read_text() == "of 2013-09-29\n"
        assert (release / "reports/gate.json").read_text() == '{"day": "2013-09-29"}\n'
    run_day(history, "2013-09-30")
    assert git_output(history, "merge-base", "main", "release") == git_output(
        history, "rev-parse", "main"
    )
    assert git_output(history, "show", "release:code.py") == "second"
    subjects = git_output(history, "log", "--first-parent", "--format=%s", "-2", "release")
    assert subjects.splitlines() == ["day=2013-09-30", "day=2013-09-29"]


def test_a_branch_without_a_day_begins_with_the_log_that_is_committed_by_then(history):
    """A first run was refused, say for parameters that were not committed."""
    with release_worktree(history, "test") as release:
        take_code(history, release)
    (history / "dvc.lock").write_text("of another log\n")
    save(history)
    with release_worktree(history, "test") as release:
        take_code(history, release)
        assert (release / "dvc.lock").read_text() == "of another log\n"


def test_what_a_killed_run_left_is_undone(history):
    run_day(history, "2013-09-29")
    (history / "code.py").write_text("second\n")
    save(history)
    with release_worktree(history, "test") as release:
        take_code(history, release)
        (release / "dvc.lock").write_text("half")
        Path(git_output(release, "rev-parse", "--absolute-git-dir"), "index.lock").touch()
    with release_worktree(history, "test") as release:
        assert git_output(release, "status", "--porcelain") == ""
        assert (release / "dvc.lock").read_text() == "of 2013-09-29\n"
        assert (release / "code.py").read_text() == "first\n"


def test_a_removed_worktree_is_made_again_with_its_days(history):
    run_day(history, "2013-09-29")
    subprocess.run(["rm", "-r", str(history / ".release")], check=True)
    with release_worktree(history, "test") as release:
        assert newest_day(release) == "2013-09-29"


def test_a_second_process_learns_who_is_at_work(history):
    program = (
        "import sys; from pathlib import Path; from flows import worktree\n"
        "worktree.share_cache = worktree.restore_data = lambda *_: True\n"
        "with worktree.release_worktree(Path(sys.argv[1]), 'refresh of 2013-09-30'):\n"
        "    print('holding', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(history)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"holding\n"
        with (
            pytest.raises(ToolError, match=rf"refresh of 2013-09-30 \(process {holder.pid} on "),
            release_worktree(history, "test"),
        ):
            pass
        holder.kill()
    with release_worktree(history, "test"):
        pass


def test_the_commit_of_a_day_says_who_made_it(history, monkeypatch):
    for name in ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"):
        monkeypatch.setenv(name, "Robot")
    run_day(history, "2013-09-30")
    assert git_output(history, "log", "-1", "--format=%an %cn", "release") == "Robot Robot"


def test_a_day_that_nobody_may_sign_says_what_to_do(history):
    git(history, "config", "commit.gpgsign", "true")
    git(history, "config", "gpg.program", "false")
    with (
        release_worktree(history, "a run") as release,
        pytest.raises(ToolError, match=r"git commit failed.*; unlock the key"),
    ):
        commit_day(release, "2013-09-30")


def test_a_log_that_dvc_has_lost_is_reported(checkout):
    """Once days were made of it no other one is begun in its place unasked."""
    shutil.rmtree(checkout / ".dvc/cache")
    said: list[str] = []
    with release_worktree(checkout, "a run", report=said.append) as release:
        assert not (release / "data/manifest.json").exists()
        (release / "dvc.lock").write_text("stages: {}\n")
        git(release, "add", "--force", "dvc.lock")
        git(release, "commit", "--quiet", "--message", "a day")
    assert "data.dvc" in said[0]
    with (
        pytest.raises(ToolError, match="to begin another log"),
        release_worktree(checkout, "a run"),
    ):
        pass
    git(release, "rm", "--quiet", "data.dvc", "dvc.lock")
    git(release, "commit", "--quiet", "--message", "another log")
    with release_worktree(checkout, "a run") as release:
        assert not (release / "data").exists()


def test_a_relative_dvc_remote_is_the_checkouts_own_and_may_be_moved(checkout):
    config, usual = checkout / ".dvc/config", (checkout / ".dvc/config").read_text()
    for minute, place in enumerate(("store", "other"), 1):
        config.write_text(f"{usual}    remote = s\n['remote \"s\"']\n    url = ../../{place}\n")
        os.utime(config, (later := time.time() + 60 * minute, later))
        save(checkout)
        with release_worktree(checkout, "test") as release:
            take_code(checkout, release)
            assert dvc_remote(release).address == str(checkout.parent / place)


@pytest.mark.parametrize("name", ["C# and more", """Ads, Inc's "prod\""""])
def test_data_and_cache_are_those_of_the_checkout(checkout, tmp_path, name):
    checkout = checkout.rename(tmp_path / name)
    with release_worktree(checkout, "test") as release:
        assert (release / "data/manifest.json").is_file()
        assert not (release / ".dvc/cache").exists()
        assert cache_folder(release) == checkout / ".dvc/cache"


def test_a_branch_that_takes_the_name_of_release_is_named_with_what_mends_it(history):
    git(history, "branch", "release/1.0")
    with pytest.raises(ToolError, match=r"release/1\.0.*; rename the branch"):
        release_worktree(history, "a run").__enter__()


def test_the_worktree_of_a_submodule_which_dvc_cannot_follow_is_refused_with_what_to_do(
    checkout, tmp_path
):
    around = tmp_path / "around"
    git(tmp_path, "init", "--quiet", str(around))
    allowed = "-c", "protocol.file.allow=always"
    git(around, *allowed, "submodule", "--quiet", "add", str(checkout), "ads")
    with (
        release_worktree(around / "ads", "a run") as release,
        pytest.raises(ToolError, match="submodule: run this in a clone of its own"),
    ):
        commit_data(release)


def test_a_folder_without_git_is_refused_in_one_sentence(tmp_path):
    with pytest.raises(ToolError, match="not a git repository"), release_worktree(tmp_path, "test"):
        pass


def test_a_run_waits_for_the_one_at_work_and_says_for_whom(history):
    lines: list[str] = []
    with release_worktree(history, "refresh of 2013-09-29"):

        def wait() -> None:
            with release_worktree(history, "refresh of 2013-09-30", 30, lines.append):
                lines.append("at work")

        second = threading.Thread(target=wait)
        second.start()
        while not lines:
            time.sleep(0.05)
        assert [line.split(" (")[0] for line in lines] == ["waiting for refresh of 2013-09-29"]
    second.join()
    assert lines[1:] == ["at work"]


@pytest.mark.parametrize("left", ["locked", "no index", "no .git"])
def test_a_worktree_that_was_killed_while_it_was_made_is_made_again(history, left):
    run_day(history, "2013-09-29")
    release = history / ".release"
    own = Path(git_output(release, "rev-parse", "--absolute-git-dir"))
    if left == "locked":
        (own / "locked").write_text("initializing")
        subprocess.run(["rm", "-r", str(release)], check=True)
    elif left == "no index":
        (own / "index").unlink()
        (own / "HEAD").unlink()
    else:
        (release / ".git").unlink()
    with release_worktree(history, "test") as again:
        assert newest_day(again) == "2013-09-29"
        assert (again / "dvc.lock").read_text() == "of 2013-09-29\n"


def test_half_written_files_and_locks_of_killed_programs_are_removed(history):
    with release_worktree(history, "test") as release:
        pass
    half = [release / name for name in ("reports/.gate.json.tmp-1", "artifacts/.model.tmp-1/x")]
    half += [release / ".dvc/tmp/rwlock", release / "reports/half.json"]
    half += [history / f".git/refs/{place}/release.lock" for place in ("heads", "remotes/origin")]
    for file in half:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{")
    run_day(history, "2013-09-30")
    assert not [file for file in half if file.exists()]


def test_a_backfill_has_a_worktree_of_its_own_and_both_may_be_at_work(history):
    with (
        release_worktree(history, "refresh") as release,
        release_worktree(history, "backfill", branch=BACKFILL) as worktree,
    ):
        assert git_output(worktree, "branch", "--show-current") == "backfill"
        assert worktree != release
