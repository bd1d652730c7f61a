"""The mapping that is written from a look at files lands them, and says what it could not know."""

import json
import math
import re
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ruamel.yaml import YAML

from pipeline.core.errors import DataError
from pipeline.data.ingest.first_mapping import FirstMapping, first_mapping
from pipeline.data.ingest.sources import as_pattern, land_sources
from pipeline.data.log_store.day_rows import read_day
from pipeline.data.log_store.manifest import read_manifest
from tests.data.logs import written
from tests.data.test_mappings import ATTRIBUTION, AVAZU, criteo

NOON = 1_711_965_600  # 2024-04-01T10:00:00Z
PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text()
GERMAN = re.search(r"```csv\n(.*?)```", PAGE, re.DOTALL)[1]


def columns(rows: int = 400) -> dict[str, list]:
    """A log as a program would hold it; one row in ten is clicked."""
    number = np.arange(rows)
    return {
        "request_id": [f"r{i}" for i in number],
        "ts": (NOON + 600 * number).tolist(),
        "campaign": [f"{i % 7:03}" for i in number],
        "price": (np.exp(np.sin(number)) / 3).round(3).tolist(),
        "click": (number % 10 == 0).astype(int).tolist(),
    }


@pytest.mark.parametrize("first", [10**19, 10**18])
def test_ids_of_more_digits_than_a_number_keeps_are_text(tmp_path, first):
    """Also those that a whole number of 64 bits would just hold."""
    ids = [str(first + 7 * i % 1200) for i in range(400)]
    path = written(tmp_path / "log.csv", csv_of(columns() | {"user": ids}))
    found = first_mapping([path], "mine")
    assert "user" not in found.params["log.numeric"]
    path = written(tmp_path / "log.csv", csv_of(columns() | {"user": [*ids[:3]] * 133 + ids[:1]}))
    _, rows = landed(tmp_path, path)
    assert rows["user"].to_pylist()[:3] == ids[:3]


def test_a_feature_that_is_often_missing_is_named_and_passes_the_limit_that_is_written(tmp_path):
    prices = ["" if i % 4 == 0 else str(i % 9 + 0.5) for i in range(400)]
    found, rows = landed(
        tmp_path, written(tmp_path / "log.csv", csv_of(columns() | {"bid": prices}))
    )
    assert found.params["validate.max_null_share"] >= rows["bid"].null_count / len(rows) == 0.25
    assert any("bid" in sentence and "25%" in sentence for sentence in found.unknown)
    other = first_mapping([written(tmp_path / "b.csv", csv_of(columns()))], "mine")
    assert "validate.max_null_share" not in other.params


@pytest.mark.parametrize(
    ("yes", "no"), [("7.5", ""), ("7.5", "0.0"), ("bought", ""), ("1", "0"), ("later", "none")]
)
def test_what_responses_alone_have_is_no_feature(tmp_path, yes, no):
    """Whatever it is called; a column that says much of a response and not all stays one."""
    clicks = columns()["click"]
    more = {"after": [yes if click else no for click in clicks]}
    more["near"] = [f"{i % 2 if click else i % 9}" for i, click in enumerate(clicks)]
    path = written(tmp_path / "log.csv", csv_of(columns() | more))
    found = first_mapping([path], "mine").params
    features = {*found["log.categorical"], *found["log.numeric"]}
    assert "after" not in features
    assert {"near", "price", "campaign"} <= features


def csv_of(table: dict[str, list], sign: str = ",") -> str:
    """A table as CSV with another delimiter."""
    lines = [sign.join(map(str, row)) for row in zip(*table.values(), strict=True)]
    return "\n".join([sign.join(table), *lines]) + "\n"


def landed(folder: Path, *paths: Path) -> tuple[FirstMapping, pa.Table]:
    """What was found, and the rows that land by it."""
    found = first_mapping(paths, "mine")
    (folder / "mine.yaml").write_text(found.mapping)
    land_sources(str(folder / "mine.yaml"), folder / "data", paths)
    days = read_manifest(folder / "data" / "manifest.json").days
    return found, pa.concat_tables(read_day(folder / "data", day) for day in days)


WAYS = {
    "log.csv": csv_of(columns()),
    "log.csv.gz": csv_of(columns(), "\t"),
    "log.csv.zst": csv_of(columns(), "|"),
    "log.csv.bz2": csv_of(columns(), ";"),
    "utf16.csv": csv_of(columns()).encode("utf-16"),
    "quoted.csv": csv_of(columns() | {"note": [f'"say \\"{i % 3}\\", yes"' for i in range(400)]}),
    "hive.csv": csv_of(columns(), "\x01"),
    "tilde.csv": csv_of(columns(), "~"),
    "log.jsonl": "".join(
        json.dumps(dict(zip(columns(), row, strict=True)) | {"more": {"a": 1}}) + "\n"
        for row in zip(*columns().values(), strict=True)
    ),
    "without-mark.csv": csv_of(columns()).encode("utf-16-le"),
    "excel.csv": "sep=;\n" + csv_of(columns(), ";"),
    "comments.csv": "# by x\n# on a day\n" + csv_of(columns()),
    "trailing.csv": csv_of(columns()).replace("\n", ",\n"),
    "log.parquet": b"",
    "dt=2024-04-01/hour=10/log.parquet": b"",
    "missing.csv": csv_of(columns() | {"price": ["NA", *columns()["price"][1:]]}),
}


@pytest.mark.parametrize("name", WAYS)
def test_a_log_in_any_form_lands_by_the_mapping_that_was_written_for_it(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if name.endswith("parquet"):
        pq.write_table(pa.table(columns()), path)
    else:
        written(path, WAYS[name])
    found, rows = landed(tmp_path, path)
    log = {key.removeprefix("log."): value for key, value in found.params.items()}
    assert (log["label"], log["field"], log["event_id"]) == ("click", ["campaign"], "request_id")
    assert {"campaign", "hour_of_day", "weekday"} <= set(log["categorical"])
    assert log["numeric"] == ["price"]
    assert rows["click"].to_pylist() == columns()["click"]
    assert rows["campaign"].to_pylist() == columns()["campaign"]
    price = [math.nan if value is None else value for value in rows["price"].to_pylist()]
    assert price[1:] == pytest.approx(columns()["price"][1:])
    assert any("time zone" in what for what in found.unknown)


@pytest.mark.parametrize(
    ("name", "text", "label", "responses"),
    [
        ("klicks.csv", GERMAN, "Geklickt_is_ja", 1),
        ("train.gz", AVAZU, "click", 1),
        ("train.txt", "".join(criteo(i % 2, str(i)) for i in range(14)), "c1", 7),
        ("attribution.tsv.gz", ATTRIBUTION, "click", 2),
        (
            "day.csv",
            "date,id,clicks,impressions\n2013-01-01,007,1,10\n2013-01-02,8,0,0\n",
            "clicks",
            1,
        ),
        (
            "logs/dt=2024-04-01/part.csv",
            "item,bought\nx,yes\ny,no\nx,no\n",
            "bought_is_yes",
            1,
        ),
    ],
)
def test_logs_as_they_are_published_or_spelled_elsewhere_land(
    tmp_path, name, text, label, responses
):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    found, rows = landed(tmp_path, written(tmp_path / name, text))
    assert found.params["log.label"] == label
    assert sum(rows[label].to_pylist()) == responses


ODD = ("\x7f", "\x85", "\u2028", "\ufffe", "# x: y", "\\", "'")


@pytest.mark.parametrize(
    ("change", "label"),
    [
        ({"campaign": [f"{ODD[i % 7]}{i % 7}" for i in range(400)]}, "click"),
        ({"hour_of_day": [i % 24 for i in range(400)], "weekday": ["Mo"] * 400}, "click"),
        ({'"size, ""w×h"""': [f"{i % 3}x4" for i in range(400)]}, "click"),
        ({"click": [("0.0", "0.0", "1.0", "")[i % 4] for i in range(400)]}, "click_is_1.0"),
        ({"click": ["", "", "1"] * 133 + ["1"]}, "click_is_1"),
        ({"click": ["", "yes"] * 200}, "click_is_yes"),
        ({"Campaign": ["x", "y"] * 200}, "click"),
    ],
    ids=[
        "values that are no text of YAML",
        "its own hours",
        "a quoted header",
        "labels with gaps",
        "clicks alone are marked",
        "clicks alone are marked in words",
        "two names alike but for a letter's case",
    ],
)
def test_odd_columns_land_by_the_mapping_that_was_written_for_them(tmp_path, change, label):
    found, rows = landed(tmp_path, written(tmp_path / "log.csv", csv_of(columns() | change)))
    assert found.params["log.label"] == label
    assert 0 < sum(rows[label].to_pylist()) < len(rows)
    features = [*found.params["log.categorical"], *found.params["log.numeric"]]
    assert len(features) == len(set(features))
    assert set(features) <= set(rows.column_names)


@pytest.mark.parametrize(
    "spell",
    [
        lambda seconds: f"{seconds}000000000",
        lambda seconds: datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S %z"),
        lambda seconds: datetime.fromtimestamp(seconds, UTC).strftime("%m/%d/%Y %I:%M:%S %p"),
    ],
    ids=["nanoseconds", "an offset apart", "twelve hours"],
)
def test_stamps_as_programs_write_them_are_found(tmp_path, spell):
    table = columns(100)
    path = written(tmp_path / "log.csv", csv_of(table | {"ts": [*map(spell, table["ts"])]}))
    landed(tmp_path, path)
    assert list(read_manifest(tmp_path / "data/manifest.json").days) == ["2024-04-01", "2024-04-02"]


@pytest.mark.parametrize(
    ("spell", "signs"),
    [
        (lambda number: f"{number:,.2f}", {"thousands": ","}),
        (lambda number: f"{number:,.0f}", {"thousands": ","}),
        (lambda number: f"{number:.2f}".replace(".", ","), {"decimal": ","}),
        (
            lambda number: f"{number:,.2f}".translate({44: ".", 46: ","}),
            {"decimal": ",", "thousands": "."},
        ),
    ],
)
def test_the_signs_in_numbers_are_found_and_what_parts_thousands_is_to_be_read(
    tmp_path, spell, signs
):
    numbers = [1234.5 * (i % 90) + i for i in range(400)]
    table = columns() | {"price": list(map(spell, numbers))}
    found, rows = landed(tmp_path, written(tmp_path / "log.csv", csv_of(table, ";")))
    mapping = YAML(typ="safe").load(found.mapping)
    assert {key: mapping[key] for key in ("decimal", "thousands") if key in mapping} == signs
    assert rows["price"].to_pylist() == pytest.approx(numbers, abs=0.51)
    assert any("parts thousands" in said for said in found.unknown) == ("thousands" in signs)


def test_a_stamp_of_what_came_later_is_the_label_and_not_the_time(tmp_path):
    table = {"clicked_at": [NOON + 600 * i + 9 if i % 10 == 0 else "" for i in range(400)]}
    table |= {name: values for name, values in columns().items() if name != "click"}
    found, rows = landed(tmp_path, written(tmp_path / "log.csv", csv_of(table)))
    assert sum(rows[found.params["log.label"]].to_pylist()) == 40
    assert (len(rows), found.params["log.event_id"]) == (400, "request_id")


@pytest.mark.parametrize(
    ("values", "kind"),
    [(["5.", ".5"], "double"), (["+5", "+7"], "double"), (["inf", "1"], "string")],
)
def test_numbers_are_what_a_landing_reads_as_such(tmp_path, values, kind):
    """Whatever else digits may spell is text, by which they land."""
    path = written(tmp_path / "log.csv", csv_of(columns() | {"bid": values * 200}))
    assert landed(tmp_path, path)[1]["bid"].type == kind


def test_a_bid_is_no_id(tmp_path):
    table = {"bid": [f"{i}.5" for i in range(400)]} | columns()
    found = first_mapping([written(tmp_path / "log.csv", csv_of(table))], "mine").params
    assert (found["log.event_id"], "bid" in found["log.numeric"]) == ("request_id", True)


@pytest.mark.parametrize("before", ["", 'Campaign report\n"April 1, 2024 - April 4, 2024"\n'])
def test_rows_of_totals_and_lines_before_the_header_are_no_events(tmp_path, before):
    days = [f"{1 + i // 20:02}/04/2024,shop{i % 20},{i % 4},{900 + i}\n" for i in range(80)]
    text = f"{before}day,shop,clicks,impressions\n" + "".join(days) + 'Total,,120,"75,160"\n'
    found, rows = landed(tmp_path, written(tmp_path / "log.csv", text))
    assert found.params["log.impressions"] == "impressions"
    assert (len(rows), sum(rows["clicks"].to_pylist())) == (80, 120)
    assert any("Total" in said for said in found.found)


def test_a_log_in_many_small_files_is_looked_at_in_several_of_them(tmp_path):
    """The first hour had no rows at all, and no single one shows what is often there."""
    table, paths = columns(), [written(tmp_path / "h00.csv", ",".join(columns()) + "\n")]
    for hour in range(1, 21):
        part = {name: values[20 * hour - 20 : 20 * hour] for name, values in table.items()}
        paths.append(written(tmp_path / f"h{hour:02}.csv", csv_of(part)))
    found, rows = landed(tmp_path, *paths)
    assert (found.params["log.field"], found.params["log.event_id"]) == (["campaign"], "request_id")
    assert len(rows) == 400


def test_what_lists_and_records_hold_is_named_and_mixed_numbers_are_text(tmp_path):
    lines = [
        {"ts": NOON + i, "shop": f"s{i % 3}", "ad": {"id": i}, "bid": i or "0", "click": i % 2}
        for i in range(200)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    found, rows = landed(tmp_path, written(tmp_path / "log.jsonl", text))
    assert any("ad" in said and "select" in said for said in found.unknown)
    assert rows["bid"].to_pylist() == list(range(200))


def test_what_cannot_be_a_log_is_refused(tmp_path):
    texts = ("", "a,b\n", "item,price\nx,1.5\ny,2.5\n", "click\n0\n1\n", "{}}\n")
    for text in (*texts, '[{"a": 1}, {"a": 2}]', '{\n "a": 1\n}\n'):
        with pytest.raises(DataError, match=rf"^{tmp_path}/log\.csv"):
            first_mapping([written(tmp_path / "log.csv", text)], "mine")
    first = written(tmp_path / "a.csv", csv_of(columns()))
    second = written(tmp_path / "b.csv", csv_of({"item": ["x"], "click": [1]}))
    with pytest.raises(DataError, match=r"b\.csv lacks the column campaign"):
        first_mapping([first, second], "mine")


def test_the_offsets_that_stamps_carry_are_said(tmp_path):
    stamps = [f"2024-03-31T10:{i % 60:02}:00+0{1 + i % 2}:00" for i in range(400)]
    path = written(tmp_path / "log.csv", csv_of(columns() | {"ts": stamps}))
    assert any("offsets are +01:00, +02:00" in said for said in first_mapping([path], "x").found)


def test_a_few_days_of_a_long_log_are_named_by_one_pattern(tmp_path):
    for day in range(1, 21):
        (tmp_path / f"clicks-2024-04-{day:02}.csv").touch()
    first = [str(path) for path in sorted(tmp_path.glob("*-0?.csv"))]
    assert as_pattern(first) == [str(tmp_path / "clicks-2024-04-0*.csv")]
    assert as_pattern(first[:5]) == first[:5]
    folder = tmp_path / "exports-7"
    folder.mkdir()
    hours = [folder / f"clicks-{hour}-of-24.csv" for hour in range(8, 12)]
    for path in hours:
        path.touch()
    assert as_pattern([*map(str, hours)]) == [str(folder / "clicks-*-of-*.csv")]
