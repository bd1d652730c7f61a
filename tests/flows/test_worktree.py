"""The release worktree: whose code, whose record, one at a time, days that only move forward."""

import subprocess
import sys
from pathlib import Path

import pytest

from flows.worktree import (
    commit_day,
    newest_day,
    refuse_older_day,
    release_worktree,
    said,
    take_code,
)
from pipeline.errors import ReleaseError, ToolError


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A git repository with some code and the record of a day."""
    folder = tmp_path / "checkout"
    (folder / "reports").mkdir(parents=True)
    (folder / "code.py").write_text("first\n")
    (folder / "params.yaml").write_text("last_day: null\n")
    (folder / "dvc.lock").write_text("of a person\n")
    (folder / "reports/gate.json").write_text("{}\n")
    (folder / ".gitignore").write_text(".release/\n")
    said(tmp_path, "init", "--quiet", "-b", "main", str(folder))
    said(folder, "config", "user.name", "Somebody")
    said(folder, "config", "user.email", "somebody@example.org")
    save(folder)
    return folder


def save(folder: Path) -> None:
    """Commit all files of a folder."""
    said(folder, "add", "--all")
    said(folder, "commit", "--quiet", "--message", "work")


def run_day(checkout: Path, day: str) -> None:
    """What a refresh does to the files it commits."""
    with release_worktree(checkout, "test") as release:
        take_code(checkout, release)
        refuse_older_day(release, day)
        (release / "params.yaml").write_text(f"last_day: {day}\n")
        (release / "dvc.lock").write_text(f"of {day}\n")
        (release / "reports/gate.json").write_text(f'{{"day": "{day}"}}\n')
        commit_day(release, day)


def test_the_worktree_begins_as_what_is_committed_in_the_checkout(checkout):
    (checkout / "code.py").write_text("not committed\n")
    with release_worktree(checkout, "test") as release:
        assert (release / "code.py").read_text() == "first\n"
        assert said(release, "branch", "--show-current") == "release"


def test_a_persons_tree_is_never_touched(checkout):
    (checkout / "code.py").write_text("not committed\n")
    before = said(checkout, "status", "--porcelain"), said(checkout, "rev-parse", "HEAD")
    run_day(checkout, "2013-09-29")
    assert (said(checkout, "status", "--porcelain"), said(checkout, "rev-parse", "HEAD")) == before
    assert (checkout / "dvc.lock").read_text() == "of a person\n"


def test_the_history_reads_as_one_commit_a_day(checkout):
    for day in ("2013-09-28", "2013-09-29", "2013-09-30"):
        run_day(checkout, day)
    subjects = said(checkout, "log", "--first-parent", "--format=%s", "main..release")
    assert subjects.splitlines() == ["day=2013-09-30", "day=2013-09-29", "day=2013-09-28"]
    assert newest_day(checkout / ".release") == "2013-09-30"


def test_a_day_that_changed_nothing_is_not_committed_twice(checkout):
    run_day(checkout, "2013-09-30")
    first = said(checkout, "rev-parse", "release")
    run_day(checkout, "2013-09-30")
    assert said(checkout, "rev-parse", "release") == first


def test_an_older_day_is_refused_and_the_same_day_is_not(checkout):
    run_day(checkout, "2013-09-30")
    with pytest.raises(ReleaseError, match="is at 2013-09-30; 2013-09-29 is older"):
        run_day(checkout, "2013-09-29")
    run_day(checkout, "2013-09-30")
    run_day(checkout, "2013-10-01")


def test_new_code_arrives_with_the_next_day_and_the_record_stays(checkout):
    run_day(checkout, "2013-09-29")
    (checkout / "code.py").write_text("second\n")
    (checkout / "dvc.lock").write_text("of a person, again\n")
    (checkout / "new.py").write_text("new\n")
    save(checkout)
    with release_worktree(checkout, "test") as release:
        take_code(checkout, release)
        assert (release / "code.py").read_text() == "second\n"
        assert (release / "new.py").read_text() == "new\n"
        assert (release / "dvc.lock").read_text() == "of 2013-09-29\n"
        assert (release / "reports/gate.json").read_text() == '{"day": "2013-09-29"}\n'
    run_day(checkout, "2013-09-30")
    assert said(checkout, "merge-base", "main", "release") == said(checkout, "rev-parse", "main")
    assert said(checkout, "show", "release:code.py") == "second"
    subjects = said(checkout, "log", "--first-parent", "--format=%s", "-2", "release")
    assert subjects.splitlines() == ["day=2013-09-30", "day=2013-09-29"]


def test_what_a_killed_run_left_is_undone(checkout):
    run_day(checkout, "2013-09-29")
    (checkout / "code.py").write_text("second\n")
    save(checkout)
    with release_worktree(checkout, "test") as release:
        take_code(checkout, release)
        (release / "dvc.lock").write_text("half")
    with release_worktree(checkout, "test") as release:
        assert said(release, "status", "--porcelain") == ""
        assert (release / "dvc.lock").read_text() == "of 2013-09-29\n"
        assert (release / "code.py").read_text() == "first\n"


def test_a_removed_worktree_is_made_again_with_its_days(checkout):
    run_day(checkout, "2013-09-29")
    subprocess.run(["rm", "-r", str(checkout / ".release")], check=True)
    with release_worktree(checkout, "test") as release:
        assert newest_day(release) == "2013-09-29"


def test_a_second_process_is_told_who_is_at_work(checkout):
    program = (
        "import sys; from pathlib import Path; from flows.worktree import release_worktree\n"
        "with release_worktree(Path(sys.argv[1]), 'refresh of 2013-09-30'):\n"
        "    print('holding', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(checkout)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"holding\n"
        with (
            pytest.raises(ToolError, match=rf"refresh of 2013-09-30 \(process {holder.pid} on "),
            release_worktree(checkout, "test"),
        ):
            pass
        holder.kill()
    with release_worktree(checkout, "test"):
        pass


def test_a_commit_has_an_author_where_git_knows_nobody(checkout, monkeypatch, tmp_path):
    said(checkout, "config", "--unset", "user.email")
    said(checkout, "config", "--unset", "user.name")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "none"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    run_day(checkout, "2013-09-30")
    assert said(checkout, "log", "-1", "--format=%an", "release") == "AdaCalib refresh"


def test_a_folder_without_git_is_refused_in_one_sentence(tmp_path):
    with pytest.raises(ToolError, match="not a git repository"), release_worktree(tmp_path, "test"):
        pass
