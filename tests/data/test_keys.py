"""Texts and ids end to end: what a file says is the key, whatever the file is."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.encoding.vocabulary import ValueCounts, Vocabulary
from tests.data.logs import HEADER, landed, mapping, refused, stored, written
from tests.tiny_logs import files_of

ODD_ITEMS = ["NA", "null", "None", "001", "01", "1", "TRUE", ""]


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz", "log.csv.zst", "log.csv.bz2"])
def test_texts_that_look_like_something_else_stay_what_they_are(tmp_path, name):
    """Csv → parquet → vocabulary; seven values and one null, 50 rows each."""
    lines = [f"{60 * i},{item},1.5,0" for i in range(50) for item in ODD_ITEMS]
    source = written(tmp_path / name, HEADER + "\n".join(lines) + "\n")
    (table,) = landed(tmp_path / "data", mapping(), source).values()
    assert table["item"].to_pylist() == [item or None for item in ODD_ITEMS] * 50
    assert set(Vocabulary.of(ValueCounts(table["item"])).values) == set(ODD_ITEMS) - {""}


def test_an_empty_cell_is_null_or_a_value_as_the_mapping_says(tmp_path):
    source = written(tmp_path / "log.csv", HEADER + '0,,,0\n1,"",2,0\n2,NA,NA,1\n')
    rules = mapping(nulls=("NA",), number_nulls=("", "NA"))
    (table,) = landed(tmp_path / "data", rules, source).values()
    assert table["item"].to_pylist() == ["", "", None]
    assert table["price"].to_pylist() == [None, 2.0, None]
    rules = mapping(nulls=(), number_nulls=("", "NA"))
    (table,) = landed(tmp_path / "other", rules, source).values()
    assert table["item"].to_pylist() == ["", "", "NA"]


LONG = "x" * 70_000
KEYS = [
    *("001", "01", "1", "1.0", "NA", "N/A", "#N/A", "null", "NULL", "None", "nan", "NaN", "inf"),
    *("1e5", "1E5", "+1", "-0", "-0.0", "0x1f", "1_000", "TRUE", "True", "true", "yes"),
    *("12345678901234567890", "1582218195625938945", "1582218195625938946"),
    *(" a", "a ", " ", "\t", "\u00a0", "\u2028", "\ufeff", "\0", "a\0b", "\x1f"),
    *("\u00e9", "e\u0301", "\u65e5\u672c", "\U0001f600", "'", "\\", "\\N", "=1+1", LONG),
    *('say "no"', '"', '""', "a,b", "a\nb", "a\r\nb", "a\rb", "\n", ',\n",'),
]


def quoted(text: str) -> str:
    """As CSV has it."""
    return '"' + text.replace('"', '""') + '"'


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz"])
@pytest.mark.parametrize("size", [97, 1 << 20])
def test_every_text_is_the_same_key_from_csv_and_from_every_text_of_parquet(
    tmp_path, name, size, monkeypatch
):
    """Quotes, line breaks, NUL, white space, both spellings of é, in blocks of any size."""
    monkeypatch.setattr("pipeline.data.ingest.records.ROWS", size)
    rows = "".join(f"{i},{quoted(key)},1,0\n" for i, key in enumerate(KEYS))
    (table,) = landed(
        tmp_path / "data", mapping(), written(tmp_path / name, HEADER + rows)
    ).values()
    assert table["item"].to_pylist() == KEYS
    text = pa.array(KEYS)
    kinds = [text, text.dictionary_encode(), *map(text.cast, (pa.large_string(), pa.binary()))]
    for number, column in enumerate(kinds):
        path = stored(tmp_path / f"{number}.parquet", item=column)
        (other,) = landed(tmp_path / str(number), mapping(kind="parquet"), path).values()
        assert other["item"].to_pylist() == KEYS
    assert set(Vocabulary.of(ValueCounts(table["item"])).values) == set(KEYS)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_texts_without_quotes_are_what_stands_between_the_delimiters(tmp_path, line_end):
    keys = [key for key in KEYS if not set(key) & set(',"\r\n')]
    rows = "".join(f"{i}\t{key.replace(chr(9), ' ')}\t1\t0\n" for i, key in enumerate(keys))
    text = (HEADER.replace(",", "\t") + rows).replace("\n", line_end)
    rules = mapping(delimiter="\t", quote=None)
    (table,) = landed(tmp_path / "data", rules, written(tmp_path / "log.tsv", text)).values()
    assert table["item"].to_pylist() == [key.replace("\t", " ") for key in keys]


IDS = ["1582218195625938945", "1582218195625938946", "7", None]


def test_64_bit_ids_with_nulls_keep_every_digit_in_csv_and_parquet(tmp_path):
    """7 is "7", never "7.0"."""
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


ID_COLUMNS = {
    "int64": pa.array([7, None, 2**53 + 1]),
    "uint64": pa.array([7, None, 2**53 + 1], pa.uint64()),
    "dictionary": pa.array(["7", None, str(2**53 + 1)]).dictionary_encode(),
    "dictionary of integers": pa.array([7, None, 2**53 + 1]).dictionary_encode(),
    "large_string": pa.array(["7", None, str(2**53 + 1)], pa.large_string()),
    "decimal": pa.array([Decimal(7), None, Decimal(2**53 + 1)], pa.decimal128(20, 0)),
    "binary": pa.array([b"7", None, str(2**53 + 1).encode()]),
}


def test_an_id_is_the_same_key_whatever_type_a_file_has_for_it(tmp_path):
    """Days of other types are one log, and its keys are those of the CSV."""
    rows = f"0,7,1,0\n1,,1,0\n2,{2**53 + 1},1,0\n"
    sources = {"csv": (mapping(), written(tmp_path / "log.csv", HEADER + rows))}
    for name, column in ID_COLUMNS.items():
        path = stored(tmp_path / f"{name}.parquet", item=column)
        sources[name] = (mapping(kind="parquet"), path)
    found = {}
    for name, (rules, path) in sources.items():
        (found[name],) = landed(tmp_path / f"data {name}", rules, path).values()
    assert found["csv"]["item"].to_pylist() == ["7", None, str(2**53 + 1)]
    assert all(table.equals(found["csv"]) for table in found.values())
    floats = stored(tmp_path / "float.parquet", item=pa.array([7.0, None, -0.0, float("nan")]))
    (table,) = landed(tmp_path / "float", mapping(kind="parquet"), floats).values()
    assert table["item"].to_pylist() == ["7", None, "0", None]
    flags = stored(tmp_path / "bool.parquet", item=pa.array([True, False, None]))
    (table,) = landed(tmp_path / "bool", mapping(kind="parquet"), flags).values()
    assert table["item"].to_pylist() == ["true", "false", None]


NOT_UTF8 = pa.Array.from_buffers(
    pa.string(),
    2,
    [None, pa.py_buffer(np.array([0, 1, 2], "<i4").tobytes()), pa.py_buffer(b"a\xff")],
)


@pytest.mark.parametrize(
    ("column", "row", "reason"),
    [
        (pa.array([1.0, 2.5]), 2, "whole numbers below 2**53"),
        (pa.array([1.0, 2.0**53]), 2, "whole numbers below 2**53"),
        (pa.array([1.0, float("inf")]), 2, "whole numbers below 2**53"),
        (pa.array([Decimal("1.50"), None]), 1, "a decimal column names values only by whole"),
        (pa.array([0, 1], pa.timestamp("us", "UTC")), 1, "type timestamp"),
        (pa.array([0, 1], pa.date32()), 1, "type date32"),
        (pa.array([["a"], ["b"]]), 1, "cannot name values"),
        (pa.array([b"a", b"\xff"]), 2, "only in UTF-8"),
    ],
    ids=["half", "rounded", "inf", "decimal", "stamp", "date", "list", "bytes"],
)
def test_a_column_that_cannot_name_values_is_refused_by_file_row_and_name(
    tmp_path, column, row, reason
):
    path = stored(tmp_path / "log.parquet", item=column)
    sentence = refused(tmp_path, mapping(kind="parquet"), path)
    assert sentence.startswith(f"log.parquet, row {row}: column item: ")
    assert reason in sentence


def test_text_of_parquet_that_is_not_utf_8_is_refused_by_file_and_value(tmp_path):
    path = stored(tmp_path / "log.parquet", item=NOT_UTF8)
    sentence = refused(tmp_path, mapping(kind="parquet"), path)
    assert sentence.startswith("log.parquet: a text is not in UTF-8")
    assert "\\xFF" in sentence


def test_numbers_in_the_texts_of_parquet_are_numbers_and_empty_ones_null(tmp_path):
    """A day written by a tool that made everything text."""
    path = stored(
        tmp_path / "log.parquet", price=["1.5", "", None], click=["0", "1", ""], ts=["0", "1", "2"]
    )
    (table,) = landed(tmp_path / "data", mapping(kind="parquet"), path).values()
    assert table["price"].to_pylist() == [1.5, None, None]
    assert table["click"].to_pylist() == [0, 1, None]


@pytest.mark.parametrize("size", [400, 3000, 1 << 20])
def test_types_do_not_change_by_chunk_by_file_or_by_order(tmp_path, size, monkeypatch):
    """Many rows that look like integers, then one "x"; eight ids are eight keys."""
    ids = [*(str(i % 7) for i in range(5000)), "x"]
    rows = [f"{i},{item},1,0\n" for i, item in enumerate(ids)]
    monkeypatch.setattr("pipeline.data.ingest.records.ROWS", size)
    whole = written(tmp_path / "whole.csv", HEADER + "".join(rows))
    first = written(tmp_path / "first.csv", HEADER + "".join(rows[:4000]))
    second = written(tmp_path / "second.csv", HEADER + "".join(rows[4000:]))
    (together,) = landed(tmp_path / "a", mapping(), whole).values()
    landed(tmp_path / "b", mapping(), first, second)
    assert together["item"].to_pylist() == ids
    assert files_of(tmp_path / "a/day=1970-01-01") == files_of(tmp_path / "b/day=1970-01-01")
    assert len(Vocabulary.of(ValueCounts(together["item"]))) == 8


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


def test_a_value_of_megabytes_is_a_value(tmp_path):
    """Longer than what is read, or parsed, at a time."""
    long = ["x" * 9_000_000, "y" * 3_000_000, "z"]
    source = written(tmp_path / "log.csv", HEADER + "".join(f"0,{key},1,0\n" for key in long))
    (table,) = landed(tmp_path / "data", mapping(), source).values()
    assert table["item"].to_pylist() == long


def test_files_with_their_columns_in_another_order_or_with_more_of_them_are_one_log(tmp_path):
    """Columns are told by name, file by file."""
    first = written(tmp_path / "a.csv", HEADER + "0,x,1,0\n")
    second = written(tmp_path / "b.csv", "click,new,price,item,ts\n1,?,2,y,1\n")
    (table,) = landed(tmp_path / "data", mapping(), first, second).values()
    assert table.to_pylist() == [
        {"item": "x", "price": 1.0, "click": 0},
        {"item": "y", "price": 2.0, "click": 1},
    ]
