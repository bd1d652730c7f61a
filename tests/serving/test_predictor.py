"""The predictor: light, strict about its bytes, and the same as the checkpoint it comes from."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.core.errors import ArtifactError, DataError
from pipeline.core.files import read_json, sha256_of, write_checksums, write_json
from pipeline.serving.predictor import load
from tests.checkpoint.parts import rows


def test_a_file_cut_by_100_bytes_is_refused_by_its_checksum(model):
    for name in ("model.onnx", "weights.safetensors"):
        content = (model / name).read_bytes()
        (model / name).write_bytes(content[:-100])
        with pytest.raises(ArtifactError, match=f"{name} is not as it was written.*adacalib pull"):
            load(model)  # where no DVC is
        (model / name).write_bytes(content)
    assert len(load(model).predict(rows(3))) == 3


def test_a_version_is_what_its_promotion_is_known_by(made):
    """The sum that verdict, history and status have of a model: of its manifest's bytes."""
    assert [load(model).version for model in made] == [sha256_of(m / "manifest.json") for m in made]


def test_a_checkpoint_without_the_file_or_of_another_format_is_refused(model):
    (model / "model.onnx").unlink()
    (model / "manifest.json").unlink()
    write_checksums(model, {})
    with pytest.raises(ArtifactError, match=r"names no model\.onnx"):
        load(model)


def test_bytes_that_are_no_model_are_refused_though_their_checksum_is_right(model):
    (model / "model.onnx").write_bytes(b"no model")
    (model / "manifest.json").unlink()
    write_checksums(model, {})
    with pytest.raises(ArtifactError, match=r"model\.onnx is no model that onnxruntime can run"):
        load(model)


def test_how_a_column_is_stored_and_where_it_stands_does_not_matter(made):
    """Dictionaries, chunks, orders, more columns."""
    predictor, table = load(made[0]), rows(100)
    once = predictor.predict(table)
    stored = table.set_column(1, "carrier", table["carrier"].dictionary_encode())
    chunked = pa.concat_tables([stored.slice(0, 30), stored.slice(30)])
    other = predictor.predict(chunked.select(chunked.column_names[::-1]))
    for ours, theirs in zip(vars(once).values(), vars(other).values(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_data_frame_is_scored_as_the_table_it_was_made_of(made):
    """Other columns, an index and blanks in numbers beside it; what is no table is refused."""
    predictor, table = load(made[0]), rows(100)
    frame = table.to_pandas().assign(else_=[["a"], 1] * 50).set_index(np.arange(100)[::-1])
    frame.loc[3, predictor.number_columns[0]] = np.nan
    nulls = [
        None if i == 96 else v for i, v in enumerate(table[predictor.number_columns[0]].to_pylist())
    ]
    place = table.column_names.index(predictor.number_columns[0])
    table = table.set_column(place, table.column_names[place], pa.array(nulls, pa.float64()))
    ours, theirs = predictor.predict(frame), predictor.predict(table)
    np.testing.assert_array_equal(ours.calibrated_logit, theirs.calibrated_logit)
    twice = frame[[*frame.columns, "carrier"]]
    for wrong in (frame.to_numpy(), {"carrier": ["AA"]}, None, twice):
        with pytest.raises(DataError):
            predictor.predict(wrong)


def test_a_null_is_not_an_unseen_value_and_the_empty_text_is_one(made):
    table = rows(4).set_column(1, "carrier", pa.array(["AA", None, "", "ZZ"]))
    scores = load(made[0]).predict(table)
    assert scores.unseen.tolist() == [False, False, True, True]
    assert scores.field_value_id.tolist() == [1, 0, 0, 0]
    assert np.isfinite(scores.calibrated_logit).all()


def test_the_text_that_stands_for_null_names_a_value_that_nobody_has_seen(made):
    predictor = load(made[0])
    reserved = predictor.metadata["null_text"]
    table = rows(2).set_column(1, "carrier", pa.array([reserved, None]))
    assert predictor.predict(table).unseen.tolist() == [True, False]


def test_a_model_that_says_something_else_than_its_test_vectors_is_refused(model):
    path = model / "test_vectors.json"
    vectors, manifest = read_json(path), read_json(model / "manifest.json")
    assert load(model).vectors == vectors
    vectors["expected"]["calibrated_logit"][3] += 0.001
    write_json(path, vectors)
    (model / "manifest.json").unlink()
    write_checksums(model, {"map": manifest["map"]})
    with pytest.raises(ArtifactError, match=r"calibrated_logit of row 3 of test_vectors\.json is "):
        load(model)


def test_test_vectors_hold_known_values_null_and_one_that_is_unseen(made):
    predictor = load(made[0])
    scores = predictor.predict(pa.table(predictor.vectors["columns"]))
    assert set(predictor.vectors["columns"]) == set(predictor.columns)
    assert None in predictor.vectors["columns"]["carrier"]
    assert len(set(scores.field_value_id)) == 5
    assert scores.unseen.sum() == 1


def test_what_is_wrong_with_a_column_is_said(made):
    predictor, table = load(made[0]), rows(3)
    with pytest.raises(DataError, match="column origin is missing"):
        predictor.predict(table.drop_columns(["origin"]))
    with pytest.raises(DataError, match="column origin is there more than once"):
        predictor.predict(table.append_column("origin", table["origin"]))
    wrong = table.set_column(3, "distance", pa.array([1.0, 2.0, np.inf]))
    with pytest.raises(DataError, match="column distance: row 2 is inf"):
        predictor.predict(wrong)


ABSENT = ("torch", "dvc", "gto", "prefect", "great_expectations", "onnx", "sklearn")


def test_scoring_needs_numpy_pyarrow_and_onnxruntime_alone(made, tmp_path):
    """`adacalib.load`, `adacalib score` and the service, where little is installed."""
    pq.write_table(rows(5), tmp_path / "in.parquet")
    program = f"""
import sys
sys.modules |= dict.fromkeys({ABSENT})  # who imports one of these gets an ImportError
import pyarrow.parquet as pq
from adacalib import load
from pipeline.serving.app import make_app
import pipeline.serving.workers
predictor = load({str(made[0])!r})
make_app(predictor)
assert len(predictor.predict(pq.read_table({str(tmp_path / "in.parquet")!r}))) == 5
from pipeline.cli.main import main
sys.argv = ["adacalib", "score", "in.parquet", "out.parquet", "--model", {str(made[0])!r}]
main()
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 5
