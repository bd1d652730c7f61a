"""Counting in a warehouse: one query in every dialect, the product's conventions, and its end."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from typer.testing import CliRunner

from pipeline.cli.main import app
from pipeline.core.errors import DataError, ParamsError
from pipeline.core.files import read_json
from pipeline.data.ingest.mapping import read_mapping
from pipeline.data.ingest.sources import land_sources
from pipeline.data.log_store.day_rows import local_days
from pipeline.data.warehouse import DIALECTS, counted_mapping, counting_query
from pipeline.encoding.values import logged_logit
from pipeline.formats.days import day_name
from pipeline.params.sections import LogParams
from tests.tiny_logs import tiny_log_params
from tests.whole_walk import DAYS, project, walk

BERLIN = "Europe/Berlin"
SCHEMA = pa.schema(
    {
        "ts": pa.timestamp("us", tz="UTC"),
        "item": pa.string(),
        "slot": pa.string(),
        "score": pa.float64(),
        "shown": pa.int64(),
        "click": pa.int64(),
        "event": pa.string(),
    }
)
# around the hour that Berlin has twice, and a midnight
STAMPS = st.integers(0, 60).map(
    lambda n: datetime(2024, 10, 26, 20, tzinfo=UTC) + timedelta(minutes=25 * n)
)
ROW = st.builds(
    lambda ts, item, slot, score, shown, share, event: {
        "ts": ts, "item": item, "slot": slot, "score": score, "shown": shown,
        "click": min(share, shown), "event": event,
    },
    STAMPS,
    st.sampled_from(["a", "b", "NA", "", None]),
    st.sampled_from(["top", "1"]),
    st.sampled_from([0.0, 1.0, 1e-300, 0.5]) | st.floats(0, 1),
    st.integers(0, 5),
    st.integers(0, 5),
    st.sampled_from([None, "x", "y", "z"]),
)  # fmt: skip


def log(**values):
    """The section of a log with probabilities, counts and two fields."""
    section = {
        "time_zone": BERLIN, "field": ("item", "slot"), "categorical": (), "numeric": (),
        "impressions": "shown", "served_probability": "score",
    }  # fmt: skip
    return tiny_log_params(**{**section, **values})


def counted(table: pa.Table, section, **asked) -> list[tuple]:
    """What the query gives in DuckDB."""
    asked = {"time": "ts", "date": None, **asked}
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'America/New_York'")  # of the session: it changes nothing
        database.register("logged", table)
        query = counting_query("logged", "duckdb", section, **asked)
        return database.sql(query).fetchall()


def counted_slowly(rows, cells, by_event) -> Counter:
    """The same, row by row, with the product's own days and logits."""
    found, seen = {}, set()
    for row in sorted(rows, key=lambda row: row["ts"]):
        day = day_name(int(local_days(pa.chunked_array([[row["ts"]]]), BERLIN)[0]))
        if by_event and row["event"] is not None:
            if (day, row["event"]) in seen:
                continue
            seen.add((day, row["event"]))
        logit = float(logged_logit(np.array([row["score"]]), "probability")[0])
        key = (day, row["item"], row["slot"], round(np.floor(logit * cells)))
        sums = found.setdefault(key, [0, 0])
        sums[0] += row["shown"]
        sums[1] += row["click"]
    return found


@settings(max_examples=25)
@given(
    st.lists(ROW, min_size=1, max_size=40, unique_by=lambda row: row["ts"]),
    st.sampled_from([1, 16, 32]),
    st.booleans(),
)
def test_sums_are_those_of_the_rows_by_the_products_conventions(rows, cells, by_event):
    """The first row of an event on a day counts; the others do not."""
    section = log(event_id="event" if by_event else None)
    table = pa.Table.from_pylist(rows, SCHEMA)
    found = {
        (day, item, slot, round(logit * cells - 0.5)): [shown, clicks]
        for day, item, slot, logit, shown, clicks in counted(table, section, cells=cells)
    }
    assert found == counted_slowly(rows, cells, by_event)


@given(st.lists(ROW, min_size=2, max_size=40), st.integers(1, 39))
@settings(max_examples=15)
def test_the_sums_of_parts_add_up(rows, cut):
    table = pa.Table.from_pylist(rows, SCHEMA)

    def sums(part):
        return Counter(
            {
                (key, n): row[4 + n]
                for row in counted(part, log())
                for key in [row[:4]]
                for n in (0, 1)
            }
        )

    both = sums(table.slice(0, cut)) + sums(table.slice(cut)) if cut < len(table) else sums(table)
    assert +both == +sums(table)


def test_the_logit_of_a_cell_is_its_middle_and_float32_holds_it():
    score = np.linspace(0.001, 0.999, 500)
    rows = [{"ts": datetime(2024, 5, 1, tzinfo=UTC), "item": "a", "slot": "1", "score": p,
             "shown": 1, "click": 0} for p in score]  # fmt: skip
    logits = np.array([row[3] for row in counted(pa.Table.from_pylist(rows, SCHEMA), log())])
    assert (logits == logits.astype(np.float32)).all()
    distance = np.abs(np.log(score / (1 - score))[:, None] - logits).min(1)
    assert distance.max() <= 1 / 64


@pytest.mark.parametrize(
    ("column", "value", "null"),
    [("score", None, 3), ("score", 1.5, 3), ("click", None, 5), ("click", 9, 5), ("click", -1, 5)],
)
def test_what_the_product_refuses_comes_out_as_a_null(column, value, null):
    good = {"ts": datetime(2024, 5, 1, tzinfo=UTC), "item": "a", "slot": "1", "score": 0.5,
            "shown": 2, "click": 1}  # fmt: skip
    rows = pa.Table.from_pylist([good, good, good | {column: value}], SCHEMA)
    assert None in {row[null] for row in counted(rows, log())}


def test_a_score_that_is_no_number_is_no_logit_in_parquet_either(tmp_path):
    """NaN is in none of the file's statistics, by which DuckDB answers comparisons."""
    score = np.r_[np.full(9, 0.5), np.nan]
    columns = {
        n: pa.array(["2024-05-05" if n == "ts" else "a"] * 10) for n in ("ts", "item", "slot")
    }
    columns |= {n: pa.array(np.zeros(10, np.int64)) for n in ("shown", "click")}
    pq.write_table(pa.table(columns | {"score": pa.array(score)}), tmp_path / "log.parquet")
    with duckdb.connect() as database:
        database.execute(f"CREATE VIEW logged AS FROM '{tmp_path / 'log.parquet'}'")
        query = counting_query("logged", "duckdb", log(), time=None, date="ts")
        logits = [row[-3] for row in database.sql(query).fetchall()]
    assert sorted(np.isfinite(np.array(logits, dtype=float))) == [False, True]


def test_days_may_be_named_and_limited():
    rows = [{"ts": datetime(2024, 5, day, tzinfo=UTC), "item": "a", "slot": "1", "score": 0.5,
             "shown": 1, "click": 0} for day in range(1, 9)]  # fmt: skip
    table = pa.Table.from_pylist(rows, SCHEMA)
    table = table.append_column("d", [[row["ts"].date() for row in rows]])
    days = ("2024-05-03", "2024-05-05")
    expected = ["2024-05-03", "2024-05-04", "2024-05-05"]
    for asked in ({"time": "ts"}, {"time": None, "date": "d"}):
        assert sorted(row[0] for row in counted(table, log(), days=days, **asked)) == expected


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "section",
    [
        log(),
        log(impressions=None, event_id="event", weight="w"),
        log(served_probability=None, served_logit="order", field=("Gerät name",)),
    ],
)
def test_every_dialect_parses_its_query_and_has_its_columns(dialect, section):
    for asked in ({"time": "ts", "date": None}, {"time": None, "date": "select"}):
        query = counting_query("ads.served", dialect, section, days=("2024-01-01", None), **asked)
        parsed = sqlglot.parse_one(query, read=dialect, error_level=sqlglot.ErrorLevel.RAISE)
        weight = [section.weight] if section.weight else []
        expected = ["day", *section.field, *weight, "logit", "impressions", "responses"]
        assert parsed.named_selects == expected


@pytest.mark.parametrize(
    ("section", "dialect", "table", "sentence"),
    [
        (log(served_probability=None), "duckdb", "a", "both null"),
        (log(field=("day",)), "duckdb", "a", "column day"),
        (log(), "oracle", "a", "no dialect 'oracle'"),
        (log(), "duckdb", 'ads"served', "no name of a table in duckdb"),
        (log(), "bigquery", "", "no name of a table in bigquery"),
        (log(), "spark", "ads;served", "no name of a table in spark"),
    ],
)
def test_what_cannot_be_counted_is_refused(section, dialect, table, sentence):
    with pytest.raises(ParamsError, match=sentence):
        counting_query(table, dialect, section, time="ts", date=None)
    with pytest.raises(DataError):
        counting_query("a", "duckdb", log(), time="ts", date=None, days=("2024-02-30", None))


def test_a_project_of_bigquery_may_have_hyphens():
    query = counting_query("my-project.ads.2026_served", "bigquery", log(), time="ts", date=None)
    *_, table = sqlglot.parse_one(query, read="bigquery").find_all(sqlglot.exp.Table)
    assert [part.name for part in table.parts] == ["my-project", "ads", "2026_served"]


def test_the_mapping_reads_columns_of_any_name(tmp_path):
    names = ("Campaign #", "a: b", "{x}", 'size "w×h"', "null", "1", "- c")
    (tmp_path / "counted.yaml").write_text(counted_mapping(log(field=names, weight="w, g")))
    rules = read_mapping(str(tmp_path / "counted.yaml"))
    assert [*rules.columns] == [*names, "w, g", "logit", "impressions", "responses"]


def test_the_parameters_that_the_mapping_names_are_of_the_columns_that_are_counted():
    section = log(field_parents=("advertiser", "vertical"), value="bid", truth="truth")
    text = counted_mapping(section)
    said = "\n".join(line.removeprefix("#") for line in text.splitlines() if line[:4] == "#   ")
    keys = YAML(typ="safe", pure=True).load(said)
    counted = LogParams.model_validate_json(json.dumps(keys))
    assert counted.field_parents == section.field_parents
    query = counting_query("ads", "duckdb", section, time="ts", date=None)
    assert {*counted.columns()} <= {*sqlglot.parse_one(query, read="duckdb").named_selects}


def test_the_command_prints_query_and_mapping(tmp_path, monkeypatch):
    project(tmp_path, None, log__served_logit="score")
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(app, ["sql", "ads.served", "--dialect", "snowflake", "--time", "ts"])
    assert sqlglot.parse_one(said.output, read="snowflake").named_selects[0] == "day"
    assert "format: counted" in CliRunner().invoke(app, ["sql", "--mapping"]).output
    assert CliRunner().invoke(app, ["sql", "a"]).exit_code == 2


def served(day: str, rows: int) -> pa.Table:
    """Impressions whose logged logit is wrong for each item in its own way."""
    random = np.random.default_rng(int(day[-2:]))
    item = random.integers(0, 20, rows)
    logit = random.normal(-2.5, 1.0, rows)
    truth = 0.8 * logit + np.linspace(-0.8, 0.8, 20)[item]
    click = random.random(rows) < 1 / (1 + np.exp(-truth))
    stamp = np.datetime64(f"{day}T12:00", "us")
    return pa.table(
        {
            "item": item.astype(str),
            "score": logit,
            "click": click.astype(np.int8),
            "ts": pa.array(np.full(rows, stamp), pa.timestamp("us", tz="UTC")),
        }
    )


@pytest.mark.slow
def test_from_sums_alone_logloss_is_that_of_the_rows(tmp_path):
    """Landed by the printed mapping, through the pipeline up to the evaluation."""
    days = {day: served(day, 20_000) for day in DAYS}
    rows = walk(project(tmp_path / "rows", days, log__served_logit="score"), "evaluate")
    section = log(
        time_zone="UTC", field=("item",), impressions=None, served_probability=None,
        served_logit="score",
    )  # fmt: skip
    found = counted(pa.concat_tables(days.values()), section)
    columns = ("day", "item", "logit", "impressions", "responses")
    table = pa.table(dict(zip(columns, zip(*found, strict=True), strict=True)))
    pq.write_table(table, tmp_path / "counted.parquet")
    (tmp_path / "counted.yaml").write_text(counted_mapping(section))
    sums = project(
        tmp_path / "sums", None, log__format="counted", log__label="responses",
        log__impressions="impressions", log__served_logit="logit",
    )  # fmt: skip
    source = [tmp_path / "counted.parquet"]
    land_sources(str(tmp_path / "counted.yaml"), sums / "data", source)
    walk(sums, "evaluate")
    by_rows, by_sums = (read_json(f / "reports/evaluation.json") for f in (rows, sums))
    assert by_sums["impressions"] == by_rows["impressions"]
    assert by_sums["rows"] < by_rows["rows"]
    for name in ("uncalibrated", "eb_platt", "adacalib", "model"):
        of_rows, of_sums = (each["methods"][name]["logloss"] for each in (by_rows, by_sums))
        assert of_sums == pytest.approx(of_rows, abs=0.5e-4), name
