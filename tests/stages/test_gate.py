"""The gate stage: a verdict in a file, also when it is no."""

import shutil

import numpy as np
import pytest

from pipeline.checkpoint.bundle import load, merge
from pipeline.checkpoint.onnx_graph import onnx_model
from pipeline.checkpoint.serving_table import read_table
from pipeline.core.errors import ArtifactError
from pipeline.core.files import manifest_sums, read_json, sha256_of, write_checksums, write_json
from pipeline.formats.maps import from_knots
from pipeline.gate import deployed
from pipeline.gate.deployed import from_table
from pipeline.serving.predictor import ONNX_FILE
from pipeline.stages.gate import run
from tests.checkpoint.parts import write_parts
from tests.gate.evidence import PARAMS, TABLES, good


@pytest.fixture
def evidence(tmp_path):
    """The files the stage reads: tables, evaluation, model."""
    paths = tmp_path / "tables.json", tmp_path / "evaluation.json", tmp_path / "model"
    write_json(paths[0], TABLES)
    write_model(tmp_path, paths[2])
    write_evaluation(paths[1], paths[2])
    return paths


def write_evaluation(path, model):
    """The evaluation of a model, which is good."""
    write_json(path, good() | {"made_of": manifest_sums({"model": model})})


def write_model(folder, model, serving_map=None):
    """A checkpoint with the file that is deployed."""
    merge(*write_parts(folder / "parts", serving_map), model)
    (model / ONNX_FILE).write_bytes(onnx_model(load(model)).SerializeToString(deterministic=True))
    checksum(model)


def checksum(model):
    """Let its manifest name the files as they are."""
    manifest = read_json(model / "manifest.json")
    (model / "manifest.json").unlink()
    write_checksums(model, {key: manifest[key] for key in manifest.keys() - {"files", "sha256"}})


def test_a_verdict_names_the_model_it_is_about(evidence, tmp_path):
    run(*evidence, tmp_path / "gate.json", params=PARAMS)
    gate = read_json(tmp_path / "gate.json")
    assert gate["passed"] is True
    assert (gate["verdict"], gate["reasons"]) == ("pass", [])
    assert gate["model_sha256"] == sha256_of(evidence[2] / "manifest.json")
    assert gate["last_day"] == "2013-09-30"
    assert set(gate["checks"][0]) == {
        "name",
        "value",
        "limit",
        "passed",
        "sentence",
        "structural",
        "answer",
    }


def test_a_no_is_a_fact_and_not_a_failure(evidence, tmp_path):
    write_json(evidence[1], read_json(evidence[1]) | {"responses": 287})
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


NAMES = [None, "AA", "B6", "DL", "UA"]
RATES = [0.01, 0.05, 0.02, 0.08]


def falling_map():
    """Bin rates 0.01, 0.05, 0.02, 0.08 taken as they are, for one value of five."""
    rising = [np.array([-3.0, -2.0, -1.0, 0.0])] * 5
    values = [np.array([-4.0, -3.0, -2.0, -1.0])] * 5
    values[2] = np.log(RATES) - np.log1p(-np.array(RATES))
    return from_knots(rising, values, np.ones(5), np.ones(5))


def test_a_map_that_falls_is_refused_by_value_and_place(tmp_path, evidence):
    write_model(tmp_path / "falling", tmp_path / "falling" / "model", falling_map())
    write_evaluation(evidence[1], tmp_path / "falling" / "model")
    run(*evidence[:2], tmp_path / "falling" / "model", tmp_path / "gate.json", params=PARAMS)
    gate = read_json(tmp_path / "gate.json")
    assert not gate["passed"]
    assert "field value 'B6' falls by 0.947 between the knots -2 and -1" in gate["reasons"][0]


def test_what_is_deployed_is_the_table_for_every_value(evidence):
    assert from_table(evidence[2], read_table(evidence[2], len(NAMES))) < 1e-12


def test_a_deployed_file_that_is_another_map_is_refused(tmp_path, evidence):
    write_model(tmp_path / "falling", tmp_path / "falling" / "model", falling_map())
    shutil.copy(tmp_path / "falling" / "model" / ONNX_FILE, evidence[2])
    checksum(evidence[2])
    write_evaluation(evidence[1], evidence[2])
    run(*evidence, tmp_path / "gate.json", params=PARAMS)
    (reason,) = read_json(tmp_path / "gate.json")["reasons"]
    assert "what was measured is not what would be deployed" in reason


def test_many_field_values_get_fewer_scores_each(evidence, monkeypatch):
    monkeypatch.setattr(deployed, "BUDGET", 1000)
    monkeypatch.setattr(deployed, "BATCH", 2)
    assert from_table(evidence[2], read_table(evidence[2], len(NAMES))) < 1e-12


def test_a_checkpoint_without_the_file_that_is_deployed_gets_no_verdict(tmp_path, evidence):
    merge(*write_parts(tmp_path / "bare"), tmp_path / "bare" / "model")
    write_evaluation(evidence[1], tmp_path / "bare" / "model")
    with pytest.raises(ArtifactError, match=r"names no model\.onnx"):
        run(*evidence[:2], tmp_path / "bare" / "model", tmp_path / "gate.json", params=PARAMS)


def test_an_evaluation_of_another_model_is_refused(evidence, tmp_path):
    write_json(evidence[1], good() | {"made_of": {"model": "0" * 64}})
    with pytest.raises(ArtifactError, match=r"evaluation\.json was made with other model than"):
        run(*evidence, tmp_path / "gate.json", params=PARAMS)
    assert not (tmp_path / "gate.json").exists()
