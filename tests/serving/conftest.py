"""Checkpoints with their exports, small enough to make many."""

import shutil
import socket
from pathlib import Path

import pytest

from pipeline.checkpoint.bundle import export, load, merge
from tests.checkpoint.parts import bent_map, write_parts


def free_port() -> int:
    """A port on loopback that nobody listens to."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def make_model(folder: Path, seed: int) -> Path:
    """A checkpoint whose map is drawn with a seed."""
    folder.mkdir()
    merge(*write_parts(folder, bent_map(5, seed)), folder / "model")
    export(load(folder / "model"), folder / "model")
    return folder / "model"


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> list[Path]:
    """Two versions of a model; never to be changed."""
    folder = tmp_path_factory.mktemp("versions")
    return [make_model(folder / str(seed), seed) for seed in range(2)]


@pytest.fixture
def model(made, tmp_path) -> Path:
    """A copy of the first version to work on."""
    return Path(shutil.copytree(made[0], tmp_path / "model"))
