"""The content hash: equal rows have one, however they are stored, and other rows another."""

import pyarrow as pa
import pytest

from pipeline.core.errors import DataError
from pipeline.data.log_store.manifest import read_manifest
from pipeline.formats.days import day_name
from tests.tiny_logs import PRIVATE, content_sha256, land_day, tiny_day, write_log

DAYS = [day_name(19_700 + index) for index in range(3)]


def test_the_content_hash_sees_values_names_types_nulls_and_order():
    table = tiny_day(3)
    others = [
        table.slice(0, 2),
        table.take([1, 0, 2]),
        table.rename_columns(["item2", "price", "shown", "click"]),
        table.select(["price", "item", "shown", "click"]),
        table.set_column(2, "shown", pa.array([1, 2, 3], pa.int32())),
        table.set_column(2, "shown", pa.array([1, 2, None], pa.int64())),
        table.set_column(2, "shown", pa.array([1, 2, 0], pa.int64())),
        table.set_column(0, "item", pa.array(["ab", "", "001"])),
        table.set_column(0, "item", pa.array(["a", "b", None])),
    ]
    hashes = [content_sha256(t) for t in [table, *others]]
    assert len(set(hashes)) == len(hashes)


def test_the_content_hash_does_not_see_chunks_slices_or_what_lies_under_a_null():
    table = tiny_day(6)
    padded = pa.concat_tables([tiny_day(2), table, tiny_day(2)])
    assert content_sha256(padded.slice(2, 6)) == content_sha256(table)
    masked = pa.array([1, 9], mask=pa.array([False, True]).to_numpy(zero_copy_only=False))
    a, b = pa.table({"x": masked}), pa.table({"x": pa.array([1, None])})
    assert content_sha256(a) == content_sha256(b)


def test_the_content_hash_takes_every_type_a_log_has_and_names_others():
    columns = [pa.array([1, None]), pa.array(["1", None]), pa.array([True, None]), pa.nulls(2)]
    assert len({content_sha256(pa.table({"x": column})) for column in columns}) == 4
    with pytest.raises(DataError, match="column x has type struct"):
        content_sha256(pa.table({"x": [{"a": 1}]}))


def test_the_content_hash_of_lists_sees_where_they_end_and_not_how_they_are_stored():
    lists = [
        [["a"], ["b"]],
        [["a", "b"], []],
        [["a", "b"], None],
        [["a"], ["b", None]],
        [["a", "b"]],
    ]
    tables = [pa.table({"x": pa.array(rows, pa.list_(pa.string()))}) for rows in lists]
    assert len(set(map(content_sha256, tables))) == len(lists)
    renamed = tables[0].cast(pa.schema({"x": pa.list_(pa.field("element", pa.string()))}))
    assert content_sha256(renamed) == content_sha256(tables[0])


def test_the_content_hash_is_the_same_for_another_parquet_writer(tmp_path):
    """Same rows, other writer."""
    landed = land_day(tmp_path / "a", PRIVATE, DAYS[0], tiny_day(9)).days[DAYS[0]]
    other = read_manifest(write_log(tmp_path / "b", {DAYS[0]: tiny_day(9)}) / "manifest.json")
    assert other.days[DAYS[0]].content_sha256 == landed.content_sha256
    assert other.days[DAYS[0]].files != landed.files
