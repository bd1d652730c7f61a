"""A full disk, a signal or a change during a stage: one sentence, nothing half-written."""

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from types import ModuleType

import psutil
import pytest

from pipeline.__main__ import run_stage
from pipeline.core.errors import AdaCalibError
from pipeline.params.params_file import STAGES, set_values
from pipeline.stages import validate
from tests.read_only import read_only
from tests.ready_processes import stage_process
from tests.stages.worlds import busy_day
from tests.tiny_logs import files_of
from tests.whole_walk import DAYS, PATHS, project


def small_project(folder: Path) -> Path:
    """A folder with a log of eight days, of which nothing was made yet."""
    days = {day: busy_day(day, 300) for day in DAYS}
    return project(folder, days, log__categorical=["item"], log__numeric=["price"])


def left(folder: Path) -> dict[str, bytes]:
    """What is there, beside what a training that was stopped goes on from."""
    return {name: content for name, content in files_of(folder).items() if ".training" not in name}


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process may grow by a byte."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def stopped(stage: str, folder: Path) -> tuple[int, str]:
    """Exit code and words of a stage that gets a SIGTERM as soon as it has begun to write.

    If it has not ended by then.
    """
    words = folder.with_name(f"{stage}.txt")
    process = stage_process(stage, PATHS[stage], folder, words)
    while process.is_alive() and not list(folder.glob("**/.*.tmp-*")):
        time.sleep(0.001)
    family = []
    with suppress(psutil.NoSuchProcess):  # it has ended
        family = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    process.join()
    assert not psutil.wait_procs(family, timeout=120)[1]
    return process.exitcode, words.read_text()


@pytest.mark.slow
def test_a_full_disk_or_a_signal_in_each_stage_leaves_all_as_it_was(tmp_path):
    folder = small_project(tmp_path / "project")
    for stage in STAGES:
        paths, before = [folder / path for path in PATHS[stage]], left(folder)
        with full_disk(), pytest.raises((OSError, AdaCalibError)):
            run_stage(stage, paths, folder / "params.yaml")
        assert left(folder) == before, stage
        code, said = stopped(stage, folder)
        if code > 0:  # else the signal came when it was done
            assert said.endswith(f"{stage}: stopped, nothing is half-written; run it again\n")
            assert "Traceback" not in said
            assert left(folder).items() >= before.items(), stage  # one of two outputs may be whole
            assert not list(folder.glob("**/.*.tmp-*")), stage
        run_stage(stage, paths, folder / "params.yaml")
        assert not list(folder.glob("**/.*.tmp-*")), stage


def test_a_stage_that_may_not_write_says_so_in_one_sentence(tmp_path):
    folder = small_project(tmp_path / "project")
    words = tmp_path / "words.txt"
    with read_only(folder):
        process = stage_process("validate", PATHS["validate"], folder, words)
        process.join()
    assert process.exitcode == 1
    assert words.read_text().startswith("validate: ")
    assert words.read_text().count("\n") == 1


@pytest.mark.parametrize("changed", ["params.yaml", "data/manifest.json", "pipeline/part.py", None])
def test_a_stage_whose_inputs_change_while_it_is_at_work_is_refused(tmp_path, monkeypatch, changed):
    """DVC notes inputs as they are at the end, and would take the outputs for made of these."""
    folder, run = small_project(tmp_path / "project"), validate.run
    loaded, other = folder / "pipeline/part.py", folder / "pipeline/other.py"
    loaded.parent.mkdir()
    part = ModuleType("part")
    part.__file__ = str(loaded)
    monkeypatch.setattr("pipeline.__main__.__file__", str(folder / "pipeline/__main__.py"))
    monkeypatch.setitem(sys.modules, "part", part)
    for file in (loaded, other):
        file.touch()

    @wraps(run)
    def meanwhile(*paths: Path, **values: object) -> None:
        run(*paths, **values)
        set_values(folder / "params.yaml", {"gate.min_test_responses": 21})  # of another stage
        if changed == "params.yaml":
            set_values(folder / changed, {"validate.max_null_share": 0.5})
        for name in filter(None, (changed, "pipeline/other.py")):  # the latter nobody loaded
            with (folder / name).open("a") as file:
                file.write("\n")

    monkeypatch.setattr(validate, "run", meanwhile)
    monkeypatch.chdir(folder)
    paths = PATHS["validate"]
    if changed is None:
        run_stage("validate", paths)
        return
    with pytest.raises(AdaCalibError, match=f"{changed} changed while"):
        run_stage("validate", paths)
