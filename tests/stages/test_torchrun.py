"""train_base in several processes, which torchrun starts: as one trains, and whatever happens."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from pipeline.__main__ import run_stage
from pipeline.core.files import read_json
from pipeline.model.scoring import load_base
from tests.stages.worlds import busy_day
from tests.tiny_logs import files_of
from tests.whole_walk import DAYS, PATHS, ROOT, project

pytestmark = pytest.mark.slow
Process = subprocess.Popen[str]
DATA, CONTRACT, BASE = PATHS["train_base"]
ROWS = 1200  # a day
ITEMS = 500  # more than a batch of 32 names, so that steps go row by row


def day(name: str) -> dict[str, np.ndarray]:
    """Clicks that follow the price and the item, of which there are many."""
    random = np.random.default_rng(int(name[-2:]))
    item, price = random.integers(0, ITEMS, ROWS), random.lognormal(1, 1, ROWS)
    click = random.random(ROWS) < 1 / (1 + np.exp(1 + item % 4 - np.log(price)))
    return {"item": item.astype(str), "price": price, "click": click.astype(np.int8)}


@pytest.fixture(scope="module")
def walked(tmp_path_factory) -> Path:
    """A project whose days are split."""
    days = {name: busy_day(name, ROWS, **day(name)) for name in DAYS}
    recipe = {"epochs": 4, "patience": 4, "batch_size": 32, "embedding_size": 4}
    folder = project(
        tmp_path_factory.mktemp("torchrun") / "project", days,
        log__categorical=["item"], log__numeric=["price"], split__training_days=4,
        split__calibration_days=2, split__test_days=1,
        **{f"train_base__{name}": value for name, value in recipe.items()},
    )  # fmt: skip
    for stage in ("validate", "split"):
        run_stage(stage, [folder / path for path in PATHS[stage]], folder / "params.yaml")
    return folder


def begin(folder: Path, target: Path, options: str = "", start: tuple[str, ...] = ()) -> Process:
    """The stage, just started in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ADACALIB_TORCHRUN": options}
    command = [sys.executable, *start, "-m", "pipeline", "train_base"]
    return subprocess.Popen(
        [*command, str(DATA), str(CONTRACT), str(target)],
        cwd=folder, env=environment, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def end(process: Process) -> str:
    """What a stage says until it has ended well."""
    said = process.communicate(timeout=300)[1]
    assert process.returncode == 0, said
    return said


@pytest.fixture(scope="module")
def of_one(walked) -> Path:
    """A base that one process trained, this one."""
    target = walked / BASE.with_name("one")
    run_stage("train_base", [walked / DATA, walked / CONTRACT, target], walked / "params.yaml")
    return target


@pytest.fixture(scope="module")
def of_two(walked) -> Path:
    """A base that two processes trained, which nothing disturbed."""
    end(begin(walked, BASE.with_name("two"), "--nproc-per-node 2"))
    return walked / BASE.with_name("two")


def test_two_processes_take_the_steps_of_one(of_one, of_two):
    """To rounding, which grows with the steps; row by row in both."""
    one, two = (read_json(folder / "manifest.json") for folder in (of_one, of_two))
    assert one.pop("processes", 1) == 1
    assert two.pop("processes") == 2
    losses = [
        [(epoch["loss"], epoch["held_out_loss"]) for epoch in manifest.pop("history")]
        for manifest in (one, two)
    ]
    np.testing.assert_allclose(*(of_each[0] for of_each in losses), rtol=1e-5)
    best = [min(held_out for _, held_out in of_each) for of_each in losses]
    np.testing.assert_allclose(*best, rtol=1e-3)
    for trained in ("best_epoch", "weights_sha256"):
        del one[trained], two[trained]
    assert one == two
    assert load_base(of_two).manifest["network"]["vocabulary_sizes"] == [ITEMS + 1]


def test_two_machines_train_as_two_processes_of_one_do(walked, of_two):
    """Each with a torchrun of its own, on a file system that they share."""
    place = "--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(free_port())
    target = BASE.with_name("machines")
    both = [
        begin(walked, target, start=("-m", "torch.distributed.run", *place, "--node-rank", rank))
        for rank in ("0", "1")
    ]
    said = [end(process) for process in both]
    assert files_of(walked / target) == files_of(of_two)
    assert [text.count("epoch 4 of 4") for text in said] == [1, 0]


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def test_a_training_that_was_killed_three_times_ends_with_the_bytes_of_an_undisturbed_one(
    walked, of_two
):
    """Torchrun, one of the processes, and then a stop, each after an epoch more, or two."""
    target = BASE.with_name("killed")
    unfinished = walked / target.with_name(f".{target.name}.training")
    written = 0
    for number, victim in enumerate(("torchrun", "second", "stopped")):
        process = begin(walked, target, "--nproc-per-node 2")
        while (newest := last_written(unfinished)) == written:
            assert process.poll() is None
            time.sleep(0.005)
        written = newest
        family = psutil.Process(process.pid).children()
        family.sort(key=psutil.Process.create_time)
        if victim == "second":
            family[1].kill()
        else:
            process.send_signal(signal.SIGKILL if victim == "torchrun" else signal.SIGTERM)
        said = process.communicate(timeout=300)[1]
        assert process.returncode != 0
        assert not psutil.wait_procs(family, timeout=120)[1]
        assert said.count("train_base: ") == (victim != "torchrun"), said
        assert "Traceback" not in said
        assert ("going on after epoch " in said) == (number > 0)
        assert not (walked / target).exists()
        written = last_written(unfinished)
    end(begin(walked, target, "--nproc-per-node 2"))
    assert files_of(walked / target) == files_of(of_two)
    assert not unfinished.exists()


def last_written(folder: Path) -> int:
    """When the state of an epoch was saved; 0: there is none."""
    return max((path.stat().st_mtime_ns for path in folder.glob("last_epoch*")), default=0)


def refusal(process: Process) -> str:
    """The one sentence that a stage ends with."""
    said = process.communicate(timeout=300)[1]
    assert process.returncode == 1
    assert said.startswith("train_base: ")
    assert said.count("\n") == 1, said
    return said


@pytest.mark.parametrize("options", ["--nproc-per-node two", "--workers 2", "'"])
def test_options_that_torchrun_does_not_take_are_refused(walked, options):
    assert "ADACALIB_TORCHRUN" in refusal(begin(walked, BASE, options))


def test_what_all_processes_find_is_said_once(tmp_path):
    """Weights that run away."""
    folder = tmp_path / "project"
    days = {name: busy_day(name, 200) for name in DAYS}
    project(
        folder, days, log__categorical=["item"], log__numeric=["price"],
        train_base__learning_rate=1e30, train_base__batch_size=32,
    )  # fmt: skip
    for stage in ("validate", "split"):
        run_stage(stage, [folder / path for path in PATHS[stage]], folder / "params.yaml")
    assert "learning_rate" in refusal(begin(folder, BASE, "--nproc-per-node 2"))
    assert not (folder / BASE).exists()
