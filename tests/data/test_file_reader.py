"""The generic reader: files and a mapping become days in the log's time zone."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.core.errors import DataError
from pipeline.data.ingest.file_reader import land_files, read_rows
from pipeline.data.log_store.day_rows import read_day
from pipeline.data.log_store.landing import LandingOptions
from pipeline.data.log_store.manifest import read_manifest
from tests.data.logs import HEADER, landed, mapping, refusal, written
from tests.tiny_logs import files_of

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
    """23:30Z and 00:30Z; totals are conserved."""
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
    text = HEADER + "2024-03-09 23:30:00,a,1,0\n"
    for form in ("iso8601", "%Y-%m-%d %H:%M:%S"):
        rules = mapping(time={"column": "ts", "format": form})
        assert "log.csv, line 2: column ts" in refusal(tmp_path, rules, text)
    rules = mapping(time={"column": "ts", "format": "iso8601", "zone": "UTC"})
    assert "line 2" in refusal(tmp_path, rules, HEADER + "2024-03-09 23:30:00+01:00,a,1,0\n")
    rules = mapping(time={"column": "ts", "format": "iso8601"})
    for stamp in ("2024-02-30T00:00:00Z", "9999-12-31T23:59:59Z", "yesterday"):
        assert "log.csv, line 2: column ts" in refusal(tmp_path, rules, HEADER + f"{stamp},a,1,0\n")


def test_hour_and_weekday_are_those_of_the_log_s_zone_also_where_clocks_change(tmp_path):
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
            "marked": {"rule": "marked", "of": "item", "values": ("a", "b")},
        },
    )
    text = HEADER + "0,a,1,1\n1,b,2,1\n2,c,3,1\n3,,1.5,1\n4,a,1,0\n5,a,,1\n86400,a,1,0\n"
    source = written(tmp_path / "log.csv", text)
    landed = land_files(tmp_path / "data", rules, [source])
    manifest, came = landed.manifest, landed.days
    table = read_day(tmp_path / "data", "1970-01-01")
    assert table["dear"].to_pylist() == [0, 1, 1, 0]
    assert table["known"].to_pylist() == [1, 1, 0, None]
    assert table["marked"].to_pylist() == [1, 1, 0, 0]
    assert list(manifest.days) == ["1970-01-01"]
    assert came["1970-01-01"].dropped == {"click is not 1": 1, "price is null": 1}
    assert came["1970-01-02"].dropped == {"click is not 1": 1}
    again = read_manifest(tmp_path / "data" / "manifest.json")
    assert again.days["1970-01-01"].dropped == came["1970-01-01"].dropped


@pytest.mark.parametrize("positions", [None, ("ts", "item", "price", "click")])
def test_lines_before_the_header_are_skipped_and_counted(tmp_path, positions):
    before = 'Report\n"of, April"\n\n' + (HEADER if positions else "")
    rules = mapping(skip=4 if positions else 3, positions=positions)
    text = before + ("" if positions else HEADER) + "0,a,1,0\n"
    (table,) = landed(tmp_path / "data", rules, written(tmp_path / "log.csv", text)).values()
    assert table["item"].to_pylist() == ["a"]
    (tmp_path / "other").mkdir()
    sentence = refusal(tmp_path / "other", rules, text + "\n1,a,1,x\n")
    assert sentence.startswith("log.csv, line 7: ")


def test_landing_twice_changes_nothing_and_a_smaller_rewrite_takes_the_place_of_its_day(tmp_path):
    """Six rows, then three, where that is allowed."""
    rows = [f"{86400 * (i // 6) + i},a,1,0\n" for i in range(12)]
    whole = written(tmp_path / "whole.csv", HEADER + "".join(rows))
    less = written(tmp_path / "less.csv", HEADER + "".join(rows[:3]))
    landed(tmp_path / "data", mapping(), whole)
    before = files_of(tmp_path / "data")
    landed(tmp_path / "data", mapping(), whole)
    assert files_of(tmp_path / "data") == before
    with pytest.raises(DataError, match=r"3 of the 3 that less\.csv brings are equal"):
        land_files(tmp_path / "data", mapping(), [less])
    allowed = LandingOptions(allow_shrink=True)
    manifest = land_files(tmp_path / "data", mapping(), [less], options=allowed).manifest
    assert [entry.rows for entry in manifest.days.values()] == [3, 6]
    assert {name: content for name, content in files_of(tmp_path / "data").items() if "02" in name}


def test_a_log_of_other_columns_or_of_another_zone_is_refused(tmp_path):
    source = written(tmp_path / "log.csv", HEADER + "0,a,1,0\n")
    landed(tmp_path / "data", mapping(), source)
    before = files_of(tmp_path / "data")
    for other, apart in (
        (mapping(time_zone="Asia/Shanghai"), "Asia/Shanghai"),
        (mapping(columns={"item": "text"}), "price"),
        (mapping(columns={"item": "text", "click": "bool", "price": "float64"}), "click.*bool"),
    ):
        with pytest.raises(DataError, match=f"is of another kind.*{apart}"):
            land_files(tmp_path / "data", other, [source])
    assert files_of(tmp_path / "data") == before


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_every_byte_that_is_read_is_reported(tmp_path, kind):
    table = pa.table({"ts": range(50), "item": ["a"] * 50, "price": [1.0] * 50, "click": [0] * 50})
    path = tmp_path / f"log.{kind}"
    if kind == "csv":
        written(path, HEADER + "".join(f"{i},a,1,0\n" for i in range(50)))
    else:
        pq.write_table(table, path)
    reported: list[int] = []
    list(read_rows(mapping(kind=kind), path, LandingOptions(report=reported.append)))
    assert sum(reported) == path.stat().st_size


def test_equal_blocks_of_rows_are_days_whatever_files_they_are_in(tmp_path):
    lines = [f"{i},a,1,0\n" for i in range(50)]
    rules = mapping(time=None, row_blocks=5, positions=("ts", "item", "price", "click"))
    whole = written(tmp_path / "log.csv", "".join(lines))
    parts = [written(tmp_path / f"{i}.csv", "".join(lines[i : i + 17])) for i in range(0, 50, 17)]
    days = landed(tmp_path / "data", rules, whole)
    assert [len(rows) for rows in days.values()] == [10] * 5
    assert landed(tmp_path / "other", rules, *parts) == days
