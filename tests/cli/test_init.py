"""adacalib init: two files to begin with, and the steps that it names."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from pipeline.data.ingest.sources import land_sources, local_files
from pipeline.data.log_store.manifest import read_manifest
from pipeline.params.params_file import read_params
from tests.data.logs import written
from tests.data.test_first_mapping import NOON, columns, csv_of


def clone_like(folder: Path, project: Path) -> None:
    """As much of a clone as `adacalib init` and `adacalib data` ask for."""
    (folder / "examples").mkdir(parents=True)
    shutil.copyfile(project / "examples/flights.yaml", folder / "examples/flights.yaml")
    (folder / "dvc.yaml").touch()
    (folder / ".dvc").mkdir()


def test_the_steps_that_it_names_land_all_files_beside_a_log_that_was_there(tmp_path, project):
    folder = tmp_path / "clone"
    clone_like(folder, project)
    for day in (1, 2):
        rows = columns() | {"ts": (NOON + 86_400 * day + 60 * np.arange(400)).tolist()}
        written(folder / f"clicks-2024-04-0{day}.csv", csv_of(rows))
    (folder / "data").mkdir()
    (folder / "data/manifest.json").write_text("{}")
    command = [Path(sys.executable).parent / "adacalib", "init", *sorted(folder.glob("*.csv"))]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    *moves, landing, _ = said.partition("then: ")[2].split("; ")
    subprocess.run("; ".join(moves), shell=True, cwd=folder, check=True)
    mapping, *sources = shlex.split(landing)[2:]
    with local_files(sources) as files:
        land_sources(str(folder / mapping), folder / "data", files)
    landed_there = read_manifest(folder / "data/manifest.json")
    assert (landed_there.format, len(landed_there.days)) == ("clicks", 2)
    assert (tmp_path / "data.before/manifest.json").exists()
    assert read_params(folder / "params.yaml").log.format == "clicks"


def test_the_command_writes_two_files_that_fit_and_replaces_none(tmp_path, project):
    """Whatever name is given, it is that of a format and of no other folder."""
    clone_like(tmp_path, project)
    written(tmp_path / "clicks.csv", csv_of(columns()))
    command = [
        Path(sys.executable).parent / "adacalib",
        "init",
        "clicks.csv",
        "--name",
        "../Clicks",
    ]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "label: click" in said.stdout
    assert "not known: " in said.stdout
    params = read_params(tmp_path / "clicks.params.yaml")
    assert (params.log.format, params.log.label) == ("clicks", "click")
    land_sources(str(tmp_path / "clicks.yaml"), tmp_path / "data", [tmp_path / "clicks.csv"])
    names = set(read_manifest(tmp_path / "data" / "manifest.json").columns)
    assert set(params.log.columns()) <= names
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "is there already" in again.stderr
