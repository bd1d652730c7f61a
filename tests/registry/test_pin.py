"""The pin: which version of production a run is held against, and where its bytes come from."""

import json
import shutil

import pytest

from pipeline.core.errors import ArtifactError
from pipeline.core.files import read_json
from pipeline.formats.champion import MODEL, PIN, TABLES, pinned, read_pin, start_pin, write_pin
from pipeline.registry.history import status
from pipeline.registry.promote import promote
from pipeline.registry.pull import fetch_champion, pin_champion
from tests.dvc_here import dvc
from tests.registry.conftest import git, params

TABULATE = """  tabulate:
    cmd: mkdir artifacts/tables && cp data/part.txt artifacts/tables/bins.parquet
    deps: [data]
    outs: [artifacts/tables]
"""


def test_a_copy_without_a_pin_gets_one_that_names_nothing(tmp_path):
    start_pin(tmp_path)
    assert pinned(tmp_path / PIN) is None
    write_pin(tmp_path / PIN, None)
    assert read_json(tmp_path / PIN) == {"version": None}


def test_the_projects_own_pin_names_nothing(project):
    """A fresh clone runs with nothing done by hand."""
    assert read_pin(project / PIN) is None


@pytest.mark.parametrize(
    "document", [{}, [], None, {"version": "v0.0.1"}, {"version": None, "more": 1}, {"version": 1}]
)
def test_a_pin_that_says_something_else_is_refused(tmp_path, document):
    (tmp_path / PIN).write_text(json.dumps(document))
    with pytest.raises(ArtifactError, match="write it again with: adacalib champion --pin"):
        read_pin(tmp_path / PIN)


def test_nothing_in_production_is_no_champion(folder):
    assert pin_champion(folder) == "nothing is in production, so there is no champion"
    assert pinned(folder / PIN) is None
    assert fetch_champion(folder) == "champion.json pins nothing, so there is no champion"


@pytest.mark.slow
def test_the_pin_moves_when_it_is_told_to_and_brings_what_it_names(folder):
    dag = (folder / "dvc.yaml").read_text()
    (folder / "dvc.yaml").write_text(dag.replace("\nartifacts:", f"\n{TABULATE}artifacts:", 1))
    dvc(folder, "repro")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "Tables")
    promote(folder)
    assert pin_champion(folder) == "v0.0.1 is the champion"
    pin = pinned(folder / PIN)
    assert (pin.version, pin.last_day) == ("v0.0.1", "2013-09-30")
    assert (folder / TABLES / "bins.parquet").read_text() == "rows"
    first = (folder / MODEL / "weights.txt").read_bytes()

    shutil.rmtree(folder / MODEL)
    with pytest.raises(
        ArtifactError, match=r"model.* does not exist; bring it with: adacalib champion"
    ):
        pinned(folder / PIN)
    (folder / TABLES / "bins.parquet").write_text("other")
    assert fetch_champion(folder) == "v0.0.1 is the champion"
    assert pinned(folder / PIN) == pin
    assert sorted(p.name for p in (folder / MODEL.parent).iterdir()) == ["model", "tables"]
    (folder / TABLES / "bins.parquet").write_text("other")
    with pytest.raises(ArtifactError, match=r"bins\.parquet is absent or has other bytes"):
        pinned(folder / PIN)

    params(folder, copies=2, last_day="2013-10-01")
    dvc(folder, "repro")
    promote(folder)
    assert read_pin(folder / PIN) == pin  # promotion does not move it
    assert "champion.json pins v0.0.1, production is v0.0.2: before the next" in status(folder)
    assert pin_champion(folder) == "v0.0.2 is the champion"
    assert "champion.json pins" not in status(folder)
    assert (folder / MODEL / "weights.txt").read_bytes() != first

    (folder / PIN).write_text("<<<<<<< HEAD\n")  # what a merge left
    with pytest.raises(ArtifactError, match="write it again with: adacalib champion --pin"):
        fetch_champion(folder)
    assert pin_champion(folder) == "v0.0.2 is the champion"
    assert pinned(folder / PIN)
