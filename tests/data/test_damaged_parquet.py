"""Parquet files that are not what they should be: named in one sentence, and nothing lands."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.core.errors import DataError
from pipeline.data.ingest.file_reader import land_files
from tests.data.logs import HEADER, landed, mapping, refused, stored, written


@pytest.mark.parametrize("kept", [0, 3, 0.5, -100, -1])
def test_a_parquet_file_that_was_cut_short_is_refused(tmp_path, kept):
    path = stored(tmp_path / "log.parquet", item=[str(i) for i in range(5000)])
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole))] if isinstance(kept, float) else whole[:kept])
    sentence = refused(tmp_path, mapping(kind="parquet"), path)
    assert sentence.startswith("log.parquet is no whole Parquet file: ")


def test_a_parquet_file_with_damage_inside_is_refused(tmp_path):
    """The footer is whole, a page is not."""
    path = stored(tmp_path / "log.parquet", item=[str(i * 7919) for i in range(5000)])
    content = bytearray(path.read_bytes())
    content[200:2000] = bytes(1800)
    path.write_bytes(content)
    assert refused(tmp_path, mapping(kind="parquet"), path).startswith("log.parquet")


def test_a_column_that_is_there_twice_is_refused_and_letters_tell_columns_apart(tmp_path):
    """SQL knows no upper and lower case in names."""
    rows = [pa.array([0]), pa.array(["a"]), pa.array([1.0]), pa.array([0]), pa.array(["b"])]
    for other in ("item", "Item"):
        names = ["ts", other, "price", "click", "item"]
        pq.write_table(pa.table(rows, names=names), tmp_path / f"{other}.parquet")
    sentence = refused(tmp_path / "data", mapping(kind="parquet"), tmp_path / "item.parquet")
    assert "column item is there twice" in sentence
    path = tmp_path / "Item.parquet"
    (table,) = landed(tmp_path / "other", mapping(kind="parquet"), path).values()
    assert table["item"].to_pylist() == ["b"]


def test_columns_of_parquet_that_are_missing_or_never_filled(tmp_path):
    """An all-null column has the declared type, a missing one is named."""
    path = stored(tmp_path / "log.parquet", price=pa.nulls(2), item=pa.nulls(2))
    (table,) = landed(tmp_path / "data", mapping(kind="parquet"), path).values()
    assert (table.schema.field("item").type, table.schema.field("price").type) == (
        pa.string(),
        pa.float64(),
    )
    rules = mapping(kind="parquet", columns={"seen": "int8"})
    sentence = refused(tmp_path / "other", rules, path)
    assert sentence.endswith(
        "column seen is missing; the file has ['ts', 'item', 'price', 'click']"
    )


def test_a_label_of_floats_that_is_nan_is_null_and_one_between_is_refused(tmp_path):
    """As a blank is in text: its day may wait for its labels."""
    path = stored(tmp_path / "log.parquet", click=[0.0, float("nan"), 1.0])
    for kind in ("int8", "bool"):
        rules = mapping(kind="parquet", columns={"item": "text", "click": kind})
        (table,) = landed(tmp_path / kind, rules, path).values()
        assert table["click"].to_pylist() == [0, None, 1]
    half = stored(tmp_path / "half.parquet", click=[0.0, 0.5])
    assert "row 2" in refused(tmp_path, mapping(kind="parquet"), half)
    late = stored(tmp_path / "late.parquet", ts=[0.0, float("nan")])
    assert "column ts has no time stamp" in refused(tmp_path, mapping(kind="parquet"), late)


@pytest.mark.parametrize(
    ("ts", "reason"),
    [
        (pa.array([0, 1], pa.timestamp("us")), "without a zone"),
        (pa.array([0, 1], pa.date32()), "1970-01-01"),
        (pa.array([0, None]), "column ts has no time stamp"),
        (pa.array([0, 2**62], pa.timestamp("us", "UTC")), "column ts is 17036-07-06 14:00"),
    ],
    ids=["naive", "date", "null", "far"],
)
def test_stamps_of_parquet_that_name_no_instant_are_refused_by_row(tmp_path, ts, reason):
    sentence = refused(tmp_path, mapping(kind="parquet"), stored(tmp_path / "log.parquet", ts=ts))
    assert sentence.startswith("log.parquet, row ")
    assert reason in sentence


@pytest.mark.parametrize(
    "item",
    [pa.array([1], pa.duration("us")), pa.array([1], pa.time64("us")), pa.array([1], pa.date32())],
    ids=["duration", "time", "date"],
)
def test_spans_and_points_of_time_are_no_text(tmp_path, item):
    sentence = refused(tmp_path, mapping(kind="parquet"), stored(tmp_path / "l.parquet", item=item))
    assert "column item: type" in sentence


@pytest.mark.parametrize("column", ["ts", "price", "click"])
def test_a_span_of_time_is_no_number_and_no_instant(tmp_path, column):
    """Which unit it has would be lost."""
    spans = {column: pa.array([1_700_000_000], pa.duration("s"))}
    sentence = refused(tmp_path, mapping(kind="parquet"), stored(tmp_path / "l.parquet", **spans))
    assert f"column {column}: type duration" in sentence


def test_a_day_that_is_an_instant_is_that_of_the_log_s_zone(tmp_path):
    """Midnight in Shanghai is the day before in UTC; a stamp without a zone is as it is written."""
    rules = mapping(
        kind="parquet", time_zone="Asia/Shanghai", time=None,
        date={"column": "ts", "format": "iso8601"},
    )  # fmt: skip
    midnight = pa.array([1_711_900_800_000], pa.timestamp("ms", "Asia/Shanghai"))
    wall = pa.array([1_711_929_600_000], pa.timestamp("ms"))
    for place, stamps in enumerate([midnight, wall]):
        source = stored(tmp_path / f"{place}.parquet", ts=stamps)
        assert list(landed(tmp_path / str(place), rules, source)) == ["2024-04-01"]


def test_a_parquet_value_that_does_not_fit_is_named_by_row(tmp_path):
    """Also where a column is a float that lost digits."""
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
    narrow = mapping(kind="parquet", columns={"price": "float32"})
    large = stored(tmp_path / "c.parquet", price=[float("inf"), -1e300])
    with pytest.raises(DataError, match=r"c\.parquet, row 2: column price: "):
        land_files(tmp_path / "data", narrow, [large])
    with pytest.raises(DataError, match=r"log\.csv is no whole Parquet file"):
        land_files(tmp_path / "data", rules, [written(tmp_path / "log.csv", HEADER)])
