"""Files are scored whole, in order, in little memory, or not at all."""

import gzip
import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from typer.testing import CliRunner

from pipeline.cli.main import app
from pipeline.core.errors import ArtifactError, DataError
from pipeline.engine import day_map
from pipeline.serving import offline
from pipeline.serving.offline import score_files
from pipeline.serving.predictor import SCHEMA, load
from tests.checkpoint.parts import rows
from tests.tiny_logs import files_of


def test_a_file_is_scored_row_by_row_and_what_was_odd_is_counted(made, tmp_path, monkeypatch):
    """Nulls are not counted as unseen."""
    monkeypatch.setattr(offline, "BATCH_ROWS", 64)
    table, predictor = rows(1000), load(made[0])
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=300)
    counted = score_files(predictor, [tmp_path / "in.parquet"], tmp_path / "out.parquet", threads=3)
    written, scores = pq.read_table(tmp_path / "out.parquet"), predictor.predict(table)
    assert written.schema == SCHEMA
    np.testing.assert_allclose(written["calibrated_logit"], scores.calibrated_logit, atol=2e-5)
    np.testing.assert_array_equal(written["field_value_id"], scores.field_value_id)
    assert counted.rows == 1000
    assert counted.unseen == table["carrier"].to_pylist().count("ZZ")
    assert counted.out_of_range == scores.out_of_range.sum()


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_worker_processes_score_files_as_they_are_scored_one_by_one(made, tmp_path, monkeypatch):
    """By what people call; a file with a wrong row is named, and nothing is left."""
    folder = tmp_path / "logs"
    (folder / "more").mkdir(parents=True)
    for number, place in enumerate(("a", "b", "more/c")):
        pq.write_table(rows(200 + number), folder / f"{place}.parquet")
    csv.write_csv(rows(50), folder / "d.csv")
    monkeypatch.chdir(tmp_path)
    words = ["score", "logs", "--model", str(made[0]), "--keep", "carrier"]
    assert CliRunner().invoke(app, [*words, "threads"]).exit_code == 0
    monkeypatch.setenv(day_map.DASK, "local:2")
    try:
        said = CliRunner().invoke(app, [*words, "workers"])
        assert said.output.startswith("653 rows scored")
        pq.write_table(rows(3).drop_columns(["origin"]), folder / "wrong.parquet")
        with pytest.raises(DataError, match=r"wrong\.parquet: column origin is missing"):
            CliRunner().invoke(app, [*words, "again"], catch_exceptions=False)
    finally:
        day_map.release()
    assert files_of(tmp_path / "workers") == files_of(tmp_path / "threads")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs", "threads", "workers"]


def test_a_file_of_no_rows_gives_a_file_of_no_rows(made, tmp_path):
    pq.write_table(rows(0), tmp_path / "in.parquet")
    score_files(load(made[0]), [tmp_path / "in.parquet"], tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 0


def test_a_wrong_row_is_named_and_nothing_is_left(made, tmp_path):
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pq.write_table(rows(3).set_column(3, "distance", pa.array([1.0, np.inf, 2.0])), source)
    with pytest.raises(DataError, match="batch from row 0 on: column distance: row 1 is inf"):
        score_files(load(made[0]), [source], target)
    pq.write_table(rows(3).drop_columns(["origin"]), source)
    with pytest.raises(DataError, match="column origin is missing"):
        score_files(load(made[0]), [source], target)
    source.write_bytes(source.read_bytes()[:-100])
    with pytest.raises(DataError, match="is no whole file of rows"):
        score_files(load(made[0]), [source], target)
    source.write_text("origin;dest\nJFK;LAX\n")
    with pytest.raises(DataError, match=r"in\.parquet is no whole file of rows .* called \.csv"):
        score_files(load(made[0]), [source], target)
    with pytest.raises(DataError, match="does not exist"):
        score_files(load(made[0]), [tmp_path / "none"], target)
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def test_scores_replace_neither_the_rows_nor_a_folder(made, tmp_path):
    source, predictor = tmp_path / "in.parquet", load(made[0])
    pq.write_table(rows(3), source)
    (tmp_path / "link.parquet").symlink_to(source)
    for same in ("in.parquet", "link.parquet"):
        with pytest.raises(DataError, match="holds the rows themselves"):
            score_files(predictor, [source], tmp_path / same)
    (tmp_path / "mine").mkdir()
    with pytest.raises(ArtifactError, match="mine is a folder"):
        score_files(predictor, [source], tmp_path / "mine")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="pipe is neither a file nor a folder"):
        score_files(predictor, [source], tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()
    with pytest.raises(DataError, match="pipe is neither a file nor a folder"):
        score_files(predictor, [tmp_path / "pipe"], tmp_path / "out.parquet")
    assert pq.read_table(source).num_rows == 3


def test_a_page_that_was_damaged_ends_in_a_sentence_and_no_file(made, tmp_path):
    """The footer is whole, so the damage shows half way."""
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pq.write_table(rows(5000), source, compression="zstd", use_dictionary=False)
    content = bytearray(source.read_bytes())
    content[200:4000] = bytes(3800)
    source.write_bytes(content)
    with pytest.raises(DataError, match="is no whole file of rows"):
        score_files(load(made[0]), [source], target)
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def test_the_command_says_what_it_counted(made, tmp_path):
    pq.write_table(rows(10), tmp_path / "in.parquet")
    paths = [str(tmp_path / name) for name in ("in.parquet", "out.parquet")]
    result = CliRunner().invoke(app, ["score", *paths, "--model", str(made[0])])
    assert result.exit_code == 0
    assert result.stdout.startswith("10 rows scored, ")


HEADER = "id,carrier,origin,distance,note\n"
LINES = (
    '007,AA,JFK,100.5,"two, and\na line"',
    "18446744073709551616,,EWR,,",
    '9,ZZ,"JFK",3,""',
)


@pytest.mark.parametrize("name", ["in.csv", "in.csv.gz"])
def test_a_csv_file_is_scored_as_the_same_rows_in_parquet(made, tmp_path, name):
    """An empty cell is null; what is kept is text, digit by digit."""
    opener = gzip.open if name.endswith(".gz") else open
    with opener(tmp_path / name, "wt") as file:
        file.write(HEADER + "\n".join(LINES) + "\n")
    table = pa.table(
        {
            "carrier": ["AA", None, "ZZ"],
            "origin": ["JFK", "EWR", "JFK"],
            "distance": [100.5, None, 3],
        }
    )
    predictor, target = load(made[0]), tmp_path / "out.csv"
    counted = score_files(predictor, [tmp_path / name], target, keep=["id", "note"])
    scored = csv.read_csv(
        target, convert_options=csv.ConvertOptions(column_types={"id": pa.string()})
    )
    assert scored["id"].to_pylist() == ["007", "18446744073709551616", "9"]
    assert scored["note"][0].as_py() == "two, and\na line"
    expected = predictor.predict(table)
    np.testing.assert_allclose(scored["calibrated_logit"], expected.calibrated_logit)
    assert scored["unseen"].to_pylist() == expected.unseen.tolist()
    assert (counted.rows, counted.unseen) == (3, 1)


def test_a_wrong_csv_file_is_named_and_nothing_is_left(made, tmp_path):
    source, predictor = tmp_path / "in.csv", load(made[0])
    for content, sentence in (
        ("carrier,origin\nAA,JFK\n", "distance"),
        ("carrier,origin,distance\nAA,JFK,far\n", "'far'"),
        ("carrier,origin,distance\nAA,JFK\n", "Expected 3 columns"),
        (
            "carrier,carrier,origin,distance\nAA,B6,JFK,1\n",
            "column carrier is there more than once",
        ),
        ('"carrier";"origin";"distance"\n"AA";"JFK";1\n', "column carrier is missing"),
        ('carrier,origin,distance\nAA,JFK,"\n"\n', "^[^\\n]*$"),  # one sentence of one line
        ("", "in.csv is no whole file of rows"),
        (HEADER + '7,"A "A"",JFK,1,\n', "in.csv, line 2: .*; double the quotes"),
        (
            HEADER + '1,"A,"",\nA",JFK,1,5" x\n2,"A \\"b\\" A",JFK,1,\n',
            "in.csv, line 4: .*; double the quotes",
        ),
    ):
        source.write_text(content)
        with pytest.raises(DataError, match=sentence):
            score_files(predictor, [source], tmp_path / "out.csv")
    source.write_text("carrier,origin,distance\nAA,JFK,1\n")
    # as Parquet files they would surprise
    for name in ("out.csv.zst", "out.tsv", "out.gz", "out.feather", "out.xlsx"):
        with pytest.raises(DataError, match="names a format"):
            score_files(predictor, [source], tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_a_header_that_is_no_text_is_refused(made, tmp_path):
    (tmp_path / "in.csv").write_bytes(b"\x80\n")
    with pytest.raises(DataError, match=r"in\.csv is no whole file of rows"):
        score_files(load(made[0]), [tmp_path / "in.csv"], tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


def test_what_is_kept_travels_beside_the_scores_as_it_is(made, tmp_path):
    table = rows(20).append_column("id", pa.array(range(20), pa.uint64()))
    pq.write_table(table, tmp_path / "in.parquet")
    score_files(
        load(made[0]), [tmp_path / "in.parquet"], tmp_path / "out.parquet",
        keep=["id", "carrier", "id"],
    )  # fmt: skip
    written = pq.read_table(tmp_path / "out.parquet")
    assert written.column_names == ["id", "carrier", *SCHEMA.names]
    assert written["id"].equals(table["id"])
    assert written["carrier"].equals(table["carrier"])
    for keep, sentence in ((["none"], "column none is missing"), (["unseen"], "there twice")):
        renamed = table.append_column("unseen", table["late"])
        pq.write_table(renamed, tmp_path / "in.parquet")
        with pytest.raises(DataError, match=sentence):
            score_files(load(made[0]), [tmp_path / "in.parquet"], tmp_path / "o.parquet", keep=keep)
    pq.write_table(table.append_column("id", table["id"]), tmp_path / "in.parquet")
    with pytest.raises(DataError, match="column id is there more than once"):
        score_files(load(made[0]), [tmp_path / "in.parquet"], tmp_path / "o.parquet", keep=["id"])


def test_what_no_csv_file_can_hold_is_not_said_of_the_rows(made, tmp_path):
    table = rows(2).append_column("tags", pa.array([["a"], ["b"]]))
    pq.write_table(table, tmp_path / "in.parquet")
    with pytest.raises(DataError, match=r"out\.csv cannot hold a column of --keep .*list"):
        score_files(load(made[0]), [tmp_path / "in.parquet"], tmp_path / "out.csv", keep=["tags"])
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def test_several_files_give_a_new_folder_with_the_scores_of_each(made, tmp_path):
    for name, n in (("a.parquet", 3), ("b.parquet", 4)):
        pq.write_table(rows(n), tmp_path / name)
    sources = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    assert score_files(load(made[0]), sources, tmp_path / "out").rows == 7
    for source in sources:
        scored = pq.read_table(tmp_path / "out" / source.name)
        assert scored.num_rows == pq.read_table(source).num_rows


def test_a_folder_gives_a_new_folder_whole_or_not_at_all(made, tmp_path):
    days, target, predictor = tmp_path / "days", tmp_path / "scored", load(made[0])
    for day in ("day=1", "day=2"):
        (days / day).mkdir(parents=True)
        pq.write_table(rows(7), days / day / "part-0.parquet")
    (days / "_SUCCESS").touch()
    (days / "day=2/more.csv").write_text("carrier,origin,distance\nAA,JFK,1\n")
    (days / "day=2/LAST.CSV.GZ").write_bytes(gzip.compress(b"carrier,origin,distance\nAA,JFK,1\n"))
    shutil.copy(days / "day=1/part-0.parquet", days / "LAST.PARQUET")
    assert score_files(predictor, [days], target).rows == 23
    names = {str(f.relative_to(target)) for f in target.rglob("*") if f.is_file()}
    whole = {"day=1/part-0.parquet", "day=2/part-0.parquet", "day=2/more.csv"}
    assert names == {*whole, "day=2/LAST.CSV.GZ", "LAST.PARQUET"}
    assert gzip.decompress((target / "day=2/LAST.CSV.GZ").read_bytes()).count(b"\n") == 2
    with pytest.raises(DataError, match="is there already; name a new folder"):
        score_files(predictor, [days], target)
    (days / "day=2/more.csv").write_text("carrier\nAA\n")
    with pytest.raises(DataError, match=r"more\.csv"):
        score_files(predictor, [days], tmp_path / "other")
    assert {path.name for path in tmp_path.iterdir()} == {"days", "scored"}
    files = [days / day / "part-0.parquet" for day in ("day=1", "day=2")]
    for two in (files, [files[0], files[0]]):
        with pytest.raises(DataError, match=r"are called part-0\.parquet"):
            score_files(predictor, two, tmp_path / "other")
    (days / "day=2/more.csv").unlink()
    (days / "day=2/left.csv.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    with pytest.raises(DataError, match=r"left\.csv\.zst is no whole file of rows"):
        score_files(predictor, [days], tmp_path / "other")
    (days / "day=2/left.csv.zst").rename(days / "_left.csv.zst")  # as what lies beside a log
    for aside in ("_temporary", ".hidden"):
        (days / aside).mkdir()
        (days / aside / "half.parquet").touch()
    assert score_files(predictor, [days], tmp_path / "more").rows == 22
    for link, goal in (("all", days / "day=1"), ("new.parquet", tmp_path / "nowhere")):
        (days / link).symlink_to(goal)
        with pytest.raises(DataError, match=link):
            score_files(predictor, [days], tmp_path / "other")
        (days / link).unlink()
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no file in "):
        score_files(predictor, [tmp_path / "empty"], tmp_path / "other")
