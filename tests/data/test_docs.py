"""docs/data.md is true: its walk is walked, block by block, as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from pipeline.data.ingest.ali_ccp import FORMATS as ALI_CCP
from pipeline.data.ingest.mapping import Mapping, shipped
from pipeline.data.ingest.sources import FORMATS, land_sources
from pipeline.data.log_store.day_rows import read_day
from pipeline.params.params_file import read_params, set_values
from pipeline.stages import split, validate
from tests.whole_walk import copy_code

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "data.md").read_text()
WALK = TEXT[TEXT.index("## Your own log, end to end") : TEXT.index("## A day lands whole")]
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", WALK, re.DOTALL)


def block(language: str, number: int = 0) -> str:
    """The block of the walk in `language` with that number."""
    return [text for name, text in BLOCKS if name == language][number]


def call(folder: Path, *command: str) -> str:
    """What a program of this environment says in `folder`."""
    programs = Path(sys.executable).parent
    environment = os.environ | {"PYTHONPATH": str(folder), "DVC_NO_ANALYTICS": "1"}
    finished = subprocess.run(
        [programs / command[0], *command[1:]],
        cwd=folder,
        env=environment | {"PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "\r" not in finished.stderr  # no bar where no terminal is
    return finished.stdout


@pytest.fixture(scope="module")
def walked(tmp_path_factory) -> tuple[Path, str]:
    """The project's files after the first command of the walk, and what that said."""
    folder = copy_code(tmp_path_factory.mktemp("walk") / "project")
    call(folder, "python", "-c", block("py"))
    (folder / "shop.yaml").write_text(block("yaml"))
    sections = YAML(typ="safe").load(block("yaml", 1))
    values = {f"{s}.{key}": value for s, keys in sections.items() for key, value in keys.items()}
    set_values(folder / "params.yaml", values)
    command = block("sh").splitlines()[0].split()
    return folder, call(folder, *command)


def test_the_log_of_the_walk_lands_as_the_page_says(walked):
    _, said = walked
    assert said == block("text")


def test_the_log_of_the_walk_keeps_its_contract_and_is_split(walked):
    folder, _ = walked
    params = read_params(folder / "params.yaml")
    report = folder / "reports" / "validation.json"
    details = folder / "artifacts" / "validation"
    sections = {"log": params.log, "split": params.split}
    validate.run(folder / "data", report, details, params=params.validate_, **sections)
    manifest = folder / "data" / "manifest.json"
    split.run(manifest, report, folder / "split", params=params.split, log=params.log)
    assert (folder / "split" / "manifest.json").is_file()


def test_the_log_that_is_spelled_otherwise_lands(tmp_path):
    (tmp_path / "klicks.csv").write_text(block("csv"))
    (tmp_path / "klicks.yaml").write_text(block("yaml", 2))
    sources = [tmp_path / "klicks.csv"]
    said = land_sources(str(tmp_path / "klicks.yaml"), tmp_path / "data", sources)
    assert "took 2 rows on 1 day, 2026-11-03..2026-11-03; dropped 1 (Geklickt is null)" in said
    assert read_day(tmp_path / "data", "2026-11-03").to_pydict() == {
        "campaign": ["00103", "00079"],
        "device": ["Handy", None],
        "bid": [0.6, 1.36],
        "click": [1, 0],
        "hour": [14, 14],
    }


def test_every_key_of_a_mapping_and_every_log_is_on_the_page():
    keys = set(Mapping.model_fields) - {"columns"}
    missing = [name for name in (*keys, *FORMATS, *ALI_CCP) if f"`{name}" not in TEXT]
    assert [name for name in missing if f"| {name} |" not in TEXT] == []
    assert [name for name in shipped() if f"| {name} |" not in TEXT] == []
