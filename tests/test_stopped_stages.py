"""A full disk, and a signal in the middle, in each stage: one sentence, nothing half-written."""

import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from pipeline.__main__ import run_stage
from pipeline.core.errors import AdaCalibError
from pipeline.params.params_file import STAGES
from tests.read_only import read_only
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


def stopped(stage: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A stage that gets a SIGTERM as soon as it has begun to write, if it has not ended by then."""
    command = [sys.executable, "-m", "pipeline", stage, *map(str, PATHS[stage])]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not list(folder.glob("**/.*.tmp-*")):
        time.sleep(0.001)
    family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.send_signal(signal.SIGTERM)
    said = process.communicate()[1]
    assert not psutil.wait_procs(family, timeout=10)[1]
    return subprocess.CompletedProcess(command, process.returncode, "", said)


@pytest.mark.slow
def test_a_full_disk_or_a_signal_in_each_stage_leaves_all_as_it_was(tmp_path):
    folder = small_project(tmp_path / "project")
    for stage in STAGES:
        paths, before = [folder / path for path in PATHS[stage]], left(folder)
        with full_disk(), pytest.raises((OSError, AdaCalibError)):
            run_stage(stage, paths, folder / "params.yaml")
        assert left(folder) == before, stage
        ended = stopped(stage, folder)
        if ended.returncode > 0:  # else the signal came when it was done
            assert ended.stderr.endswith(
                f"{stage}: stopped, nothing is half-written; run it again\n"
            )
            assert "Traceback" not in ended.stderr
            assert left(folder).items() >= before.items(), stage  # one of two outputs may be whole
            assert not list(folder.glob("**/.*.tmp-*")), stage
        run_stage(stage, paths, folder / "params.yaml")
        assert not list(folder.glob("**/.*.tmp-*")), stage


def test_a_stage_that_may_not_write_says_so_in_one_sentence(tmp_path):
    folder = small_project(tmp_path / "project")
    command = [sys.executable, "-m", "pipeline", "validate", *map(str, PATHS["validate"])]
    with read_only(folder):
        refused = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith("validate: ")
    assert refused.stderr.count("\n") == 1
