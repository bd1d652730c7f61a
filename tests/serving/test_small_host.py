"""A host that only serves: what is installed there, and what it can do."""

import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.checkpoint.parts import rows
from tests.serving.service import served
from tests.source_tree import ROOT

pytestmark = pytest.mark.slow
SOURCES = ("adacalib", "pipeline", "flows", "pyproject.toml", "README.md", "LICENSE")
ABSENT = {"torch", "prefect", "dvc", "great_expectations", "duckdb", "pandas", "sklearn", "onnx"}
LARGEST = 400e6  # bytes of an environment


@pytest.fixture(scope="module")
def host(tmp_path_factory) -> Path:
    """The folder of programs of an environment with the extra `serve`, and nothing else."""
    folder = tmp_path_factory.mktemp("host")
    source = folder / "source"
    source.mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    pip = [sys.executable, "-m", "pip", "--python", folder / "env/bin/python", "install", "-q"]
    install = [*pip, "--no-compile", "-c", ROOT / "constraints.txt"]
    subprocess.run([*install, f"{source}[serve]"], check=True, capture_output=True)
    return folder / "env/bin"


def test_little_is_installed(host):
    packages = next((host.parent / "lib").glob("*/site-packages"))
    assert not ABSENT & {path.name for path in packages.iterdir()}
    size = sum(path.lstat().st_size for path in host.parent.rglob("*") if path.is_file())
    assert size < LARGEST


def test_it_scores_a_file_and_serves(host, made, tmp_path):
    pq.write_table(rows(5), tmp_path / "in.parquet")
    command = [host / "adacalib", "score", "in.parquet", "out.parquet", "--model", made[0]]
    subprocess.run(command, cwd=tmp_path, check=True)
    scored = pq.read_table(tmp_path / "out.parquet")
    with served(made[0], adacalib=[str(host / "adacalib")]) as service:
        answer = service.client.post("/score", json={"records": rows(5).to_pylist()})
    assert answer.json()["field_value_id"] == scored["field_value_id"].to_pylist()


@pytest.mark.parametrize(("command", "extra"), [("results", "pipeline"), ("pull", "pull")])
def test_a_command_that_needs_more_names_the_extra(host, tmp_path, command, extra):
    options = ["--to", "model"] if command == "pull" else []
    (tmp_path / "dvc.yaml").touch()
    (tmp_path / ".dvc").mkdir()
    finished = subprocess.run(
        [host / "adacalib", command, *options],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 1
    assert f'pip install "adacalib[{extra}]"' in finished.stderr
    assert "Traceback" not in finished.stderr
