"""The generic reader: files and a mapping become days, and what does not fit is named by line."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.data.csv_blocks import read_blocks
from pipeline.data.days import day_name, read_day
from pipeline.data.landing import land_day, land_days
from pipeline.data.manifest import CONTENT_BLOCK, content_sha256, read_manifest
from pipeline.data.mapping import Mapping, read_mapping
from pipeline.data.reader import land_files, read_rows
from pipeline.data.staging import DayStage
from pipeline.data.values import Vocabulary
from pipeline.errors import DataError
from tests.tiny_logs import KIND, PRIVATE, files_of, tiny_day

ODD_ITEMS = ["NA", "null", "None", "001", "01", "1", "TRUE", ""]
HEADER = "ts,item,price,click\n"


def mapping(**keys: Any) -> Mapping:
    """A log of items, prices and clicks with seconds since 1970, with keys replaced."""
    document = {
        "format": "mine",
        "kind": "csv",
        "time_zone": "UTC",
        "time": {"column": "ts", "format": "epoch_s"},
        "columns": {"item": "text", "price": "float64", "click": "int8"},
    }
    return Mapping.model_validate({**document, **keys})


def written(path: Path, text: str | bytes) -> Path:
    """A file with `text`, compressed as its name says."""
    content = text.encode() if isinstance(text, str) else text
    codec = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}.get(path.suffix)
    with pa.output_stream(str(path), compression=codec) as stream:
        stream.write(content)
    return path


def landed(folder: Path, rules: Mapping, *sources: Path) -> dict[str, pa.Table]:
    """The days that the log in `folder` has after the sources were landed."""
    manifest, _ = land_files(folder, rules, sources)
    return {day: read_day(folder, day) for day in manifest.days}


def refusal(folder: Path, rules: Mapping, text: str | bytes, name: str = "log.csv") -> str:
    """The sentence with which a file is refused, from its name on; nothing is landed."""
    source = written(folder / name, text)
    with pytest.raises(DataError) as error:
        land_files(folder / "data", rules, [source])
    assert not (folder / "data").exists()
    assert not list(folder.glob(".data*"))
    return str(error.value).removeprefix(f"{folder}/")


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz", "log.csv.zst", "log.csv.bz2"])
def test_texts_that_look_like_something_else_stay_what_they_are(tmp_path, name):
    """H12: csv → parquet → vocabulary; seven values and one null, 50 rows each."""
    lines = [f"{60 * i},{item},1.5,0" for i in range(50) for item in ODD_ITEMS]
    source = written(tmp_path / name, HEADER + "\n".join(lines) + "\n")
    (table,) = landed(tmp_path / "data", mapping(), source).values()
    assert table["item"].to_pylist() == [item or None for item in ODD_ITEMS] * 50
    assert set(Vocabulary.of(table["item"]).values) == set(ODD_ITEMS) - {""}


def test_an_empty_cell_is_null_or_a_value_as_the_mapping_says(tmp_path):
    source = written(tmp_path / "log.csv", HEADER + '0,,,0\n1,"",2,0\n2,NA,NA,1\n')
    rules = mapping(nulls=("NA",), number_nulls=("", "NA"))
    (table,) = landed(tmp_path / "data", rules, source).values()
    assert table["item"].to_pylist() == ["", "", None]
    assert table["price"].to_pylist() == [None, 2.0, None]
    rules = mapping(nulls=(), number_nulls=("", "NA"))
    (table,) = landed(tmp_path / "other", rules, source).values()
    assert table["item"].to_pylist() == ["", "", "NA"]


IDS = ["1582218195625938945", "1582218195625938946", "7", None]


def test_64_bit_ids_with_nulls_keep_every_digit_in_csv_and_parquet(tmp_path):
    """H13: 7 is "7", never "7.0"."""
    rows = "".join(f"{i},{item or ''},1,0\n" for i, item in enumerate(IDS))
    source = written(tmp_path / "log.csv", HEADER + rows)
    (from_csv,) = landed(tmp_path / "csv", mapping(), source).values()
    ids = pa.array([item and int(item) for item in IDS], pa.int64())
    stored = pa.table({"ts": [0, 1, 2, 3], "item": ids, "price": [1.0] * 4, "click": [0] * 4})
    pq.write_table(stored, tmp_path / "log.parquet")
    rules = mapping(kind="parquet")
    (from_parquet,) = landed(tmp_path / "parquet", rules, tmp_path / "log.parquet").values()
    assert from_csv["item"].to_pylist() == IDS
    assert from_parquet.equals(from_csv)


@pytest.mark.parametrize("size", [60, 1000, 1 << 20])
def test_types_do_not_change_by_chunk_by_file_or_by_order(tmp_path, size, monkeypatch):
    """H14: many rows that look like integers, then one "x"; eight ids are eight keys."""
    ids = [*(str(i % 7) for i in range(5000)), "x"]
    rows = [f"{i},{item},1,0\n" for i, item in enumerate(ids)]
    monkeypatch.setattr("pipeline.data.reader.read_blocks", lambda path: read_blocks(path, size))
    whole = written(tmp_path / "whole.csv", HEADER + "".join(rows))
    first = written(tmp_path / "first.csv", HEADER + "".join(rows[:4000]))
    second = written(tmp_path / "second.csv", HEADER + "".join(rows[4000:]))
    (together,) = landed(tmp_path / "a", mapping(), whole).values()
    landed(tmp_path / "b", mapping(), first, second)
    assert together["item"].to_pylist() == ids
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
    assert len(Vocabulary.of(together["item"])) == 8


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("5,a,1,x", "invalid value 'x'"),
        ("5,a,1,300", "invalid value '300'"),
        ("5,a,one,0", "invalid value 'one'"),
        ("5,a,1", "Expected 4 columns, got 3"),
        ("5,a,1,0,9", "Expected 4 columns, got 5"),
        (",a,1,0", "column ts has no time stamp"),
        ('5,"a\nb",1,0', "holds a line break"),
    ],
)
def test_a_row_that_breaks_its_type_is_named_by_file_and_line(tmp_path, line, reason):
    """H14: also after empty lines and in a later block."""
    rows = [f"{i},a,1,0" for i in range(703)]
    text = HEADER + "\n".join([*rows, line, "9,a,1,0", "10,a,1,y"]) + "\n"
    sentence = refusal(tmp_path, mapping(), text)
    assert sentence.startswith("log.csv, line 705: ")
    assert reason in sentence
    assert "\n" not in sentence


def test_a_faulty_line_is_named_in_any_block(tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.data.reader.read_blocks", lambda path: read_blocks(path, 64))
    rows = "".join(f"{i},a,1,0\n\n" for i in range(200))
    sentence = refusal(tmp_path, mapping(), HEADER + rows + "9,a,1,2x\n", "log.csv.gz")
    assert sentence.startswith("log.csv.gz, line 402: ")


def test_text_that_is_not_utf8_is_named(tmp_path):
    sentence = refusal(tmp_path, mapping(), HEADER.encode() + b"1,a,1,0\n2,\xff\xfe,1,0\n")
    assert sentence.startswith("log.csv, line 3: ")


@pytest.mark.parametrize("kept", [20, 0.5, -9])
def test_a_compressed_file_that_was_cut_short_is_refused(tmp_path, kept):
    """H15: the end of the stream is missing, in the middle or in its last bytes."""
    rng = np.random.default_rng(1)
    rows = "".join(f"{i},{rng.integers(10**9)},1,0\n" for i in range(20_000))
    whole = gzip.compress((HEADER + rows).encode())
    cut = whole[: int(kept * len(whole))] if isinstance(kept, float) else whole[:kept]
    (tmp_path / "log.csv.gz").write_bytes(cut)
    with pytest.raises(DataError, match=r"log\.csv\.gz cannot be read to its end"):
        land_files(tmp_path / "data", mapping(), [tmp_path / "log.csv.gz"])
    assert not (tmp_path / "data").exists()


def test_a_gz_of_several_members_is_read_to_its_end(tmp_path):
    members = [HEADER.encode() + b"0,a,1,0\n", b"1,b,1,1\n"]
    (tmp_path / "log.csv.gz").write_bytes(b"".join(map(gzip.compress, members)))
    (table,) = landed(tmp_path / "data", mapping(), tmp_path / "log.csv.gz").values()
    assert table["item"].to_pylist() == ["a", "b"]


def test_marks_carriage_returns_a_missing_last_newline_and_header_spaces_do_no_harm(tmp_path):
    text = "\ufeffts,item ,unused,price,click\r\n0,a,?,1,0\r\n\r\n1,b,?,2,1"
    (table,) = landed(tmp_path / "data", mapping(), written(tmp_path / "log.csv", text)).values()
    assert table.to_pylist() == [
        {"item": "a", "price": 1.0, "click": 0},
        {"item": "b", "price": 2.0, "click": 1},
    ]


def test_quotes_are_read_or_are_characters_like_any_other(tmp_path):
    text = 'ts\titem\tprice\tclick\n0\t"a\t1\t0\n1\tb"\t1\t0\n'
    rules = mapping(delimiter="\t", quote=None)
    (table,) = landed(tmp_path / "data", rules, written(tmp_path / "log.tsv", text)).values()
    assert table["item"].to_pylist() == ['"a', 'b"']
    text = HEADER + '0,"a,""b""",1,0\n'
    (table,) = landed(tmp_path / "b", mapping(), written(tmp_path / "log.csv", text)).values()
    assert table["item"].to_pylist() == ['a,"b"']


def test_a_missing_column_or_file_is_named(tmp_path):
    """H16."""
    assert "line 1: column click is missing" in refusal(tmp_path, mapping(), "ts,item,price\n")
    assert "column ts is there twice" in refusal(tmp_path, mapping(), "ts,ts,item,price,click\n")
    assert "log.csv is empty" in refusal(tmp_path, mapping(), "")
    with pytest.raises(DataError, match=r"none\.csv cannot be read"):
        land_files(tmp_path / "data", mapping(), [tmp_path / "none.csv"])


def test_a_header_alone_lands_no_day(tmp_path):
    """H18."""
    assert landed(tmp_path / "data", mapping(), written(tmp_path / "log.csv", HEADER)) == {}


STAMPS = "2024-03-09 23:30:00,2024-03-10 00:30:00"


@pytest.mark.parametrize(
    ("zone", "days"),
    [
        ("UTC", ["2024-03-09", "2024-03-10"]),
        ("Asia/Shanghai", ["2024-03-10"]),
        ("America/Los_Angeles", ["2024-03-09"]),
    ],
)
@pytest.mark.parametrize("form", ["iso8601", "%Y-%m-%d %H:%M:%S", "epoch_s", "epoch_ms"])
def test_rows_go_to_the_days_of_the_log_s_zone(tmp_path, zone, days, form):
    """H17: 23:30Z and 00:30Z; totals are conserved."""
    stamps = STAMPS.split(",")
    if form.startswith("epoch"):
        scale = 1000 if form == "epoch_ms" else 1
        stamps = [
            str((np.datetime64(s.replace(" ", "T"), "s").astype(int)) * scale) for s in stamps
        ]
    text = HEADER + "".join(f"{stamp},a,1,0\n" for stamp in stamps)
    clock = None if form.startswith("epoch") else "UTC"
    rules = mapping(time_zone=zone, time={"column": "ts", "format": form, "zone": clock})
    tables = landed(tmp_path / "data", rules, written(tmp_path / "log.csv", text))
    assert list(tables) == days
    assert sum(map(len, tables.values())) == 2


def test_stamps_without_an_offset_are_refused_where_no_clock_is_named(tmp_path):
    """H17."""
    text = HEADER + "2024-03-09 23:30:00,a,1,0\n"
    for form in ("iso8601", "%Y-%m-%d %H:%M:%S"):
        rules = mapping(time={"column": "ts", "format": form})
        assert "log.csv, line 2: column ts" in refusal(tmp_path, rules, text)
    rules = mapping(time={"column": "ts", "format": "iso8601", "zone": "UTC"})
    assert "line 2" in refusal(tmp_path, rules, HEADER + "2024-03-09 23:30:00+01:00,a,1,0\n")


def test_hour_and_weekday_are_those_of_the_log_s_zone_also_where_clocks_change(tmp_path):
    """H17."""
    stamps = ["2013-11-03T05:30:00Z", "2013-11-03T06:30:00Z", "2013-11-04T04:59:59Z"]
    rules = mapping(
        time_zone="America/New_York",
        time={"column": "ts", "format": "iso8601"},
        made={"hour": {"rule": "hour"}, "weekday": {"rule": "weekday"}},
    )
    text = HEADER + "".join(f"{stamp},a,1,0\n" for stamp in stamps)
    (table,) = landed(tmp_path / "data", rules, written(tmp_path / "log.csv", text)).values()
    assert table["hour"].to_pylist() == [1, 1, 23]
    assert table["weekday"].to_pylist() == [7, 7, 7]


def test_rules_make_labels_and_drop_rows_and_count_what_they_drop(tmp_path):
    rules = mapping(
        columns={"item": "text"},
        keep={"click": ("1",)},
        drop_null=("price",),
        made={
            "dear": {"rule": "above", "of": "price", "limit": 1.5},
            "known": {"rule": "equals", "of": "item", "values": ("a", "b")},
        },
    )
    text = HEADER + "0,a,1,1\n1,b,2,1\n2,c,3,1\n3,,1.5,1\n4,a,1,0\n5,a,,1\n86400,a,1,0\n"
    source = written(tmp_path / "log.csv", text)
    manifest, came = land_files(tmp_path / "data", rules, [source])
    table = read_day(tmp_path / "data", "1970-01-01")
    assert table["dear"].to_pylist() == [0, 1, 1, 0]
    assert table["known"].to_pylist() == [1, 1, 0, None]
    assert list(manifest.days) == ["1970-01-01"]
    assert came["1970-01-01"].dropped == {"click is not 1": 1, "price is null": 1}
    assert came["1970-01-02"].dropped == {"click is not 1": 1}
    again = read_manifest(tmp_path / "data" / "manifest.json")
    assert again.days["1970-01-01"].dropped == came["1970-01-01"].dropped


def test_landing_twice_changes_nothing_and_a_smaller_rewrite_takes_the_place_of_its_day(tmp_path):
    """H15: six rows, then three."""
    rows = [f"{86400 * (i // 6) + i},a,1,0\n" for i in range(12)]
    whole = written(tmp_path / "whole.csv", HEADER + "".join(rows))
    less = written(tmp_path / "less.csv", HEADER + "".join(rows[:3]))
    landed(tmp_path / "data", mapping(), whole)
    before = files_of(tmp_path / "data")
    landed(tmp_path / "data", mapping(), whole)
    assert files_of(tmp_path / "data") == before
    tables = landed(tmp_path / "data", mapping(), less)
    assert [len(table) for table in tables.values()] == [3, 6]
    assert {name: content for name, content in files_of(tmp_path / "data").items() if "02" in name}


def test_a_log_of_other_columns_or_of_another_zone_is_refused(tmp_path):
    source = written(tmp_path / "log.csv", HEADER + "0,a,1,0\n")
    landed(tmp_path / "data", mapping(), source)
    before = files_of(tmp_path / "data")
    for other in (mapping(time_zone="Asia/Shanghai"), mapping(columns={"item": "text"})):
        with pytest.raises(DataError, match="is of another kind"):
            land_files(tmp_path / "data", other, [source])
    assert files_of(tmp_path / "data") == before


def test_only_the_first_days_are_landed_and_reading_ends_there(tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.data.reader.read_blocks", lambda path: read_blocks(path, 64))
    rows = "".join(f"{86400 * (i // 10)},a,1,0\n" for i in range(100)) + "not read\n"
    source = written(tmp_path / "log.csv", HEADER + rows)
    manifest, _ = land_files(tmp_path / "data", mapping(), [source], limit_days=2)
    assert {day: entry.rows for day, entry in manifest.days.items()} == {
        "1970-01-01": 10,
        "1970-01-02": 10,
    }


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_every_byte_that_is_read_is_reported(tmp_path, kind):
    table = pa.table({"ts": range(50), "item": ["a"] * 50, "price": [1.0] * 50, "click": [0] * 50})
    path = tmp_path / f"log.{kind}"
    if kind == "csv":
        written(path, HEADER + "".join(f"{i},a,1,0\n" for i in range(50)))
    else:
        pq.write_table(table, path)
    reported: list[int] = []
    list(read_rows(mapping(kind=kind), [path], reported.append))
    assert sum(reported) == path.stat().st_size


def test_a_parquet_value_that_does_not_fit_is_named_by_row(tmp_path):
    """H14: also where a column is a float that lost digits."""
    clicks = [0] * 70_000
    good = {"ts": range(70_000), "item": ["a"] * 70_000, "price": [1.0] * 70_000}
    pq.write_table(pa.table({**good, "click": [*clicks[:-1], 300]}), tmp_path / "a.parquet")
    pq.write_table(
        pa.table({**good, "click": clicks, "item": [1.0] * 69_999 + [1.5]}), tmp_path / "b.parquet"
    )
    rules = mapping(kind="parquet")
    for name, column in {"a": "click", "b": "item"}.items():
        with pytest.raises(DataError, match=rf"{name}\.parquet, row 70000: column {column}: "):
            land_files(tmp_path / "data", rules, [tmp_path / f"{name}.parquet"])
    with pytest.raises(DataError, match=r"log\.csv is no whole Parquet file"):
        land_files(tmp_path / "data", rules, [written(tmp_path / "log.csv", HEADER)])


def test_parquet_stamps_and_texts_are_what_they_say(tmp_path):
    stamps = pa.array([1_710_027_000, 1_710_030_600], pa.timestamp("s", "UTC"))
    table = pa.table({"ts": stamps, "item": ["001", ""], "price": [1, 2], "click": [True, False]})
    pq.write_table(table, tmp_path / "log.parquet")
    rules = mapping(kind="parquet", time={"column": "ts", "format": "iso8601"})
    tables = landed(tmp_path / "data", rules, tmp_path / "log.parquet")
    assert {day: table.to_pylist() for day, table in tables.items()} == {
        "2024-03-09": [{"item": "001", "price": 1.0, "click": 1}],
        "2024-03-10": [{"item": None, "price": 2.0, "click": 0}],
    }


@pytest.mark.parametrize("budget", [1, 200_000, 1 << 30])
def test_a_day_has_the_same_bytes_however_its_rows_came(tmp_path, budget, monkeypatch):
    """H14: in any cut, with or without spilling to the disk, the bytes of land_day."""
    monkeypatch.setattr("pipeline.data.staging.BUDGET", budget)
    rows = CONTENT_BLOCK + 1000
    rng = np.random.default_rng(1)
    values = {"item": rng.integers(0, 99, rows).astype(str), "price": rng.random(rows)}
    whole = tiny_day(1).slice(0, 0).schema.empty_table()
    values |= {"shown": np.ones(rows, np.int64), "click": np.zeros(rows, np.int8)}
    whole = pa.table(
        {n: pa.array(values[n], KIND.schema.field(n).type) for n in whole.column_names}
    )
    days = rng.integers(0, 3, rows)
    days[: CONTENT_BLOCK // 2] = 0

    def fill(stage: DayStage) -> None:
        for start in range(0, rows, 9_999):
            part = whole.slice(start, 9_999)
            stage.add(part, days[start : start + len(part)])
        stage.add(whole.slice(0, 100_000), np.zeros(100_000, np.int32))

    land_days(tmp_path / "stream", PRIVATE, fill)
    for number in range(3):
        day = whole.filter(pa.array(days == number))
        if number == 0:
            day = pa.concat_tables([day, whole.slice(0, 100_000)])
        manifest = land_day(tmp_path / "whole", PRIVATE, day_name(number), day)
        assert manifest.days[day_name(number)].content_sha256 == content_sha256(day)
    assert files_of(tmp_path / "stream") == files_of(tmp_path / "whole")


def test_a_stage_whose_filling_fails_leaves_nothing(tmp_path):
    """H15."""
    land_day(tmp_path / "data", PRIVATE, "2024-01-01", tiny_day())
    before = files_of(tmp_path)

    def fill(stage: DayStage) -> None:
        stage.add(tiny_day(), np.zeros(4, np.int32))
        raise OSError("the disk is full")

    with pytest.raises(DataError, match="data cannot be written: the disk is full; every day"):
        land_days(tmp_path / "data", PRIVATE, fill)
    assert files_of(tmp_path) == before


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"colour": 1}, "colour: Extra inputs"),
        ({"kind": "xml"}, "kind: Input should be"),
        ({"time": None}, "exactly one of time, date"),
        ({"file_day": "x"}, "exactly one of time, date"),
        ({"columns": {"item": "string"}}, "columns.item.type"),
        ({"made": {"dear": {"rule": "above", "of": "price"}}}, "the rule above takes"),
        ({"made": {"item": {"rule": "hour"}}}, "in columns and in made"),
        ({"positions": ["ts", "item"]}, "are not among positions"),
        ({"columns": {"item": "text", "again": {"source": "item", "type": "int8"}}}, "one type"),
    ],
)
def test_a_mapping_that_cannot_be_is_refused_with_its_key(tmp_path, keys, sentence):
    """H20."""
    import json

    document = mapping().model_dump(exclude_defaults=True)
    (tmp_path / "mine.yaml").write_text(json.dumps({**document, **keys}))
    with pytest.raises(DataError) as error:
        read_mapping(str(tmp_path / "mine.yaml"))
    assert sentence in str(error.value)


def test_a_mapping_that_is_not_there_is_named_with_those_that_ship():
    with pytest.raises(DataError, match=r"no mapping 'avasu': .*'avazu'"):
        read_mapping("avasu")
