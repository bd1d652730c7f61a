"""A mapping's own SELECT over a file's columns, which reaches nothing else."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.core.errors import DataError
from pipeline.data.ingest.file_reader import land_files
from tests.data.logs import HEADER, landed, mapping, refused, stored, written

TEXT = HEADER + "0,shop.example/a,1,0\n1,news.example/b,1,1\n2,shop.example/c,1,1\n"
SITES = "SELECT *, split_part(item, '/', 1) AS site FROM log"


def test_columns_may_be_computed_and_rows_left_out(tmp_path):
    """Of CSV and of Parquet; more than the columns that are landed can be used."""
    rules = {
        "columns": {"site": "text", "click": "int8"},
        "select": f"{SITES} WHERE item LIKE 'shop%'",
    }
    (tmp_path / "ads[prod] *").mkdir()
    path = written(
        tmp_path / "ads[prod] *" / "log.csv.gz",
        TEXT.replace("price", "x,x").replace(",1,", ",1,1,"),
    )
    (table,) = landed(tmp_path / "data", mapping(**rules), path).values()
    assert table.to_pylist() == [
        {"site": "shop.example", "click": 0},
        {"site": "shop.example", "click": 1},
    ]
    path = stored(tmp_path / "log.parquet", item=["shop.example/a", "b"])
    (table,) = landed(tmp_path / "other", mapping(kind="parquet", **rules), path).values()
    assert table.to_pylist() == [{"site": "shop.example", "click": 0}]


def test_a_column_without_a_name_does_no_harm(tmp_path):
    """As that of row numbers, which pandas writes."""
    text = "," + TEXT.replace("\n", "\n7,").removesuffix("7,")
    path = written(tmp_path / "log.csv", text)
    rules = mapping(columns={"site": "text"}, select=SITES)
    (table,) = landed(tmp_path / "data", rules, path).values()
    assert table["site"].to_pylist() == ["shop.example", "news.example", "shop.example"]


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz"])
def test_a_select_may_ask_for_the_log_twice(tmp_path, name):
    path = written(tmp_path / name, TEXT)
    rules = mapping(select="SELECT * FROM log WHERE ts = (SELECT max(ts) FROM log)")
    (table,) = landed(tmp_path / "data", rules, path).values()
    assert table["item"].to_pylist() == ["shop.example/c"]


def test_what_lies_deeper_in_json_becomes_a_column(tmp_path):
    line = {"ts": 0, "device": {"browser": "firefox"}, "id": 1582218195625938945}
    rules = mapping(
        kind="json",
        columns={"id": "text", "browser": "text"},
        select="SELECT json->>'ts' AS ts, json->>'id' AS id, json->>'$.device.browser' AS browser "
        "FROM log",
    )
    path = written(tmp_path / "log.json.gz", json.dumps(line) + "\n")
    (table,) = landed(tmp_path / "data", rules, path).values()
    assert table.to_pylist() == [{"id": str(line["id"]), "browser": "firefox"}]


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz"])
def test_a_record_that_cannot_be_read_is_named_by_its_line_where_there_is_a_select(tmp_path, name):
    """As without one, also after a line break in a value."""
    text = HEADER + '0,"a\nb",1,0\n' + "0,a,1,0\n" * 100_000 + "0,a,1\n"
    rules = mapping(select="SELECT * FROM log")
    sentence = refused(tmp_path, rules, written(tmp_path / name, text))
    assert f"{name}, line 100004: Expected 4 columns" in sentence


def test_json_that_cannot_be_read_is_named_by_its_line_where_there_is_a_select(tmp_path):
    lines = [json.dumps({"item": "a"})] * 200_000 + ['{"item": ']
    rules = mapping(kind="json", select="SELECT json->>'$.item' AS item FROM log")
    sentence = refused(tmp_path, rules, written(tmp_path / "log.json", "\n".join(lines)))
    assert "line 200001" in sentence
    assert "/dev/" not in sentence


def test_a_value_that_does_not_fit_is_named_by_its_row(tmp_path):
    path = written(tmp_path / "log.csv", TEXT)
    rules = mapping(select="SELECT ts, item, price, item AS click FROM log")
    sentence = refused(tmp_path, rules, path)
    assert sentence.startswith("log.csv, row 1 of select: column click is 'shop.example/a'")


@pytest.mark.parametrize(
    "select",
    [
        "SELECT",
        "SELECT * FROM log; SELECT * FROM log",
        "SELECT * FROM log; COPY log TO 'stolen.csv'",
        "COPY log TO 'stolen.csv'",
        "DROP TABLE log",
        "SET threads = 1",
        "SELECT * FROM elsewhere",
        "SELECT * EXCLUDE (click) FROM log",
        "SELECT * FROM read_text('{secret}')",
        "SELECT *, (SELECT content FROM read_text('{secret}')) AS x FROM log",
        "SELECT * FROM '{secret}'",
        "SELECT * FROM glob('{folder}/*')",
        "SELECT * FROM read_csv('http://127.0.0.1:9/log.csv')",
        "SELECT * FROM rules",
    ],
)
def test_what_is_no_select_of_the_log_is_refused_and_reaches_nothing(tmp_path, select, monkeypatch):
    monkeypatch.chdir(tmp_path)
    secret = written(tmp_path / "secret.txt", "ts,item,price,click\n0,secret,1,0\n")
    select = select.format(secret=secret, folder=tmp_path)
    path = written(tmp_path / "log.csv", TEXT)
    with pytest.raises(DataError) as error:
        land_files(tmp_path / "data", mapping(select=select), [path])
    assert "0,secret" not in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "stolen.csv").exists()


@pytest.mark.parametrize("other", ["item", "Item"])
def test_a_select_sees_no_column_whose_name_is_there_twice(tmp_path, other):
    """SQL knows no upper and lower case in names; the first one would be taken for either."""
    table = pa.table([[0], ["a"], [1.0], [0], ["b"]], names=["ts", "item", "price", "click", other])
    pq.write_table(table, tmp_path / "log.parquet")
    text = written(tmp_path / "log.csv", f"ts,item,price,click,{other}\n0,a,1,0,b\n")
    for kind, path in {"csv": text, "parquet": tmp_path / "log.parquet"}.items():
        for select in (f'SELECT ts, "{other}" AS item, price, click FROM log', "SELECT * FROM log"):
            assert "item" in refused(tmp_path, mapping(kind=kind, select=select), path).lower()
        rules = mapping(kind=kind, columns={"click": "int8"}, select="SELECT ts, click FROM log")
        assert [*landed(tmp_path / kind, rules, path)] == ["1970-01-01"]
