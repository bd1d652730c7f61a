"""Logs as they are spelled elsewhere: stamps, signs in numbers, escapes, encodings, folders."""

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from pipeline.data.ingest.file_reader import land_files
from pipeline.data.log_store.day_rows import read_day
from tests.data.logs import HEADER, landed, mapping, refusal, refused, stored, written

NOON = 1_711_965_600  # 2024-04-01T10:00:00Z
ISO = {"column": "ts", "format": "iso8601"}


@pytest.mark.parametrize(
    ("stamps", "rule"),
    [
        (["2024-04-01T10:00:00.123456789Z", "2024-04-01T10:00:00.5Z"], ISO),
        (["2024-04-01 10:00:00.5 UTC", "2024-04-01 10:00:00 UTC"], ISO),
        (["2024-04-01 12:00:00.5+02:00", "2024-04-01T10:00:00Z"], ISO),
        (['"2024-04-01 10:00:00,123 UTC"', '"2024-04-01T12:00:00,5+02:00"'], ISO),
        ([f"{NOON}.123", f"{NOON}"], {"column": "ts", "format": "epoch_s"}),
        ([f"{NOON}123456789", f"{NOON}000000000"], {"column": "ts", "format": "epoch_ns"}),
    ],
)
def test_stamps_as_other_systems_write_them_are_floored_and_landed(tmp_path, stamps, rule):
    rules = mapping(time=rule, made={"hour": {"rule": "hour"}})
    text = HEADER + "".join(f"{stamp},a,1,0\n" for stamp in stamps)
    tables = landed(tmp_path / "data", rules, written(tmp_path / "log.csv", text))
    assert {day: table["hour"].to_pylist() for day, table in tables.items()} == {
        "2024-04-01": [10, 10]
    }


@pytest.mark.parametrize(
    ("stamp", "zone"),
    [
        ("0000-01-01T00:00:00", "Europe/Berlin"),
        ("0001-01-01T00:00:00", "Asia/Tokyo"),
        ("9999-12-31T23:59:59", "America/New_York"),
    ],
)
def test_a_wall_clock_beyond_the_calendar_is_refused_by_its_line(tmp_path, stamp, zone):
    rules = mapping(time=ISO | {"zone": zone})
    assert refusal(tmp_path, rules, HEADER + f"{stamp},a,1,0\n").startswith("log.csv, line 2: ")


@pytest.mark.parametrize("form", ["%b %d %H:%M:%S", "%H:%M", "%Y-%m", "%Y-%W", "%Y-%m-%d %Q"])
@pytest.mark.parametrize("key", ["time", "date"])
def test_a_form_without_the_whole_day_is_refused_with_its_key(key, form):
    """A log of syslog has no year: its rows would be of 1900."""
    with pytest.raises(ValidationError, match=key):
        mapping(**{"time": None, key: {"column": "ts", "format": form}})


@pytest.mark.parametrize("seconds", [-(10**14), 10**16, 2**62])
def test_an_instant_outside_the_calendar_is_told_with_its_column(tmp_path, seconds):
    sentence = refusal(tmp_path, mapping(), HEADER + f"{seconds},a,1,0\n")
    assert sentence.startswith("log.csv, line 2: column ts ")


@pytest.mark.parametrize("stamp", ["20240401T100000", "2024-04-01T10:00:00 +02:00"])
def test_a_stamp_with_the_offset_that_it_should_have_is_not_told_to_change_that(tmp_path, stamp):
    zone = {} if "+" in stamp else {"zone": "Europe/Berlin"}
    sentence = refusal(tmp_path, mapping(time=ISO | zone), HEADER + f"{stamp},a,1,0\n")
    assert "time.format" in sentence
    assert "offset" not in sentence


@pytest.mark.parametrize("version", ["2.6", "INT96"])
def test_stamps_of_parquet_finer_than_microseconds_are_floored(tmp_path, version):
    """The last nanosecond of a day is of that day, also before 1970."""
    ends = [NOON * 10**9 + 1, 86_400 * 10**9 - 1, -1]
    stamps = pa.array(ends, pa.timestamp("ns", None if version == "INT96" else "UTC"))
    table = pa.table({"ts": stamps, "item": ["a"] * 3, "price": [1.0] * 3, "click": [0] * 3})
    pq.write_table(
        table, tmp_path / "log.parquet", use_deprecated_int96_timestamps=version == "INT96"
    )
    rules = mapping(kind="parquet", time=ISO | ({"zone": "UTC"} if version == "INT96" else {}))
    tables = landed(tmp_path / "data", rules, tmp_path / "log.parquet")
    assert list(tables) == ["1969-12-31", "1970-01-01", "2024-04-01"]


def test_hour_weekday_and_day_are_of_one_instant_where_clocks_skip_it(tmp_path):
    """00:30 was skipped in Sao Paulo; days are those of Bahia."""
    rules = mapping(
        time_zone="America/Bahia",
        time=ISO | {"zone": "America/Sao_Paulo"},
        made={"hour": {"rule": "hour"}, "weekday": {"rule": "weekday"}},
    )
    path = written(tmp_path / "log.csv", HEADER + "2017-10-15T00:30:00,a,1,0\n")
    tables = landed(tmp_path / "data", rules, path)
    assert {
        day: (table["hour"][0].as_py(), table["weekday"][0].as_py())
        for day, table in tables.items()
    } == {"2017-10-15": (0, 7)}


@pytest.mark.parametrize(
    ("keys", "cell", "value"),
    [
        ({"thousands": ","}, '"1,234"', 1234.0),
        ({"thousands": ",", "delimiter": ";"}, "1,234,567.5", 1234567.5),
        ({"thousands": ".", "decimal": ",", "delimiter": ";"}, "1.234,5", 1234.5),
        ({"thousands": " "}, "1 234\u00a0567", 1234567.0),
        ({"decimal": ",", "delimiter": ";"}, "1,234", 1.234),
        ({"decimal": ",", "delimiter": ";"}, " 0,5 ", 0.5),
    ],
)
def test_signs_in_numbers_are_those_of_the_mapping(tmp_path, keys, cell, value):
    text = (HEADER + f"0,a,{cell},0\n").replace(",a,", ";a;").replace(",0\n", ";0\n")
    if "delimiter" not in keys:
        text = HEADER + f"0,a,{cell},0\n"
    text = text.replace(HEADER, HEADER.replace(",", keys.get("delimiter", ",")))
    (table,) = landed(
        tmp_path / "data", mapping(**keys), written(tmp_path / "log.csv", text)
    ).values()
    assert table["price"].to_pylist() == [value]


@pytest.mark.parametrize(
    ("keys", "cell"),
    [
        ({}, "1,234"),
        ({}, "1.234.567"),
        ({"thousands": ","}, "1,23"),
        ({"thousands": ","}, "12345,678"),
        ({"decimal": ","}, "1.5"),
        ({"columns": {"item": "text", "price": "int64", "click": "int8"}}, "0x1f"),
        ({"columns": {"item": "text", "price": "float32", "click": "int8"}}, " -1e300"),
        ({}, "1e400"),
    ],
)
def test_a_number_that_may_be_read_in_two_ways_or_is_too_large_is_refused(tmp_path, keys, cell):
    text = HEADER.replace(",", ";") + f"0;a;{cell};0\n"
    sentence = refusal(tmp_path, mapping(delimiter=";", **keys), text)
    assert sentence.startswith(f"log.csv, line 2: column price is '{cell}', which is no ")
    if cell == "1,234":
        assert "thousands: ','" in sentence
        assert "decimal: ','" in sentence


def test_quotes_that_a_backslash_escapes_are_read_where_the_mapping_says_so(tmp_path):
    """Refused whatever the count where it does not."""
    text = HEADER + '0,"a \\"b\\" c",1,0\n1,"back\\\\slash",1,0\n2,c:\\d,1,0\n'
    path = written(tmp_path / "log.csv", text)
    (table,) = landed(tmp_path / "data", mapping(escape="\\"), path).values()
    assert table["item"].to_pylist() == ['a "b" c', "back\\slash", "c:\\d"]
    assert refused(tmp_path / "other", mapping(), path).endswith("or let quote be null")


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-8-sig", "shift_jis"])
@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz"])
def test_a_file_in_any_encoding_lands_and_its_faults_are_named_by_line(tmp_path, encoding, name):
    item = "日本" if encoding == "shift_jis" else "Gerät"
    rules = mapping(encoding=encoding)
    path = written(tmp_path / name, (HEADER + f"0,{item},1,0\n").encode(encoding))
    (table,) = landed(tmp_path / "data", rules, path).values()
    assert table["item"].to_pylist() == [item]
    (tmp_path / "other").mkdir()
    faulty = (HEADER + f"0,{item},1,0\n1,{item},1,x\n").encode(encoding)
    assert refusal(tmp_path / "other", rules, faulty, name).startswith(f"{name}, line 3: ")


@pytest.mark.parametrize("name", ["log.json", "log.json.gz", "log.jsonl.zst"])
def test_json_lines_land_as_the_same_rows_of_csv_do(tmp_path, name):
    """Ids of 64 bits, texts and nulls; a line without a key has null there."""
    lines = [
        {"ts": 0, "item": 1582218195625938945, "price": 1.5, "click": 0, "more": {"a": [1]}},
        {"click": 1, "item": "001", "ts": "1", "price": None},
        {"ts": 2, "item": "", "click": True},
    ]
    text = "\n".join(json.dumps(line) for line in lines) + "\n"
    rules = mapping(kind="json", columns={"item": "text", "price": "float64", "click": "bool"})
    (table,) = landed(tmp_path / "data", rules, written(tmp_path / name, text)).values()
    assert table.to_pylist() == [
        {"item": "1582218195625938945", "price": 1.5, "click": False},
        {"item": "001", "price": None, "click": True},
        {"item": None, "price": None, "click": True},
    ]


def test_numbers_in_json_that_name_values_are_spelled_as_in_a_request(tmp_path):
    """Whole ones have no point, texts and every digit of an id stay."""
    cells = ["7.0", "-0.0", "1e2", '"7.0"', "1582218195625938945", "9007199254740994.0", "null"]
    cells += ["NaN", '"NaN"']
    text = "".join(f'{{"ts": 1.0, "item": {cell}, "click": 1.0}}\n' for cell in cells)
    path = written(tmp_path / "log.json", text)
    (table,) = landed(tmp_path / "data", mapping(kind="json"), path).values()
    spelled = ["7", "0", "100", "7.0", "1582218195625938945", "9007199254740994.0", None]
    spelled += [None, "NaN"]
    assert table["item"].to_pylist() == spelled
    assert table["click"].to_pylist() == [1] * len(cells)


@pytest.mark.parametrize(
    ("kind", "ad", "source"),
    [("json", {"id": 1}, "ad"), ("json", [1], "ad"), ("parquet", {"id": 1}, "ad.id")],
)
def test_what_records_and_lists_hold_is_no_text_and_the_way_to_it_is_named(
    tmp_path, kind, ad, source
):
    rules = mapping(kind=kind, columns={"ad": {"source": source, "type": "text"}})
    path = tmp_path / f"log.{kind}"
    if kind == "json":
        lines = [{"ts": 0, "ad": "x", "more": ad}, {"ts": 1, "ad": ad}]
        written(path, "".join(json.dumps(line) + "\n" for line in lines))
    else:
        pq.write_table(pa.table({"ts": [0], "ad": [ad]}), path)
    assert "select of the mapping reaches" in refused(tmp_path, rules, path)


HALF = '{"ts": 1, "item": "\\ud800"}'  # a character


@pytest.mark.parametrize("line", ['{"ts": 1', "[1]", '"x"', "7", '{"ts": "x"}', '{"ts": 1},', HALF])
def test_a_line_that_is_no_json_object_or_holds_a_wrong_value_is_refused(tmp_path, line):
    text = '{"ts": 0, "item": "a"}\n' + line + "\n"
    sentence = refusal(tmp_path, mapping(kind="json"), text, "log.json")
    assert re.match(r"log\.json.* (line|row) 2", sentence)


def test_rows_that_are_no_events_are_left_out_before_they_need_a_day(tmp_path):
    """A totals row at the end, and heartbeats; both are counted."""
    rules = mapping(
        time=None,
        date={"column": "Day", "format": "%Y-%m-%d"},
        nulls=("", " --"),
        keep={"kind": ("event",)},
        drop_null=("Day",),
        columns={"item": "text"},
    )
    text = (
        "Day,kind,item\n2024-04-01,event,a\n,heartbeat,\nnever,heartbeat,\n2024-04-02,event,b\n"
        " --,event,Total\n"
    )
    came = land_files(tmp_path / "data", rules, [written(tmp_path / "log.csv", text)]).days
    assert {day: entry.rows for day, entry in came.items()} == {"2024-04-01": 1, "2024-04-02": 1}
    dropped = {rule: rows for entry in came.values() for rule, rows in entry.dropped.items()}
    assert dropped == {"Day is null": 2, "kind is not event": 1}


@pytest.mark.parametrize(
    ("folder", "pattern"),
    [
        ("dt=2024-04-01", r"dt=(\d{4}-\d\d-\d\d)"),
        ("dt=20240401/hour=07", r"dt=(\d{8})"),
        ("2024-04-01", r"(\d{4}-\d\d-\d\d)/"),
    ],
)
def test_a_day_comes_from_the_name_of_a_folder(tmp_path, folder, pattern):
    (tmp_path / folder).mkdir(parents=True)
    path = stored(tmp_path / folder / "part-0.parquet", item=["a", "b"])
    rules = mapping(kind="parquet", time=None, file_day=pattern)
    assert list(landed(tmp_path / "data", rules, path)) == ["2024-04-01"]


def test_a_name_in_another_spelling_of_unicode_is_told_as_such(tmp_path):
    """Decomposed in the file, composed in the mapping; in CSV and in Parquet."""
    rules = {"columns": {"Ger\u00e4t": "text"}}
    name = "Gera\u0308t"
    sentence = refusal(tmp_path, mapping(**rules), f"ts,{name}\n0,a\n")
    assert "other Unicode" in sentence
    pq.write_table(pa.table({"ts": [0], name: ["a"]}), tmp_path / "log.parquet")
    sentence = refused(tmp_path, mapping(kind="parquet", **rules), tmp_path / "log.parquet")
    assert "other Unicode" in sentence


def test_paths_are_taken_as_they_are(tmp_path):
    """Brackets and stars are no patterns, quotes no quotes."""
    folder = tmp_path / "ads[prod] it's *"
    folder.mkdir()
    (tmp_path / "adsp it's x").mkdir()
    written(tmp_path / "adsp it's x" / "log.csv", HEADER + "0,other,1,0\n")
    path = written(folder / "log.csv", HEADER + "0,a,1,0\n")
    landed(tmp_path / "data", mapping(), path)
    assert read_day(tmp_path / "data", "1970-01-01")["item"].to_pylist() == ["a"]


def test_names_with_points_and_columns_that_are_there_twice_are_read_by_name(tmp_path):
    rules = mapping(columns={"browser": {"source": "device.browser", "type": "text"}})
    text = 'ts,x,x,device.browser,"a ""b"""\n0,1,2,firefox,3\n'
    (table,) = landed(tmp_path / "data", rules, written(tmp_path / "log.csv", text)).values()
    assert table["browser"].to_pylist() == ["firefox"]


def test_plain_text_with_the_name_of_a_compressed_file_is_told_so(tmp_path):
    for name in ("log.csv.gz", "log.csv.zst", "log.csv.bz2"):
        (tmp_path / name).write_text(HEADER + "0,a,1,0\n")
        assert "plain text" in refused(tmp_path, mapping(), tmp_path / name)
