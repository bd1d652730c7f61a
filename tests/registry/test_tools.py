"""DVC in a process group of its own."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from fsspec.implementations.local import LocalFileSystem

from pipeline.core.errors import AdaCalibError, ToolError
from pipeline.registry.staleness import changed_since, why
from pipeline.registry.tools import dvc, programs
from pipeline.registry.tools.dvc import commit_data, reproduce, status
from pipeline.registry.tools.programs import follow, program_lines, run_program
from pipeline.registry.tools.stores import Store, dvc_remote
from tests.read_only import read_only
from tests.registry.conftest import params

SLEEPER = (
    "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(99)'])"
)
NAMELESS = """
import pwd

def unknown(uid):
    raise KeyError(f"getpwuid(): uid not found: {uid}")

pwd.getpwuid = unknown
"""


def ran(stage: str | None, folder: Path) -> list[str]:
    """The stages that ran when all was made fresh."""
    lines: list[str] = []
    reproduce(stage, folder, lines.append)
    assert all(line.strip() for line in lines)
    return [line.split("'")[1] for line in lines if line.startswith("Running stage '")]


def children(process: psutil.Process) -> list[psutil.Process]:
    """All descendants of a process."""
    return process.children(recursive=True)


def wait_for(condition, seconds: float = 300.0) -> None:
    """Wait until a condition holds."""
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def gone(processes: list[psutil.Process]) -> bool:
    """Whether none of the processes runs any more."""
    return not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes)


def test_a_program_on_the_leash_says_how_it_ended(tmp_path):
    finished = run_program([sys.executable, "-c", "import sys; print(1); sys.exit(3)"], tmp_path)
    assert (finished.code, finished.output) == (3, "1\n")
    killed = run_program([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], tmp_path)
    assert killed.code == 128 + signal.SIGKILL


def test_lines_are_told_in_order_from_both_streams(tmp_path):
    program = "import sys; print('a', flush=True); print('b', file=sys.stderr, flush=True)"
    lines: list[str] = []
    finished = follow(program_lines([sys.executable, "-c", program], tmp_path), lines.append)
    assert lines == ["a", "b"]
    assert finished.output == "a\nb\n"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_descendant_outlives_the_one_who_asked(tmp_path, how):
    program = (
        "import sys; from pathlib import Path\n"
        "from pipeline.registry.tools.programs import run_program\n"
        f"run_program([sys.executable, '-c', {SLEEPER!r}], Path())"
    )
    asker = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    process = psutil.Process(asker.pid)
    wait_for(lambda: len(children(process)) == 3)
    running = children(process)
    asker.send_signal(how)
    asker.wait()
    wait_for(lambda: gone(running))


def test_python_ends_also_where_nobody_ends_what_it_follows(tmp_path):
    """An interrupt can leave a program's lines to the end of Python, where threads are gone."""
    program = (
        "import sys; from pathlib import Path\n"
        "from pipeline.registry.tools.programs import program_lines\n"
        "lines = program_lines([sys.executable, '-c', "
        "'import time; print(1, flush=True); time.sleep(999)'], Path())\n"
        "print(next(lines))"
    )
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert (said.returncode, said.stdout) == (0, b"1\n")


def test_a_child_left_behind_by_a_killed_program_is_ended(tmp_path):
    lines: list[str] = []

    def kill_the_middle(line: str) -> None:
        lines.append(line)
        os.kill(int(line), signal.SIGKILL)

    program = (
        "import os, subprocess, sys\nprint(os.getpid(), flush=True)\n"
        "subprocess.run([sys.executable, '-c', 'import time; time.sleep(99)'])"
    )
    finished = follow(program_lines([sys.executable, "-c", program], tmp_path), kill_the_middle)
    assert finished.code == 128 + signal.SIGKILL  # its child held the pipe: this would hang


def test_a_missing_program_is_told_in_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(programs.sys, "executable", str(tmp_path / "python"))
    with pytest.raises(ToolError, match=r"dvc is not installed beside .*pip install"):
        status("gate", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match="git is not on the PATH"):
        programs.git(tmp_path, "status")


def test_git_works_on_the_folder_it_is_given_also_inside_a_hook(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    top = programs.git(folder, "rev-parse", "--show-toplevel").output.strip()
    assert Path(top) == folder.resolve()
    for kind in ("LITERAL", "NOGLOB"):
        monkeypatch.setenv(f"GIT_{kind}_PATHSPECS", "1")
        assert programs.git(folder, "ls-files", "--", "*.dvc").output == "data.dvc\n"


def test_what_is_run_in_a_folder_is_the_code_of_that_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    (tmp_path / "pipeline.py").write_text("print('here')")
    assert run_program([sys.executable, "-m", "pipeline"], tmp_path).output == "here\n"


def test_git_speaks_english_whatever_a_person_prefers(folder, monkeypatch):
    monkeypatch.setenv("LANGUAGE", "de")
    said = programs.git(folder, "fetch", "nowhere", check=False).errors
    assert said.startswith("fatal: 'nowhere' does not appear to be a git repository")


@pytest.mark.slow
def test_reproduce_names_the_stages_that_ran_and_repeats_a_refusal(folder):
    lines: list[str] = []
    assert ran(None, folder) == []
    params(folder, passed=False)
    assert status("gate", folder) == {
        "gate": [{"changed deps": {"params.yaml": {"passed": "modified"}}}]
    }
    assert ran("gate", folder) == ["gate"]
    params(folder, refuse="merge")
    with pytest.raises(AdaCalibError, match=r"^merge: the day 2013-09-30 has no rows$"):
        reproduce(None, folder, lines.append)
    (folder / "dvc.yaml").write_text("stages: {")
    with pytest.raises(ToolError, match=r"dvc repro failed: .*dvc\.yaml"):
        reproduce(None, folder, lines.append)


@pytest.mark.slow
def test_a_mistake_in_a_stage_is_named(folder):
    (folder / "make.py").write_text("raise KeyError('gains')")
    with pytest.raises(ToolError, match=r"^merge: .*KeyError: 'gains'"):
        reproduce(None, folder, lambda line: None)


def test_data_is_committed_to_the_cache_and_nothing_changes_the_second_time(folder):
    (folder / "data" / "part.txt").write_text("other rows")
    commit_data(folder)
    after = (folder / "data.dvc").read_text()
    commit_data(folder)
    assert (folder / "data.dvc").read_text() == after
    cached = [f for f in (folder / ".dvc/cache/files").rglob("*") if f.is_file()]
    assert b"other rows" in {file.read_bytes() for file in cached}


def started(folder: Path) -> tuple["subprocess.Popen[bytes]", list[psutil.Process]]:
    """A process that reproduces the project, and its descendants, once a stage runs."""
    program = (
        "from pathlib import Path; from pipeline.registry.tools.dvc import reproduce\n"
        "reproduce(None, Path())"
    )
    flow = subprocess.Popen([sys.executable, "-c", program], cwd=folder, stdout=subprocess.DEVNULL)
    process = psutil.Process(flow.pid)

    def stage_runs() -> bool:
        return any("make.py" in " ".join(child.cmdline()) for child in children(process))

    wait_for(stage_runs)
    return flow, children(process)


@pytest.mark.slow
def test_a_run_killed_in_a_stage_leaves_nothing_and_the_next_needs_no_hand_work(folder):
    params(folder, copies=2, seconds=30)
    flow, running = started(folder)
    flow.kill()
    flow.wait()
    wait_for(lambda: gone(running))
    params(folder, copies=3)
    assert ran(None, folder) == ["merge", "gate"]
    assert (folder / "artifacts/model/weights.txt").read_text() == "rowsrowsrows!"


@pytest.mark.slow
def test_a_busy_folder_is_waited_for_up_to_a_limit_and_the_holder_is_named(folder, monkeypatch):
    params(folder, copies=2, seconds=4)
    flow, _ = started(folder)
    with monkeypatch.context() as patch:
        patch.setattr(dvc, "PATIENCE", 0.0)
        with pytest.raises(ToolError, match=r"process \d+ \(.*dvc repro\) has held"):
            reproduce(None, folder, [].append)
    lines: list[str] = []
    reproduce(None, folder, lines.append)
    assert any(line.startswith("waiting for process") for line in lines)
    assert flow.wait() == 0


@pytest.mark.slow
def test_a_lock_of_another_programs_number_or_half_written_is_forgotten(folder, monkeypatch):
    params(folder, passed=False)
    lock = folder / ".dvc/tmp/rwlock"
    lock.parent.mkdir(exist_ok=True)
    output = str(folder / "reports/gate.json")
    named = (
        f'{{"write": {{"{output}": {{"pid": {os.getpid()}, "cmd": "dvc repro"}}}}, "read": {{}}}}'
    )
    lock.write_text(named)
    monkeypatch.setattr(dvc, "PATIENCE", 0.0)
    assert ran(None, folder) == ["gate"]
    for half in ("", named[:20]):
        lock.write_text(half)
        assert not status(None, folder)


@pytest.mark.parametrize("text", ["", "schema: '2.0'\nsta", "- x", "\t"])
def test_files_of_dvc_that_a_kill_left_half_written_are_named_with_what_mends_them(text, folder):
    for name in ("dvc.yaml", "dvc.lock", "data.dvc"):
        whole = (folder / name).read_text()
        (folder / name).write_text(text)
        with pytest.raises(AdaCalibError, match=rf"{name}.*git restore {name}"):
            why(folder) if name == "dvc.yaml" else changed_since(folder)
        (folder / name).write_text(whole)


def test_a_place_that_nobody_may_write_to_is_no_fault_of_dvcs_files(folder):
    with read_only(folder), pytest.raises(ToolError, match="right to write"):
        status(None, folder)


def test_a_probe_that_finds_a_full_disk_leaves_nothing(tmp_path):
    class Full(LocalFileSystem):
        def pipe_file(self, path, value, **_):
            super().pipe_file(path, value[:0])
            raise OSError(errno.ENOSPC, "No space left on device")

    full = SimpleNamespace(fs=Full(), path=str(tmp_path))
    full.fs.join, full.fs.remove = os.path.join, os.unlink
    with pytest.raises(ToolError, match="No space left"):
        Store("the remote", full).probe()
    assert not [*tmp_path.iterdir()]


def test_a_user_without_a_name_as_containers_have_is_told_what_dvc_wants(folder, monkeypatch):
    (folder / "sitecustomize.py").write_text(NAMELESS)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    with pytest.raises(ToolError, match="export USER=adacalib"):
        commit_data(folder)
    monkeypatch.setenv("USER", "adacalib")
    commit_data(folder)


def test_a_default_remote_that_is_not_there_is_no_remote_left_out(folder):
    """What would have gone there is not taken for this clone's own."""
    assert dvc_remote(folder) is None
    (folder / ".dvc/config.local").write_text("[core]\n    remote = renamed\n")
    with pytest.raises(ToolError, match="'renamed'"):
        dvc_remote(folder)


@pytest.mark.slow
def test_a_run_cache_that_was_killed_before_it_was_written_is_no_obstacle(folder):
    """DVC makes the folder of an entry first, and dies of one that is empty."""
    before = (folder / "artifacts/model/weights.txt").read_bytes()
    entries = list((folder / ".dvc/cache/runs").glob("*/*/*"))
    assert entries
    for entry in entries:
        entry.unlink()
    (folder / "dvc.lock").unlink()
    shutil.rmtree(folder / "artifacts/model")
    assert ran(None, folder) == ["merge", "gate"]
    assert (folder / "artifacts/model/weights.txt").read_bytes() == before
