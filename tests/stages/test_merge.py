"""The merge stage: a proved checkpoint or none."""

import json
import platform
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipeline.checkpoint.bundle import load
from pipeline.core.errors import ArtifactError, DataError
from pipeline.core.files import file_sums, manifest_sums, read_json, sha256_of, write_json
from pipeline.data.log_store.manifest import DayEntry, Manifest, day_folder, write_manifest
from pipeline.formats.maps import from_knots
from pipeline.params.sections import MergeParams
from pipeline.stages import merge as stage
from tests.checkpoint.parts import bent_map, rows, write_parts
from tests.tiny_logs import content_sha256

PARAMS = MergeParams(parity_tolerance=1e-6)
DAYS = ["2013-09-29", "2013-09-30"]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def log(tmp_path):
    """The folders of a log of two days and of a split that tests on both."""
    entries = {}
    for seed, day in enumerate(DAYS):
        file = day_folder(tmp_path / "data", day) / "part-0.parquet"
        file.parent.mkdir(parents=True)
        table = rows(200, seed)
        pq.write_table(table, file)
        entries[day] = DayEntry(200, content_sha256(table), {file.name: sha256_of(file)})
    write_manifest(tmp_path / "data" / "manifest.json", Manifest("flights", "UTC", entries))
    split = {"parts": {"test": DAYS}, "params": {"log": {"label": "late"}}}
    split["data"] = {day: entry.content_sha256 for day, entry in entries.items()}
    write_json(tmp_path / "split" / "manifest.json", split)
    return tmp_path / "data", tmp_path / "split"


def write_parts_of(log, folder, serving_map=None):
    """A base and a calibrator that were made from the split."""
    base, calibrator = write_parts(folder, serving_map)
    about = read_json(calibrator / "manifest.json")
    of = manifest_sums({"base": base, "split": log[1]})
    write_json(calibrator / "manifest.json", about | {"made_of": of})
    return base, calibrator


def test_the_published_checkpoint_predicts_the_log(log, tmp_path):
    stage.run(*log, *write_parts_of(log, tmp_path), tmp_path / "model", params=PARAMS)
    prediction = load(tmp_path / "model").predict(rows(10))
    assert np.isfinite(prediction.calibrated_logit).all()


def test_the_manifest_says_from_which_rows_parameters_code_and_libraries_it_was_made(log, tmp_path):
    """And nothing that differs between machines: clones of a project make the same bytes."""
    base, calibrator = write_parts_of(log, tmp_path)
    of_base, fitted = (read_json(folder / "manifest.json") for folder in (base, calibrator))
    write_json(base / "manifest.json", of_base | {"params": {"train_base": {"seed": 1}}})
    fitted |= {
        "params": {"score": {"a": 2}},
        "made_of": manifest_sums({"base": base, "split": log[1]}),
    }
    write_json(calibrator / "manifest.json", fitted)
    stage.run(*log, base, calibrator, tmp_path / "model", params=PARAMS)
    manifest = read_json(tmp_path / "model" / "manifest.json")
    lineage = manifest["lineage"]
    assert lineage["base"] == file_sums(base)
    assert lineage["calibrator"] == file_sums(calibrator)
    landed = read_json(log[0] / "manifest.json")["days"]
    assert lineage["data"]["days"] == {"test": DAYS}
    assert lineage["data"]["content_sha256"] == {d: landed[d]["content_sha256"] for d in DAYS}
    assert lineage["params"] == {
        "log": {"label": "late"},
        "train_base": {"seed": 1},
        "score": {"a": 2},
        "merge": {"parity_tolerance": 1e-6},
    }
    assert lineage["code"]["pipeline/stages/train_base.py"] == sha256_of(
        ROOT / "pipeline/stages/train_base.py"
    )
    assert lineage["libraries"]["numpy"] == np.__version__
    assert "params" not in manifest["base"]
    assert not {str(tmp_path), platform.node()} & set(re.findall(r'[^"]+', json.dumps(manifest)))


def test_the_bytes_do_not_depend_on_where_and_when(log, tmp_path):
    for name in ("one", "two"):
        stage.run(
            *log, *write_parts_of(log, tmp_path / name), tmp_path / name / "model", params=PARAMS
        )
    one, two = (tmp_path / name / "model" for name in ("one", "two"))
    for file in one.iterdir():
        assert file.read_bytes() == (two / file.name).read_bytes()


def test_without_parity_there_is_no_artifact(log, tmp_path, monkeypatch):
    parts = write_parts_of(log, tmp_path)
    monkeypatch.setattr(stage, "read_maps", lambda _: {"adacalib": bent_map(5, seed=1)})
    with pytest.raises(ArtifactError, match="nothing was published"):
        stage.run(*log, *parts, tmp_path / "model", params=PARAMS)
    assert not list(tmp_path.glob("*model*"))


def test_a_map_that_falls_is_refused_with_the_value_and_the_knots(log, tmp_path):
    knots = [np.array([-1.0, 0.0])] * 5
    values = [np.array([-1.0, 0.0])] * 4 + [np.array([0.0, -1.0])]
    falling = from_knots(knots, values, np.ones(5), np.ones(5))
    with pytest.raises(
        ArtifactError, match="field value 'UA' falls by 1 between the knots -1 and 0"
    ):
        stage.run(*log, *write_parts_of(log, tmp_path, falling), tmp_path / "model", params=PARAMS)
    assert not list(tmp_path.glob("*model*"))


def test_parity_is_proved_on_the_newest_test_day_which_is_named_where_it_is_missing(log, tmp_path):
    """The older ones were looked at when they were the newest."""
    (day_folder(log[0], DAYS[0]) / "part-0.parquet").unlink()
    stage.run(
        *log, *write_parts_of(log, tmp_path / "one"), tmp_path / "one" / "model", params=PARAMS
    )
    (day_folder(log[0], DAYS[1]) / "part-0.parquet").unlink()
    with pytest.raises(DataError, match=DAYS[1]):
        stage.run(*log, *write_parts_of(log, tmp_path), tmp_path / "model", params=PARAMS)
    assert not list(tmp_path.glob("*model*"))


def test_a_calibrator_of_another_run_is_refused(log, tmp_path):
    """On the same base, with the same field values."""
    parts = write_parts_of(log, tmp_path)
    divided = read_json(log[1] / "manifest.json")
    write_json(log[1] / "manifest.json", divided | {"parts": {"test": DAYS[1:]}})
    with pytest.raises(
        ArtifactError, match=r"calibrator was made with other split than .* dvc repro"
    ):
        stage.run(*log, *parts, tmp_path / "model", params=PARAMS)
    assert not list(tmp_path.glob("*model*"))
