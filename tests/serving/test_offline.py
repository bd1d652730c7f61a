"""Files are scored whole, in order, in little memory, or not at all."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from pipeline.cli.main import app
from pipeline.core.errors import ArtifactError, DataError
from pipeline.serving import offline
from pipeline.serving.predictor import SCHEMA, load
from tests.checkpoint.parts import rows


def test_a_file_is_scored_row_by_row_and_what_was_odd_is_counted(made, tmp_path, monkeypatch):
    """Nulls are not counted as unseen."""
    monkeypatch.setattr(offline, "BATCH_ROWS", 64)
    table, predictor = rows(1000), load(made[0])
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=300)
    counted = offline.score_file(predictor, tmp_path / "in.parquet", tmp_path / "out.parquet")
    written, scores = pq.read_table(tmp_path / "out.parquet"), predictor.predict(table)
    assert written.schema == SCHEMA
    np.testing.assert_allclose(written["calibrated_logit"], scores.calibrated_logit, atol=2e-5)
    np.testing.assert_array_equal(written["field_value_id"], scores.field_value_id)
    assert counted.rows == 1000
    assert counted.unseen == table["carrier"].to_pylist().count("ZZ")
    assert counted.out_of_range == scores.out_of_range.sum()


def test_a_file_of_no_rows_gives_a_file_of_no_rows(made, tmp_path):
    pq.write_table(rows(0), tmp_path / "in.parquet")
    offline.score_file(load(made[0]), tmp_path / "in.parquet", tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 0


def test_a_wrong_row_is_named_and_nothing_is_left(made, tmp_path):
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pq.write_table(rows(3).set_column(3, "distance", pa.array([1.0, np.inf, 2.0])), source)
    with pytest.raises(DataError, match="batch from row 0 on: column distance: row 1 is inf"):
        offline.score_file(load(made[0]), source, target)
    pq.write_table(rows(3).drop_columns(["origin"]), source)
    with pytest.raises(DataError, match="column origin is missing"):
        offline.score_file(load(made[0]), source, target)
    source.write_bytes(source.read_bytes()[:-100])
    with pytest.raises(DataError, match="is not a whole Parquet file"):
        offline.score_file(load(made[0]), source, target)
    source.write_text("origin;dest\nJFK;LAX\n")
    with pytest.raises(DataError, match=r"in\.parquet is no Parquet file; write its rows as one"):
        offline.score_file(load(made[0]), source, target)
    with pytest.raises(DataError, match="does not exist"):
        offline.score_file(load(made[0]), tmp_path / "none", target)
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def test_scores_replace_neither_the_rows_nor_a_folder(made, tmp_path):
    source, predictor = tmp_path / "in.parquet", load(made[0])
    pq.write_table(rows(3), source)
    (tmp_path / "link.parquet").symlink_to(source)
    for same in ("in.parquet", "link.parquet"):
        with pytest.raises(DataError, match="holds the rows themselves"):
            offline.score_file(predictor, source, tmp_path / same)
    (tmp_path / "mine").mkdir()
    with pytest.raises(ArtifactError, match="mine is a folder"):
        offline.score_file(predictor, source, tmp_path / "mine")
    assert pq.read_table(source).num_rows == 3


def test_a_page_that_was_damaged_ends_in_a_sentence_and_no_file(made, tmp_path):
    """The footer is whole, so the damage shows half way."""
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pq.write_table(rows(5000), source, compression="zstd", use_dictionary=False)
    content = bytearray(source.read_bytes())
    content[200:4000] = bytes(3800)
    source.write_bytes(content)
    with pytest.raises(DataError, match="is damaged inside"):
        offline.score_file(load(made[0]), source, target)
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def test_the_command_says_what_it_counted(made, tmp_path):
    pq.write_table(rows(10), tmp_path / "in.parquet")
    paths = [str(tmp_path / name) for name in ("in.parquet", "out.parquet")]
    result = CliRunner().invoke(app, ["score", *paths, "--model", str(made[0])])
    assert result.exit_code == 0
    assert result.stdout.startswith("10 rows scored, ")
