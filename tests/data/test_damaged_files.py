"""Text files that are not what they should be: named in one sentence, and nothing lands."""

import gzip
import json
import os

import numpy as np
import pyarrow as pa
import pytest

from pipeline.core.errors import DataError
from pipeline.data.ingest.file_reader import land_files
from pipeline.data.ingest.sources import land_sources, local_files
from tests.data.logs import HEADER, landed, mapping, refusal, refused, written


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("5,a,1,x", "column click is 'x', which is no int8; in the mapping number_nulls lists"),
        ("5,a,1,300", "column click is '300', which is no int8"),
        ("5,a,one,0", "column price is 'one', which is no float64; "),
        ("5,a,1", "Expected 4 columns, got 3: 5,a,1; mend the line, or delimiter"),
        ("5,a,1,0,9", "Expected 4 columns, got 5"),
        (",a,1,0", "column ts has no time stamp"),
        ('5,"a"b",1,0', "goes on after its closing quote"),
        ('5,"a\\"b",1,0', "goes on after its closing quote"),
        ("5;a;1;0", "Expected 4 columns, got 1"),
        ("5,a,1,1.0", "column click is '1.0', which is no int8"),
        ("5,a,1,TRUE", "column click is 'TRUE', which is no int8; in the mapping"),
        ('5,a,"1,5",0', "say decimal: ',' in the mapping"),
        ("5.x,a,1,0", "column ts is '5.x', which is no int64"),
        ("99999999999999,a,1,0", "99999999999999, outside the calendar"),
    ],
)
def test_a_row_that_breaks_its_type_is_named_by_file_and_line(tmp_path, line, reason):
    """Also after empty lines and in a later block."""
    rows = [f"{i},a,1,0" for i in range(703)]
    text = HEADER + "\n".join([*rows, line, "9,a,1,0", "10,a,1,y"]) + "\n"
    sentence = refusal(tmp_path, mapping(), text)
    assert sentence.startswith("log.csv, line 705: ")
    assert reason in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    "rule",
    [
        {"time": {"column": "ts", "format": "epoch_s"}},
        {"time": {"column": "ts", "format": "iso8601"}},
        {"time": {"column": "ts", "format": "%Y-%m-%d %H"}},
        {"date": {"column": "ts", "format": "%Y-%m-%d"}},
    ],
)
def test_a_second_header_is_told_as_what_it_looks_like(tmp_path, rule):
    rules = mapping(columns={"item": "text"}, **{"time": None, **rule})
    sentence = refusal(tmp_path, rules, HEADER + HEADER)
    assert sentence == (
        "log.csv, line 2: column ts is 'ts', which is the column's own name, as in a second "
        "header; remove that line"
    )


@pytest.mark.parametrize("form", ["%Y-%m-%d", "iso8601"])
@pytest.mark.parametrize("key", ["time", "date"])
def test_a_day_of_no_calendar_is_told_with_its_column(tmp_path, key, form):
    rule = {"column": "ts", "format": form} | ({"zone": "UTC"} if key == "time" else {})
    rules = mapping(**{"time": None, key: rule})
    sentence = refusal(tmp_path, rules, HEADER + "2024-02-31,a,1,0\n")
    assert "line 2: column ts is '2024-02-31', " in sentence
    assert "calendar" in sentence
    assert "format" in sentence


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_folder_is_no_file(tmp_path, kind):
    (tmp_path / "logs").mkdir()
    sentence = refused(tmp_path, mapping(kind=kind), tmp_path / "logs")
    assert sentence == "logs is a folder; name the files in it"


@pytest.mark.parametrize(
    ("stamp", "rule", "step"),
    [
        ("2026-11-03T14:00:00", {}, "with an offset; say where its clock hung, time: {"),
        ("2026-11-03T14:00:00+01:00", {"zone": "UTC"}, "without offset; leave time.zone out"),
        ("03.11.2026 14:00", {}, "time.format takes a pattern"),
        ("03.11.2026", {"format": "%d.%m.%Y"}, "say where their clock hung, time: {"),
    ],
)
def test_a_stamp_that_does_not_fit_the_rule_says_what_to_change_in_it(tmp_path, stamp, rule, step):
    rules = mapping(time={"column": "ts", "format": "iso8601", **rule})
    sentence = refusal(tmp_path, rules, f"{HEADER}{stamp},a,1,0\n")
    assert sentence.startswith("log.csv, line 2: column ts")
    assert step in sentence


def test_a_header_that_is_not_utf_8_is_told_from_a_missing_column(tmp_path):
    rules = mapping(columns={"gerät": "text"})
    sentence = refusal(tmp_path, rules, "ts,gerät\n5,a\n".encode("latin1"))
    assert sentence.startswith("log.csv, line 1: the header is not UTF-8; name its encoding")


def test_a_file_without_rows_is_no_log(tmp_path):
    path = written(tmp_path / "log.csv", HEADER)
    (tmp_path / "mine.yaml").write_text(mapping().model_dump_json())
    with pytest.raises(DataError, match=r"log\.csv: no rows; nothing was landed"):
        land_sources(str(tmp_path / "mine.yaml"), tmp_path / "data", [path])
    assert not (tmp_path / "data").exists()


def test_a_faulty_line_is_named_in_any_block(tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.data.ingest.records.ROWS", 64)
    rows = "".join(f"{i},a,1,0\n\n" for i in range(200))
    sentence = refusal(tmp_path, mapping(), HEADER + rows + "9,a,1,2x\n", "log.csv.gz")
    assert sentence.startswith("log.csv.gz, line 402: ")


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz"])
def test_a_line_that_cannot_be_parted_is_named_however_late_it_comes(tmp_path, name):
    text = HEADER + "0,a,1,0\n" * 100_000
    sentence = refusal(tmp_path, mapping(), f"{text}1,2\n", name)
    assert sentence.startswith(f"{name}, line 100002: Expected 4 columns, got 2: 1,2; mend the")
    sentence = refusal(tmp_path, mapping(), text.encode() + b"1,\xff,1,0\n", name)
    assert sentence.startswith(f"{name}, line 100002: it is not UTF-8")


def test_an_object_that_cannot_be_read_is_named_however_late_it_comes(tmp_path):
    text = json.dumps({"ts": 0, "item": "a", "price": 1, "click": 0}) + "\n"
    sentence = refusal(tmp_path, mapping(kind="json"), text * 100_000 + '{"ts": }\n', "log.json")
    assert " in line 100001: " in sentence
    assert "each line is to be one JSON object" in sentence


def test_the_line_of_a_fault_is_counted_over_values_with_line_breaks(tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.data.ingest.records.ROWS", 64)
    rows = '1,"a\n\nb",1,0\n' * 40 + "2,a,1,x\n" + '1,"a\nb",1,0\n' * 9
    assert refusal(tmp_path, mapping(), HEADER + rows).startswith("log.csv, line 122: ")


def test_a_quote_that_is_never_closed_is_named_where_it_opens(tmp_path):
    for rows in (1, 200):
        text = HEADER + '0,"a",1,0\n' * 5 + '1,"b,1,0\n' + "2,c,1,0\n" * rows
        sentence = refusal(tmp_path, mapping(), text)
        assert sentence.startswith("log.csv, line 7: a quote opens a value here and none closes")


def test_a_quote_inside_a_value_that_is_not_quoted_is_a_character(tmp_path):
    text = HEADER + '0,5" pipe,1,0\n1,a"b"c,1,0\n2,"x",1,0\n'
    (table,) = landed(tmp_path / "data", mapping(), written(tmp_path / "log.csv", text)).values()
    assert table["item"].to_pylist() == ['5" pipe', 'a"b"c', "x"]


def test_a_carriage_return_alone_ends_no_line(tmp_path):
    sentence = refusal(tmp_path, mapping(), HEADER + "0,a,1,0\n1,a\rb,1,0\n")
    assert sentence.startswith("log.csv, line 3: a carriage return ends no line")
    old = (HEADER + "0,a,1,0\n").replace("\n", "\r")
    assert "line 1: column item is missing" in refusal(tmp_path, mapping(), old)


def test_text_that_is_not_utf8_is_named(tmp_path):
    sentence = refusal(tmp_path, mapping(), HEADER.encode() + b"1,a,1,0\n2,\xff\xfe,1,0\n")
    assert sentence.startswith("log.csv, line 3: ")


@pytest.mark.parametrize("kept", [20, 0.5, -9])
def test_a_compressed_file_that_was_cut_short_is_refused(tmp_path, kept):
    """The end of the stream is missing, in the middle or in its last bytes."""
    rng = np.random.default_rng(1)
    rows = "".join(f"{i},{rng.integers(10**9)},1,0\n" for i in range(20_000))
    whole = gzip.compress((HEADER + rows).encode())
    cut = whole[: int(kept * len(whole))] if isinstance(kept, float) else whole[:kept]
    (tmp_path / "log.csv.gz").write_bytes(cut)
    sentence = refused(tmp_path, mapping(), tmp_path / "log.csv.gz")
    assert sentence.startswith("log.csv.gz cannot be read to its end: ")


@pytest.mark.parametrize("codec", ["gzip", "zstd", "bz2"])
def test_members_that_follow_one_another_are_read_and_cut_or_foreign_ones_refused(tmp_path, codec):
    """Also in the last byte."""
    name = {"gzip": "log.csv.gz", "zstd": "log.csv.zst", "bz2": "log.csv.bz2"}[codec]
    rng = np.random.default_rng(1)
    rows = [f"{i},{rng.integers(10**9)},1,0\n" for i in range(2000)]
    parts = []
    for text in (HEADER + "".join(rows[:1000]), "".join(rows[1000:])):
        stream = pa.BufferOutputStream()
        with pa.CompressedOutputStream(stream, codec) as compressed:
            compressed.write(text.encode())
        parts.append(stream.getvalue().to_pybytes())
    path = tmp_path / name
    path.write_bytes(b"".join(parts))
    (table,) = landed(tmp_path / "whole", mapping(), path).values()
    assert len(table) == 2000
    for damaged in (b"".join(parts)[:-1], parts[0] + parts[1][:200], parts[0] + b"not compressed"):
        path.write_bytes(damaged)
        assert refused(tmp_path, mapping(), path).startswith(f"{name} cannot be read to its end: ")


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz", "log.csv.zst"])
def test_an_empty_file_is_named_and_one_with_a_header_alone_has_no_rows(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    sentence = f"{name} is empty: it has no header; leave it out, or fetch it again"
    assert refused(tmp_path, mapping(), tmp_path / name) == sentence
    assert refusal(tmp_path, mapping(), "", name) == sentence
    for text in (HEADER, HEADER.strip(), "\n\n" + HEADER + "\n\n"):
        assert landed(tmp_path / "data", mapping(), written(tmp_path / name, text)) == {}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(HEADER.encode()), "like a .gz file; let its name end in .gz"),
        (b"\x28\xb5\x2f\xfd rest", "like a .zst file; let its name end in .zst"),
        (b"PK\x03\x04 rest", "like a .zip file; make it text in UTF-8"),
        (b"PAR1 rest", "like a .parquet file; make it text in UTF-8"),
        (HEADER.encode("utf-16"), "like a .utf16 file; say encoding: utf-16 in the mapping"),
    ],
    ids=["gz", "zst", "zip", "parquet", "utf16"],
)
def test_a_file_that_is_no_text_is_told_by_its_beginning(tmp_path, content, said):
    assert refusal(tmp_path, mapping(), content) == f"log.csv is no text: it begins {said}"


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
    assert "line 1: column click is missing" in refusal(tmp_path, mapping(), "ts,item,price\n")
    assert "column ts is there twice" in refusal(tmp_path, mapping(), "ts,ts,item,price,click\n")
    with pytest.raises(DataError, match=r"none\.csv does not exist"):
        land_files(tmp_path / "data", mapping(), [tmp_path / "none.csv"])


def test_headers_that_do_not_fit_are_shown(tmp_path):
    """A wrong delimiter, a renamed label, another case; nothing of megabytes is shown."""
    semicolons = refusal(tmp_path, mapping(), HEADER.replace(",", ";") + "0;a;1;0\n")
    assert semicolons.endswith("['ts;item;price;click'] with the delimiter ','")
    renamed = refusal(tmp_path, mapping(), HEADER.replace("click", "clicked"))
    assert "column click is missing; the header is ['ts', 'item', 'price', 'clicked']" in renamed
    assert "column item is missing" in refusal(tmp_path, mapping(), HEADER.upper())
    assert len(refusal(tmp_path, mapping(), b"\0" * 5_000_000)) < 500
    (table,) = landed(
        tmp_path / "data", mapping(), written(tmp_path / "x.csv", "x,x," + HEADER + "1,2,0,a,1,0\n")
    ).values()
    assert table["item"].to_pylist() == ["a"]


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "clicks.csv")
    pipe = str(tmp_path / "clicks.csv")
    with pytest.raises(DataError, match=r"clicks\.csv"), local_files([pipe]):
        pass


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (HEADER + "1,a,1,0\n2,b,1,0\r\n3,c,1,0\n", 3),
        (HEADER.replace("\n", "\r\n") + '1,"a\nb",1,0\r\n2,b,1,0\n', 4),
    ],
)
def test_a_line_that_does_not_end_as_the_others_is_named(tmp_path, text, line):
    assert refusal(tmp_path, mapping(), text).startswith(f"log.csv, line {line}: ")


def test_json_with_a_record_or_list_for_a_value_names_its_line(tmp_path):
    good = {"ts": 0, "item": "a", "price": 1, "click": 0}
    for nested in ({"x": 1}, [1]):
        text = f"{json.dumps(good)}\n\n{json.dumps({**good, 'item': nested})}\n"
        sentence = refusal(tmp_path, mapping(kind="json"), text, "log.json")
        assert sentence.startswith("log.json, line 3: column item holds")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-le", "utf-32-le", "utf-32-be"])
def test_text_of_wide_characters_lands_with_the_encoding_that_its_refusal_names(tmp_path, encoding):
    text = (HEADER + "0,ä,1,0\n").encode(encoding)
    assert f"say encoding: {encoding[:6]}" in refusal(tmp_path, mapping(), text)
    path = tmp_path / "log.csv"
    (table,) = landed(tmp_path / "data", mapping(encoding=encoding), path).values()
    assert table["item"].to_pylist() == ["ä"]


def test_a_header_may_have_as_many_columns_as_a_line_takes(tmp_path):
    names = ",".join(f"{number:0300}" for number in range(4000))
    text = f"{names},{HEADER}{',' * 4000}0,a,1,0\n"
    (table,) = landed(tmp_path / "data", mapping(), written(tmp_path / "log.csv", text)).values()
    assert table["item"].to_pylist() == ["a"]


def test_a_line_without_a_quote_that_is_too_long_is_told_so(tmp_path):
    sentence = refusal(tmp_path, mapping(), f"{HEADER}0,{'a' * (70 << 20)},1,0\n")
    assert sentence.startswith("log.csv, line 2: ")
    assert "end the line sooner" in sentence


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="there is no file that fails")
def test_a_disk_that_does_not_give_a_file_is_no_fault_of_writing(tmp_path):
    (tmp_path / "log.csv").symlink_to("/proc/self/mem")
    assert refused(tmp_path, mapping(), tmp_path / "log.csv").startswith("log.csv cannot be read")
