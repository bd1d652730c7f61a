"""The gate stage: a verdict in a file, also when it is no."""

import pytest

from pipeline.errors import ArtifactError
from pipeline.files import read_json, sha256_of, write_json
from pipeline.release.checkpoint import merge
from pipeline.stages.gate import run
from tests.release.parts import write_parts
from tests.release.test_gate import PARAMS, TABLES, good


@pytest.fixture
def evidence(tmp_path):
    """The files the stage reads: tables, evaluation, model."""
    paths = tmp_path / "tables.json", tmp_path / "evaluation.json", tmp_path / "model"
    write_json(paths[0], TABLES)
    write_json(paths[1], good())
    merge(*write_parts(tmp_path), paths[2])
    return paths


def test_a_verdict_names_the_model_it_is_about(evidence, tmp_path):
    run(*evidence, tmp_path / "gate.json", params=PARAMS)
    gate = read_json(tmp_path / "gate.json")
    assert gate["passed"] is True
    assert (gate["verdict"], gate["reasons"]) == ("pass", [])
    assert gate["model_sha256"] == sha256_of(evidence[2] / "manifest.json")
    assert gate["last_day"] == "2013-09-30"
    assert set(gate["checks"][0]) == {"name", "value", "limit", "passed", "sentence"}


def test_a_no_is_a_fact_and_not_a_failure(evidence, tmp_path):
    write_json(evidence[1], good() | {"responses": 287})
    run(*evidence, tmp_path / "gate.json", params=PARAMS)
    gate = read_json(tmp_path / "gate.json")
    assert gate["passed"] is False
    assert gate["verdict"] == "refuse"
    assert gate["reasons"][0].startswith("too few responses to tell: the test days have 287")


def test_a_damaged_model_gets_no_verdict(evidence, tmp_path):
    with (evidence[2] / "weights.safetensors").open("ab") as file:
        file.write(b"x")
    with pytest.raises(ArtifactError, match="weights"):
        run(*evidence, tmp_path / "gate.json", params=PARAMS)
    assert not (tmp_path / "gate.json").exists()
