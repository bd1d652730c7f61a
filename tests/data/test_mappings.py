"""The mappings that ship, each on small files in exactly its public format."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.core.errors import DataError
from pipeline.data.ingest.mapping import read_mapping, shipped
from pipeline.data.ingest.sources import land_sources
from pipeline.data.log_store.day_rows import read_day
from pipeline.data.log_store.landing import LandingOptions
from pipeline.data.log_store.manifest import read_manifest

AVAZU = (
    "id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,"
    "device_id,device_ip,device_model,device_type,device_conn_type,C14,C15,C16,C17,C18,C19,C20,C21\n"
    "10001139595064240144,0,14102100,1005,0,1fbe01fe,f3845767,28905ebd,ecad2386,7801e8d9,07d7df22,"
    "a99f214a,c9758700,76dc4769,1,0,15705,320,50,1722,0,35,-1,79\n"
    "1001139595064240145,1,14102223,1005,0,85f751fd,f3845767,28905ebd,00000001,7801e8d9,07d7df22,"
    "a99f214a,c9758700,76dc4769,1,0,15705,320,50,1722,0,35,-1,79\n"
)


def landed(folder: Path, name: str, files: dict[str, str]) -> tuple[str, dict[str, list[dict]]]:
    """What was said, and the rows of every day."""
    for file, text in files.items():
        codec = "gzip" if file.endswith(".gz") else None
        with pa.output_stream(str(folder / file), compression=codec) as stream:
            stream.write(text.encode())
    said = land_sources(name, folder / "data", [folder / file for file in files])
    days = read_manifest(folder / "data" / "manifest.json").days
    return said, {day: read_day(folder / "data", day).to_pylist() for day in days}


def test_every_mapping_that_ships_can_be_read_and_has_its_own_name():
    assert {read_mapping(name).format for name in shipped()} == set(shipped())


def test_avazu_hours_are_utc_and_ids_keep_every_digit(tmp_path):
    """The id is beyond 64 bits, 00000001 stays text."""
    said, days = landed(tmp_path, "avazu", {"train.gz": AVAZU})
    assert list(days) == ["2014-10-21", "2014-10-22"]
    (first,), (second,) = days.values()
    assert first["id"] == "10001139595064240144"
    assert (first["C20"], first["click"], first["hour_of_day"], first["weekday"]) == ("-1", 0, 0, 2)
    assert (second["app_id"], second["click"], second["hour_of_day"]) == ("00000001", 1, 23)
    assert "took 2 rows on 2 days, 2014-10-21..2014-10-22" in said


def test_avazu_s_test_file_has_no_label_and_is_refused(tmp_path):
    with pytest.raises(DataError, match="column click is missing"):
        landed(tmp_path, "avazu", {"test.csv": AVAZU.replace(",click,", ",", 1)})


def criteo(label: int, first: str = "1") -> str:
    """A line of 40 columns, most of them empty."""
    return "\t".join([str(label), first, *[""] * 12, "68fd1e64", *[""] * 24, '"b']) + "\n"


def test_criteo_kaggle_s_days_are_equal_blocks_of_its_rows(tmp_path):
    text = "".join(criteo(i % 2, "-2" if i else "") for i in range(14))
    _, days = landed(tmp_path, "criteo-kaggle", {"train.txt": text})
    assert list(days) == [f"1970-01-0{day}" for day in range(1, 8)]
    assert [len(rows) for rows in days.values()] == [2] * 7
    first, second = days["1970-01-01"]
    assert (first["I1"], second["I1"], first["C1"], first["C2"], first["C26"]) == (
        None, -2, "68fd1e64", None, '"b',
    )  # fmt: skip


def test_criteo_1tb_s_days_are_those_of_the_files_names(tmp_path):
    files = {"day_0.gz": criteo(0), "day_23.gz": criteo(1) * 2}
    _, days = landed(tmp_path, "criteo-1tb", files)
    assert {day: len(rows) for day, rows in days.items()} == {"1970-01-01": 1, "1970-01-24": 2}
    with pytest.raises(DataError, match="does not match file_day"):
        landed(tmp_path, "criteo-1tb", {"first.gz": criteo(0)})


ATTRIBUTION = (
    "timestamp\tuid\tcampaign\tconversion\tconversion_timestamp\tconversion_id\tattribution\tclick\t"
    "click_pos\tclick_nb\tcost\tcpo\ttime_since_last_click\t"
    + "\t".join(f"cat{i}" for i in range(1, 10))
    + "\n"
    + "0\t20073966\t22589171\t0\t-1\t-1\t0\t0\t-1\t-1\t1e-05\t0.39\t-1" + "\t5824233" * 9 + "\n"
    + "86399\t1\t2\t1\t90000\t7\t1\t1\t0\t1\t1e-05\t0.39\t423858" + "\t5824233" * 9 + "\n"
    + "86400\t1\t2\t0\t-1\t-1\t0\t1\t0\t1\t1e-05\t0.39\t423858" + "\t5824233" * 9 + "\n"
)  # fmt: skip


def test_criteo_attribution_has_clicks_of_all_and_conversions_of_clicked_impressions(tmp_path):
    name = "criteo_attribution_dataset.tsv.gz"
    (tmp_path / "ctr").mkdir()
    (tmp_path / "cvr").mkdir()
    _, days = landed(tmp_path / "ctr", "criteo-attribution", {name: ATTRIBUTION})
    clicks = {day: [row["click"] for row in rows] for day, rows in days.items()}
    assert clicks == {"1970-01-01": [0, 1], "1970-01-02": [1]}
    said, days = landed(tmp_path / "cvr", "criteo-attribution-cvr", {name: ATTRIBUTION})
    conversions = {day: [row["conversion"] for row in rows] for day, rows in days.items()}
    assert conversions == {"1970-01-01": [1], "1970-01-02": [0]}
    assert "dropped 1 (click is not 1)" in said


def test_criteo_conversions_count_within_thirty_days_of_the_click(tmp_path):
    month = 30 * 86400
    rest = "\t" + "\t".join(["1"] * 8 + ["abc"] * 9) + "\n"
    ends = ["", "5", f"{month + 5}", f"{month + 6}"]
    text = "".join(f"5\t{end}{rest}" for end in ends)
    _, days = landed(tmp_path, "criteo-conversions", {"data.txt": text})
    assert [row["conversion"] for row in days["1970-01-01"]] == [0, 1, 1, 0]


def test_taobao_s_days_begin_at_midnight_in_shanghai(tmp_path):
    """2017-05-06 16:00 UTC is the next day there."""
    text = (
        "user,time_stamp,adgroup_id,pid,nonclk,clk\n581738,1494032110,1,430548_1007,1,0\n"
        "449818,1494086400,2,430548_1007,0,1\n"
    )
    _, days = landed(tmp_path, "taobao", {"raw_sample.csv": text})
    assert {day: rows[0]["hour"] for day, rows in days.items()} == {
        "2017-05-06": 8,
        "2017-05-07": 0,
    }


def test_kuairand_s_days_are_its_dates(tmp_path):
    text = (
        "user_id,video_id,date,hourmin,time_ms,is_click,is_like,is_follow,is_comment,is_forward,"
        "is_hate,long_view,play_time_ms,duration_ms,profile_stay_time,comment_stay_time,"
        "is_profile_enter,is_rand,tab\n"
        "0,3784,20220421,0,1650470400000,1,0,0,0,0,0,0,13000,20000,0,0,0,0,1\n"
    )
    _, days = landed(tmp_path, "kuairand", {"log_standard.csv": text})
    (row,) = days["2022-04-21"]
    assert (row["tab"], row["is_click"], row["hourmin"], row["duration_ms"]) == ("1", 1, 0, 20000)


def test_talkingdata_leaves_out_when_the_app_was_downloaded(tmp_path):
    text = (
        "ip,app,device,os,channel,click_time,attributed_time,is_attributed\n"
        "83230,3,1,13,379,2017-11-06 14:32:21,,0\n"
        "17357,3,1,19,379,2017-11-07 00:00:00,2017-11-07 00:03:00,1\n"
    )
    _, days = landed(tmp_path, "talkingdata", {"train.csv": text})
    assert list(days) == ["2017-11-06", "2017-11-07"]
    assert "attributed_time" not in days["2017-11-06"][0]


def test_talkingdata_stamps_that_went_through_a_spreadsheet_are_refused_by_line(tmp_path):
    text = (
        "ip,app,device,os,channel,click_time,attributed_time,is_attributed\n"
        "83230,3,1,13,379,11/7/2017 9:30,,0\n"
    )
    with pytest.raises(DataError, match=r"train\.csv, line 2: column click_time"):
        landed(tmp_path, "talkingdata", {"train.csv": text})


def test_daily_counts_with_more_clicks_than_impressions_are_dropped_and_counted(tmp_path):
    text = "date,id,clicks,impressions\n2013-01-01,007,1,10\n2013-01-01,8,3,2\n2013-01-02,8,0,0\n"
    said, days = landed(tmp_path, "daily-counts", {"adwords.csv": text})
    assert days["2013-01-01"] == [{"id": "007", "impressions": 10, "clicks": 1}]
    assert "dropped 1 (clicks > impressions)" in said


def test_roles_of_another_format_are_not_heeded_and_that_is_said(tmp_path):
    """A log whose params.yaml is not written yet; then with it."""
    text = "date,id,clicks,impressions\n2013-01-01,a,1,10\n2013-01-01,a,1,10\n"
    (tmp_path / "log.csv").write_text(text)
    said = {}
    for name in ("flights", "daily-counts"):
        options = LandingOptions(name, "id", "clicks", allow_shrink=True)
        folder, sources = tmp_path / "data", [tmp_path / "log.csv"]
        said[name] = land_sources("daily-counts", folder, sources, options=options).splitlines()
    assert said["flights"][1:] == [
        "event ids were not compared: log.event_id is for flights, not daily-counts"
    ]
    first, change = said["daily-counts"]
    assert "took 1 row on 1 day, 2013-01-01..2013-01-01; dropped 1 (id came before)" in first
    assert change.startswith("2013-01-01 has a new version: 2 -> 1 rows, 2 -> 1 responses (content")


def test_days_in_names_and_blocks_of_parquet_that_cannot_be_are_named(tmp_path):
    rules = {"format": "x", "kind": "parquet", "time_zone": "UTC", "columns": {"a": "int8"}}
    for name, day in {"day_x": {"file_day": "day_(.)"}, "gone": {"row_blocks": 2}}.items():
        (tmp_path / f"{name}.yaml").write_text(json.dumps({**rules, **day}))
        with pytest.raises(DataError, match=f"{name}: file_day finds 'x'|{name} does not exist"):
            land_sources(str(tmp_path / f"{name}.yaml"), tmp_path / "data", [tmp_path / name])


def test_a_format_that_is_fetched_takes_no_files(tmp_path):
    with pytest.raises(DataError, match="flights is fetched"):
        land_sources("flights", tmp_path / "data", [tmp_path / "flights.csv"])
