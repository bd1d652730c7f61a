"""The release worktree: whose code, whose record, one at a time, days that only move forward."""

import subprocess
import sys
from pathlib import Path

import pytest

from flows.worktree import (
    commit_day,
    newest_day,
    release_worktree,
    said,
    take_code,
)
from pipeline.errors import ToolError
from tests.flows.conftest import save

WHO = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "Robot"), ("EMAIL", "robot@example.org"))
}


@pytest.fixture
def history(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with some code and a record of its own, where DVC is left out."""
    monkeypatch.setattr("flows.worktree.share_cache", lambda *_: None)
    monkeypatch.setattr("flows.worktree.restore_data", lambda *_: None)
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
        commit_day(release, day, WHO)


def test_the_worktree_begins_as_what_is_committed_in_the_history(history):
    (history / "code.py").write_text("not committed\n")
    with release_worktree(history, "test") as release:
        assert (release / "code.py").read_text() == "first\n"
        assert said(release, "branch", "--show-current") == "release"


def test_a_persons_tree_is_never_touched(history):
    (history / "code.py").write_text("not committed\n")
    before = said(history, "status", "--porcelain"), said(history, "rev-parse", "HEAD")
    run_day(history, "2013-09-29")
    assert (said(history, "status", "--porcelain"), said(history, "rev-parse", "HEAD")) == before
    assert (history / "dvc.lock").read_text() == "of a person\n"


def test_the_history_reads_as_one_commit_a_day(history):
    for day in ("2013-09-28", "2013-09-29", "2013-09-30"):
        run_day(history, day)
    subjects = said(history, "log", "--first-parent", "--format=%s", "main..release")
    assert subjects.splitlines() == ["day=2013-09-30", "day=2013-09-29", "day=2013-09-28"]
    assert newest_day(history / ".release") == "2013-09-30"


def test_a_day_that_changed_nothing_is_not_committed_twice(history):
    run_day(history, "2013-09-30")
    first = said(history, "rev-parse", "release")
    run_day(history, "2013-09-30")
    assert said(history, "rev-parse", "release") == first


def test_new_code_arrives_with_the_next_day_and_the_record_stays(history):
    run_day(history, "2013-09-29")
    (history / "code.py").write_text("second\n")
    (history / "dvc.lock").write_text("of a person, again\n")
    (history / "new.py").write_text("new\n")
    save(history)
    with release_worktree(history, "test") as release:
        take_code(history, release)
        assert (release / "code.py").read_text() == "second\n"
        assert (release / "new.py").read_text() == "new\n"
        assert (release / "dvc.lock").read_text() == "of 2013-09-29\n"
        assert (release / "reports/gate.json").read_text() == '{"day": "2013-09-29"}\n'
    run_day(history, "2013-09-30")
    assert said(history, "merge-base", "main", "release") == said(history, "rev-parse", "main")
    assert said(history, "show", "release:code.py") == "second"
    subjects = said(history, "log", "--first-parent", "--format=%s", "-2", "release")
    assert subjects.splitlines() == ["day=2013-09-30", "day=2013-09-29"]


def test_what_a_killed_run_left_is_undone(history):
    run_day(history, "2013-09-29")
    (history / "code.py").write_text("second\n")
    save(history)
    with release_worktree(history, "test") as release:
        take_code(history, release)
        (release / "dvc.lock").write_text("half")
        Path(said(release, "rev-parse", "--absolute-git-dir"), "index.lock").touch()
    with release_worktree(history, "test") as release:
        assert said(release, "status", "--porcelain") == ""
        assert (release / "dvc.lock").read_text() == "of 2013-09-29\n"
        assert (release / "code.py").read_text() == "first\n"


def test_a_removed_worktree_is_made_again_with_its_days(history):
    run_day(history, "2013-09-29")
    subprocess.run(["rm", "-r", str(history / ".release")], check=True)
    with release_worktree(history, "test") as release:
        assert newest_day(release) == "2013-09-29"


def test_a_second_process_is_told_who_is_at_work(history):
    program = (
        "import sys; from pathlib import Path; from flows import worktree\n"
        "worktree.share_cache = worktree.restore_data = lambda *_: None\n"
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


def test_the_commit_of_a_day_says_who_made_it(history):
    run_day(history, "2013-09-30")
    assert said(history, "log", "-1", "--format=%an %cn", "release") == "Robot Robot"


def test_data_and_cache_are_those_of_the_checkout(checkout):
    with release_worktree(checkout, "test") as release:
        assert (release / "data/manifest.json").is_file()
        assert not (release / ".dvc/cache").exists()


def test_a_folder_without_git_is_refused_in_one_sentence(tmp_path):
    with pytest.raises(ToolError, match="not a git repository"), release_worktree(tmp_path, "test"):
        pass
