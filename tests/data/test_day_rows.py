"""Days: where they begin, which stamps they hold, which part they belong to, and their rows."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.errors import DataError
from pipeline.data.log_store.day_rows import (
    day_boundaries,
    local_days,
    read_day,
    read_days,
    refuse_changed,
    rows_by_day,
)
from pipeline.data.log_store.manifest import read_manifest
from pipeline.encoding.stamps import (
    StampRule,
    refuse_other_epoch_unit,
    time_stamps,
    wall_instants,
)
from pipeline.formats.days import day_name, day_number
from tests.tiny_logs import tiny_day, write_log

ZONES = ["UTC", "Asia/Shanghai", "America/New_York", "America/Los_Angeles", "Asia/Kathmandu"]
ODD_ZONES = [
    "America/Sao_Paulo",
    "America/St_Johns",
    "Pacific/Apia",
    "Africa/Cairo",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
]


def instants(*stamps: str) -> pa.Array:
    return pa.array([datetime.fromisoformat(s) for s in stamps], pa.timestamp("us", "UTC"))


@given(st.integers(-700_000, 2_900_000))
def test_a_day_and_its_number_name_each_other(number):
    assert day_number(day_name(number)) == number


def test_day_numbers_count_from_1970():
    assert day_number("1970-01-01") == 0
    assert day_number("2013-01-01") == (datetime(2013, 1, 1) - datetime(1970, 1, 1)).days


@pytest.mark.parametrize("day", ["2013-1-1", "20130101", "2013-02-30", "2013-W01-1", "", "today"])
def test_another_spelling_of_a_day_is_refused(day):
    with pytest.raises(DataError, match="YYYY-MM-DD"):
        day_number(day)


def test_new_york_has_days_of_23_and_25_hours():
    start, end = day_boundaries("2013-03-10", "America/New_York")
    assert (start.isoformat(), end - start) == ("2013-03-10T05:00:00+00:00", timedelta(hours=23))
    start, end = day_boundaries("2013-11-03", "America/New_York")
    assert end - start == timedelta(hours=25)


def test_a_day_whose_midnight_is_skipped_begins_at_its_first_instant():
    start, _ = day_boundaries("2018-11-04", "America/Sao_Paulo")
    assert (
        start.astimezone(ZoneInfo("America/Sao_Paulo")).isoformat() == "2018-11-04T01:00:00-02:00"
    )


def test_the_same_events_fall_on_the_days_of_their_zone():
    """23:30Z and 00:30Z."""
    events = instants("2024-03-09T23:30:00+00:00", "2024-03-10T00:30:00+00:00")
    for zone, days in {
        "UTC": ["2024-03-09", "2024-03-10"],
        "Asia/Shanghai": ["2024-03-10", "2024-03-10"],
        "America/Los_Angeles": ["2024-03-09", "2024-03-09"],
    }.items():
        assert [day_name(n) for n in local_days(events, zone)] == days


@given(
    st.lists(st.integers(1_200_000_000, 1_600_000_000), min_size=1, max_size=20),
    st.sampled_from([*ZONES, *ODD_ZONES]),
)
def test_every_instant_is_in_exactly_the_day_whose_boundaries_hold_it(seconds, zone):
    """Also where a zone skips a midnight, repeats one or leaves out a day."""
    stamps = pa.array(np.array(seconds) * 10**6, pa.timestamp("us", "UTC"))
    days = local_days(stamps, zone)
    assert days.dtype == np.int32
    for second, number in zip(seconds, days, strict=True):
        start, end = day_boundaries(day_name(number), zone)
        assert start <= datetime.fromtimestamp(second, UTC) < end


@pytest.mark.parametrize("zone", ZONES)
def test_days_join_without_gap_or_overlap_over_a_whole_year(zone):
    days = [day_name(day_number("2013-01-01") + i) for i in range(366)]
    edges = [day_boundaries(day, zone) for day in days]
    assert all(a[1] == b[0] for a, b in pairwise(edges))
    assert all(
        a[0].astimezone(ZoneInfo(zone)).date().isoformat() == d
        for a, d in zip(edges, days, strict=True)
    )


def test_the_unit_of_a_stamp_does_not_matter():
    stamps = instants("2024-03-10T23:59:59+00:00", "1969-12-31T23:59:59+00:00")
    for unit in ("s", "ms", "us", "ns"):
        days = local_days(stamps.cast(pa.timestamp(unit, "UTC")), "UTC")
        assert days.tolist() == [day_number("2024-03-10"), -1]


def test_stamps_without_a_zone_are_refused_unless_their_clock_is_named():
    walls = pa.array([datetime(2013, 11, 3, 23, 30), datetime(2013, 7, 1, 0, 30)])
    with pytest.raises(DataError, match="without a zone"):
        time_stamps(pa.chunked_array([walls]), StampRule("t", "iso8601"))
    local = local_days(wall_instants(walls, "America/New_York"), "America/New_York")
    assert [day_name(n) for n in local] == ["2013-11-03", "2013-07-01"]
    abroad = local_days(wall_instants(walls, "UTC"), "America/New_York")
    assert [day_name(n) for n in abroad] == ["2013-11-03", "2013-06-30"]


@pytest.mark.parametrize(
    ("zone", "around", "hours"),
    [
        ("America/New_York", "2024-03-10", {23, 24}),
        ("America/New_York", "2024-11-03", {24, 25}),
        ("Australia/Lord_Howe", "2024-04-07", {24, 24.5}),
        ("Australia/Lord_Howe", "2024-10-06", {23.5, 24}),
        ("Asia/Kolkata", "2024-10-06", {24}),
        ("America/St_Johns", "2007-03-11", {23, 24}),
        ("Pacific/Apia", "2011-12-30", {0, 24}),
        ("America/Sao_Paulo", "2018-11-04", {23, 24}),
        ("Africa/Monrovia", "1972-01-07", {24 - 44.5 / 60, 24}),
    ],
)
def test_every_row_around_a_change_of_clocks_is_in_one_day_and_none_is_lost(zone, around, hours):
    """One row every half hour of six days, and each second before a boundary."""
    days = [day_name(day_number(around) + i) for i in range(-3, 4)]
    edges = [day_boundaries(day, zone) for day in days]
    assert {(end - start).total_seconds() / 3600 for start, end in edges} == hours
    first, last = (int(edge.timestamp()) for edge in (edges[0][0], edges[-1][1]))
    starts = np.array([int(start.timestamp()) for start, _ in edges])
    seconds = np.unique(np.concatenate([np.arange(first, last, 1800), starts, starts[1:] - 1]))
    found = local_days(pa.array(seconds * 10**6, pa.timestamp("us", "UTC")), zone)
    table = pa.table({"second": seconds})
    parts = dict(rows_by_day(table, found))
    assert sum(map(len, parts.values())) == len(seconds)
    for day, (start, end) in zip(days, edges, strict=True):
        inside = seconds[(seconds >= start.timestamp()) & (seconds < end.timestamp())]
        held = parts[day]["second"].to_numpy() if len(inside) else parts.get(day, [])
        assert list(held) == list(inside)


@pytest.mark.parametrize("year", [1, 1582, 1901, 1969])
def test_days_before_1970_hold_their_instants(year):
    stamp = datetime(year, 12, 30, 23, 59, 59, tzinfo=UTC)
    assert [day_name(n) for n in local_days(instants(stamp.isoformat()), "UTC")] == [
        f"{year:04}-12-30"
    ]


@pytest.mark.parametrize(
    ("unit", "value", "other"),
    [
        ("s", 1_494_032_110_000, "epoch_ms"),
        ("s", 1_494_032_110_000_000, "epoch_us"),
        ("ms", 1_494_032_110, "epoch_s"),
        ("ms", 1_494_032_110_000_000, "epoch_us"),
        ("us", 1_494_032_110, "epoch_s"),
        ("us", 1_494_032_110_000_000_000, "epoch_ns"),
    ],
)
def test_an_epoch_in_another_unit_is_told_with_the_unit_that_fits(unit, value, other):
    """It would land in 1970 or in no year at all."""
    with pytest.raises(DataError, match=rf"{value} is read as {unit} .* 2017-05-06; .*{other}"):
        refuse_other_epoch_unit(pa.array([None, value], pa.int64()), unit)


@given(st.integers(-(10**6), 10**8))
def test_a_log_that_counts_seconds_from_0_is_left_alone(value):
    refuse_other_epoch_unit(pa.array([value], pa.int64()), "s")


@given(
    st.datetimes(datetime(1990, 1, 2), datetime(2099, 12, 30)),
    st.sampled_from(["s", "ms", "us", "ns"]),
)
def test_an_epoch_in_its_own_unit_is_never_refused(moment, unit):
    stamps = pa.array([moment], pa.timestamp("us")).cast(pa.timestamp(unit), safe=False)
    refuse_other_epoch_unit(stamps.cast(pa.int64()), unit)


def test_absurd_stamps_are_refused():
    with pytest.raises(DataError, match="no calendar year"):
        local_days(pa.array([2**62], pa.timestamp("us", "UTC")), "UTC")


def test_rows_by_day_conserves_rows_and_their_order():
    table = pa.table({"x": [0, 1, 2, 3]})
    days = dict(rows_by_day(table, np.array([5, 3, 5, 3])))
    assert {d: t["x"].to_pylist() for d, t in days.items()} == {
        "1970-01-04": [1, 3],
        "1970-01-06": [0, 2],
    }


def test_a_day_comes_back_as_it_was_with_the_columns_asked_for_in_their_order(tmp_path):
    folder = write_log(tmp_path / "data", {"2024-01-01": [tiny_day(2), tiny_day(3)]})
    table = read_day(folder, "2024-01-01", ["click", "item"])
    assert table.column_names == ["click", "item"]
    assert table["item"].to_pylist() == ["a", "b", "a", "b", "001"]
    assert [day for day, _ in read_days(folder, ["2024-01-01"])] == ["2024-01-01"]


def test_files_of_one_day_with_other_types_are_refused(tmp_path):
    texts, numbers = pa.table({"item": ["7"]}), pa.table({"item": [7]})
    folder = write_log(tmp_path / "data", {"2024-01-01": [texts, numbers]})
    with pytest.raises(DataError, match="files of day 2024-01-01 do not fit together"):
        read_day(folder, "2024-01-01")


@pytest.mark.parametrize("length", [4, 100])
def test_a_truncated_file_is_named_with_its_day(tmp_path, length):
    """Whether or not it is held against its checksum, in one sentence."""
    folder = write_log(tmp_path / "data", {"2024-01-01": tiny_day(400)})
    part = folder / "day=2024-01-01" / "part-0.parquet"
    part.write_bytes(part.read_bytes()[:-length])
    with pytest.raises(DataError, match=r"day=2024-01-01/part-0\.parquet is not the file"):
        refuse_changed(folder, "2024-01-01", read_manifest(folder / "manifest.json"))
    with pytest.raises(
        DataError, match=r"day=2024-01-01/part-\d\.parquet is no whole Parquet file"
    ) as refusal:
        read_day(folder, "2024-01-01")
    assert "\n" not in str(refusal.value)


def test_a_file_that_was_changed_or_is_missing_is_named_where_it_is_verified(tmp_path):
    folder = write_log(tmp_path / "data", {"2024-01-01": tiny_day(4)})
    part = folder / "day=2024-01-01/part-0.parquet"
    manifest = read_manifest(folder / "manifest.json")
    refuse_changed(folder, "2024-01-01", manifest)
    pq.write_table(tiny_day(3), part)
    with pytest.raises(
        DataError, match=r"day=2024-01-01/part-\d\.parquet is not the file that was landed"
    ):
        refuse_changed(folder, "2024-01-01", manifest)
    part.unlink()
    with pytest.raises(DataError, match=r"day=2024-01-01/part-0\.parquet is missing"):
        refuse_changed(folder, "2024-01-01", manifest)


def test_what_is_missing_is_named(tmp_path):
    folder = write_log(tmp_path / "data", {"2024-01-01": tiny_day()})
    with pytest.raises(DataError, match=r"day 2024-01-02 is not in the manifest, which has 1 day:"):
        read_day(folder, "2024-01-02")
    with pytest.raises(DataError, match=r"day=2024-01-01/.* lacks the column revenue"):
        read_day(folder, "2024-01-01", ["item", "revenue"])
    (folder / "day=2024-01-01" / "part-0.parquet").unlink()
    with pytest.raises(DataError, match=r"day=2024-01-01/part-\d\.parquet is missing"):
        read_day(folder, "2024-01-01")
    with pytest.raises(DataError, match="there is no data"):
        read_day(tmp_path / "nowhere", "2024-01-01")
