"""Field values are text from file to answer: one key in CSV, Parquet, tables and requests."""

import gzip
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.core.errors import DataError
from pipeline.core.files import read_json
from pipeline.data.ingest.sources import land_sources
from pipeline.encoding.values import NULL_NAME, POOLED_NAME
from pipeline.formats.maps import read_maps
from pipeline.formats.tables import read_field_tables
from pipeline.report.page_data import display_name
from tests.whole_walk import DAYS, asked, project, scored, walk

STRANGE = ("NA", "null", "None", "001", "01", "1", "TRUE", "")  # the empty cell is null in CSV
MAPPING = """
format: tiny
kind: {kind}
time_zone: UTC
date: {{column: date, format: "%Y-%m-%d"}}
columns:
  item: {item}
  score: float64
  click: int8
"""


def rows_of(items: list, repeats: int = 7) -> list[tuple]:
    """(date, item, score, click) of every item on every day."""
    random = np.random.default_rng(1)
    rows = []
    for day in DAYS:
        for number, item in enumerate(items * repeats):
            score = random.normal(-1 + 0.3 * (number % len(items)))
            click = random.random() < 1 / (1 + np.exp(-score - number % len(items) / 4))
            rows.append((day, item, score, int(click)))
    return rows


def landed_from_csv(folder, items, **values):
    """A project whose log came from a gzipped CSV."""
    lines = [f"{d},{i},{s!r},{c}" for d, i, s, c in rows_of(items)]
    text = "date,item,score,click\n" + "\n".join(lines) + "\n"
    (folder / "log.csv.gz").write_bytes(gzip.compress(text.encode()))
    return landed(folder, "csv", "log.csv.gz", **values)


def landed_from_parquet(folder, items, kind, **values):
    """The same from a Parquet file whose field is of some type."""
    date, item, score, click = zip(*rows_of(items), strict=True)
    arrays = [pa.array(date), pa.array(item, kind), pa.array(score), pa.array(click, pa.int8())]
    pq.write_table(pa.table(arrays, ["date", "item", "score", "click"]), folder / "log.parquet")
    return landed(folder, "parquet", "log.parquet", **values)


def landed(folder, kind, source, item="text", **values):
    (folder / "mine.yaml").write_text(MAPPING.format(kind=kind, item=item))
    land_sources(str(folder / "mine.yaml"), folder / "data", [folder / source])
    return project(folder, None, log__served_logit="score", **values)


@pytest.fixture(scope="module")
def strange(tmp_path_factory):
    """A walk over a CSV of texts that look like something else."""
    return walk(landed_from_csv(tmp_path_factory.mktemp("strange"), list(STRANGE)), "merge")


@pytest.fixture(scope="module")
def ids(tmp_path_factory):
    """A walk over a Parquet log of 64-bit ids and nulls."""
    items = [1582218195625938945, 1582218195625938946, 7, None]
    folder = tmp_path_factory.mktemp("ids")
    return walk(landed_from_parquet(folder, items, pa.int64()), "merge")


def names_of(folder) -> list:
    return read_json(folder / "artifacts/model/manifest.json")["base"]["field"]["values"]


def test_texts_that_look_like_something_else_are_seven_values_and_a_null(strange):
    """From a CSV through vocabulary, bin table and maps to both ways of asking."""
    names = names_of(strange)
    assert names == [None, *sorted(STRANGE[:-1]), NULL_NAME]
    bins = read_field_tables(strange / "artifacts/tables").bins.candidate(2)
    rows = Counter()
    for number, shown in zip(bins.field_value_id.tolist(), bins.impressions.tolist(), strict=True):
        rows[names[number]] += shown
    assert rows == dict.fromkeys(names[1:], 4 * 7)
    maps = read_maps(strange / "artifacts/model/calibration.parquet")
    assert {len(m.knots) for m in maps.values()} == {len(names)}
    request = [*STRANGE[:-1], None, "", "nan", "1.0", "true"]
    expected = [names.index(value) for value in STRANGE[:-1]] + [
        8,
        8,
        0,
        0,
        0,
    ]  # "" was null in the log, too
    answer, metrics = asked(strange, {"item": request, "score": [-1.0] * len(request)})
    assert answer.json()["field_value_id"] == expected
    assert "adacalib_unseen_field_values_total 3.0" in metrics
    table = pa.table({"item": pa.array(request), "score": pa.array([-1.0] * len(request))})
    answers, said = scored(strange, table)
    assert answers["field_value_id"].tolist() == expected
    assert "3 with an unseen field value" in said


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.dictionary(pa.int32(), pa.string())])
def test_ids_of_19_digits_keep_every_digit_whatever_holds_them(ids, kind):
    """Integers, text and dictionaries are scored alike; 7 is spelled "7"."""
    big = (1582218195625938945, 1582218195625938946)
    names = names_of(ids)
    assert names == [None, *map(str, big), "7", NULL_NAME]
    values = [*big, 7, None, 1582218195625938947]
    if kind != pa.int64():
        values = [value if value is None else str(value) for value in values]
    table = pa.table({"item": pa.array(values, kind), "score": [0.1] * 5})
    answers, said = scored(ids, table)
    assert answers["field_value_id"].tolist() == [1, 2, 3, 4, 0]
    assert "1 with an unseen field value" in said


def test_ids_that_a_tool_made_floats_are_the_same_ids(ids):
    """Integers with gaps become floats in many tools."""
    table = pa.table({"item": pa.array([7.0, float("nan"), None, 8.0]), "score": [0.1] * 4})
    assert scored(ids, table)[0]["field_value_id"].tolist() == [3, 4, 4, 0]
    with pytest.raises(DataError, match="whole numbers below"):
        scored(ids, table.set_column(0, "item", pa.array([7.0, 1.5822181956259389e18, 1.0, 2.0])))


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (7, 3),
        ("7", 3),
        (7.0, 3),
        ("7.0", 0),
        ("07", 0),
        (1582218195625938946, 2),
        ("1582218195625938946", 2),
        (None, 4),
        ("", 4),
        ("null", 0),
        (NULL_NAME, 0),
        (True, 0),
        (-7, 0),
        (18446744073709551615, 0),
    ],
)
def test_a_value_of_a_request_is_the_key_of_the_log(ids, value, found):
    answer, _ = asked(ids, {"item": [value], "score": [0.0]})
    assert answer.json()["field_value_id"] == [found]
    assert 0 < answer.json()["probability"][0] < 1


@pytest.mark.parametrize(
    ("kind", "cells", "known"),
    [
        ("int64", ["7", "007", " 7", "-8", "", "1582218195625938945"],
         [3, 3, 3, 1, 4, 2]),
        ("bool", ["True", "FALSE", "1", "0", "true", ""], [2, 1, 2, 1, 2, 3]),
        ("float64", ["7.0", "7", "7e0", "nan", "-0.0", ""], [2, 2, 2, 3, 1, 3]),
    ],
)  # fmt: skip
def test_values_of_a_column_of_numbers_may_be_spelled_as_in_the_log_s_files(
    tmp_path, kind, cells, known
):
    """What cannot be in the log is a value that nobody has seen, and refuses nothing."""
    folder = walk(landed_from_csv(tmp_path, cells, item=kind), "merge")
    odd = ["wrong", "1x", NULL_NAME, "\x1f", "300000000000000000000"]
    asking = {"item": [*cells, *odd], "score": [0.1] * (len(cells) + len(odd))}
    answer, _ = asked(folder, asking)
    assert answer.json()["field_value_id"] == [*known, *[0] * len(odd)]
    assert scored(folder, pa.table(asking))[0]["field_value_id"].tolist() == [*known, 0, 0, 0, 0, 0]
    values = [None if cell == "" else cell for cell in cells]
    assert asked(folder, asking | {"item": [*values, *odd]})[0].json() == answer.json()


@pytest.mark.parametrize("value", [7.5, 1582218195625938946.0, 1e300, [7], {"id": 7}])
def test_what_names_no_value_is_refused_by_row_and_column(ids, value):
    """A float that may have lost digits is no id."""
    answer, _ = asked(ids, {"item": ["7", value], "score": [0.0, 0.0]})
    assert answer.status_code == 422
    assert "row 1, column item" in answer.json()["error"]


def tiny_days(item: dict[str, list], rows: int = 120, columns=("item",)) -> dict[str, pa.Table]:
    """Days whose field columns cycle through some values."""
    days = {}
    for day in DAYS:
        random = np.random.default_rng(int(day[-2:]))
        values = {name: pa.array((item[name] * rows)[:rows], pa.string()) for name in columns}
        price, click = random.normal(size=rows), random.integers(0, 2, rows).astype(np.int8)
        days[day] = pa.table({**values, "price": price, "click": click})
    return days


def test_null_is_a_value_and_what_is_unseen_is_counted(tmp_path):
    """A, null, the empty text and c are asked of a log with a, b and null."""
    days = tiny_days({"item": ["a", "b", "a", "b", "a", None]})
    features = {"log__categorical": ["item"], "log__numeric": ["price"]}
    folder = walk(project(tmp_path, days, **features), "evaluate")
    assert names_of(folder) == [None, "a", "b", NULL_NAME]
    answer, metrics = asked(folder, {"item": ["a", None, "", "c"], "price": [0.0] * 4})
    assert answer.json()["field_value_id"] == [1, 3, 0, 0]
    assert np.isfinite(answer.json()["probability"]).all()
    assert "adacalib_unseen_field_values_total 2.0" in metrics
    report = read_json(folder / "reports/evaluation.json")
    assert (report["field_values"], report["unseen_impressions"]) == (3, 0)
    scores = read_json(folder / "artifacts/scores/manifest.json")["days"]
    for entry in scores.values():
        assert (entry["rows"], entry["null_rows"], entry["unseen_rows"]) == (120, 20, 0)


def test_a_tuple_s_value_is_its_parts_and_null_where_one_is(tmp_path):
    """("a", "") and ("", "a") are two values; a null part makes the whole null."""
    items = {"item": ["a", "", "001", None, "a"], "slot": ["", "a", "NA", "x", None]}
    days = tiny_days(items, columns=("item", "slot"))
    folder = project(tmp_path, days, log__field=["item", "slot"], log__numeric=["price"])
    walk(folder, "merge")
    assert names_of(folder) == [None, "\x1fa", "001\x1fNA", "a\x1f", NULL_NAME]
    request = {
        "item": ["a", "", "001", None, "a", None, "001", "a\x1f"],
        "slot": ["", "a", "NA", "x", None, None, "na", ""],
    }
    expected = [3, 1, 2, 4, 4, 4, 0, 0]
    answer, metrics = asked(folder, {**request, "price": [0.0] * 8})
    assert answer.json()["field_value_id"] == expected
    assert "adacalib_unseen_field_values_total 2.0" in metrics
    answers, _ = scored(folder, pa.table({**request, "price": [0.0] * 8}))
    assert answers["field_value_id"].tolist() == expected


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        (["item", "slot"], "a\x1fb", r"column item holds the separator \\x1f in row 1"),
        (["item"], NULL_NAME, r"column item begins with the reserved mark \\x1e in row 1"),
    ],
)
def test_a_value_that_could_be_taken_for_another_is_refused_with_its_day(
    tmp_path, field, value, sentence
):
    days = tiny_days({"item": ["a", value], "slot": ["x"]}, columns=("item", "slot"))
    project(tmp_path, days, log__field=field, log__numeric=["price"])
    with pytest.raises(DataError, match=f"day 2024-03-04, {sentence}"):
        walk(tmp_path, "validate")


@pytest.fixture(scope="module")
def pooled(tmp_path_factory):
    """A walk over a log whose two most frequent values have maps of their own."""
    items = ["big", "big", "big", "second", "second", "x", "y", None]
    days = tiny_days({"item": items}, rows=240)
    folder = tmp_path_factory.mktemp("pooled")
    values = {"log__numeric": ["price"], "score__max_field_values": 2}
    return walk(project(folder, days, **values), "evaluate")


def test_rare_values_share_one_map_and_unseen_ones_do_not(pooled):
    assert names_of(pooled) == [None, "big", "second", NULL_NAME, POOLED_NAME]
    request = ["big", "second", "x", "y", None, "z", "", POOLED_NAME]
    expected = [1, 2, 4, 4, 3, 0, 0, 0]
    answer, metrics = asked(pooled, {"item": request, "price": [0.0] * 8})
    assert answer.json()["field_value_id"] == expected
    assert "adacalib_unseen_field_values_total 3.0" in metrics
    bins = read_field_tables(pooled / "artifacts/tables").bins.candidate(2)
    assert bins.impressions[bins.field_value_id == 4].sum() == 4 * 60


def test_the_share_of_pooled_values_is_reported(pooled):
    base = read_json(pooled / "artifacts/model/manifest.json")["base"]
    assert base["field"]["pooled"] == ["x", "y"]
    report = read_json(pooled / "reports/evaluation.json")["pooled"]
    assert (report["field_values"], report["impressions"]) == (2, 120)
    assert report["impression_share"] == 0.25
    assert 0 < report["response_share"] < 1
    days = read_json(pooled / "artifacts/scores/manifest.json")["days"]
    assert {entry["pooled_rows"] for entry in days.values()} == {60}
    names = [display_name(name) for name in names_of(pooled)]
    assert names == ["unseen", "big", "second", "(null)", "(other)"]


def test_without_a_cap_nothing_is_pooled(tmp_path):
    days = tiny_days({"item": ["a", "b", None]})
    values = {"log__numeric": ["price"], "score__max_field_values": None}
    folder = walk(project(tmp_path, days, **values), "score")
    field = read_json(folder / "artifacts/scores/manifest.json")["field"]
    assert (field["values"], field["pooled"]) == ([None, "a", "b", NULL_NAME], [])
