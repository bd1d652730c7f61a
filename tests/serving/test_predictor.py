"""The predictor: light, strict about its bytes, and the same as the checkpoint it comes from."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.core.checksums import write_checksums
from pipeline.core.errors import ArtifactError, DataError
from pipeline.serving.predictor import load
from tests.checkpoint.parts import rows


def test_a_file_cut_by_100_bytes_is_refused_by_its_checksum(model):
    for name in ("model.onnx", "weights.safetensors"):
        content = (model / name).read_bytes()
        (model / name).write_bytes(content[:-100])
        with pytest.raises(ArtifactError, match=f"{name} is not as it was written"):
            load(model)
        (model / name).write_bytes(content)
    assert len(load(model).predict(rows(3))) == 3


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


def test_a_null_is_not_an_unseen_value_and_the_empty_text_is_one(made):
    table = rows(4).set_column(1, "carrier", pa.array(["AA", None, "", "ZZ"]))
    scores = load(made[0]).predict(table)
    assert scores.unseen.tolist() == [False, False, True, True]
    assert scores.field_value_id.tolist() == [1, 0, 0, 0]
    assert np.isfinite(scores.calibrated_logit).all()


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
from pathlib import Path
import pyarrow.parquet as pq
from adacalib import load
from pipeline.serving.app import make_app
from pipeline.serving.versions import Versions
make_app(Versions(Path({str(made[0])!r})))
assert len(load({str(made[0])!r}).predict(pq.read_table({str(tmp_path / "in.parquet")!r}))) == 5
from pipeline.cli.main import main
sys.argv = ["adacalib", "score", "in.parquet", "out.parquet", "--model", {str(made[0])!r}]
main()
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 5
