"""What an analysis claims, what it withholds, and how it is shown."""

import json
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pipeline.core.files import finite_json
from pipeline.formats.scores import Scores
from pipeline.metrics.summary import count_by_day, measure, summarise
from pipeline.online.analysis import analyse
from pipeline.online.experiment_log import open_log
from pipeline.report.page import headline, shown_tables, write_online_page

FIRST, LAST = date(2026, 3, 3), date(2026, 3, 9)
COLUMNS = {name: name for name in ("day", "arm", "unit", "clicks", "responses", "value", "cost")}


def drawn_log(lift: float = 1.0, users: int = 3000, seed: int = 0) -> pd.DataFrame:
    """A week and two days before of users' impressions, some clicks and conversions."""
    rng = np.random.default_rng(seed)
    rows = 8 * users
    unit = rng.integers(0, users, rows)
    treated = (np.random.default_rng(1).random(users) < 0.5)[unit]
    item = rng.integers(0, 4, rows)
    day = rng.integers(0, 9, rows)
    lifted = np.where(treated & (day >= 2), lift, 1.0)
    click = rng.random(rows) < 0.2 * lifted
    return pd.DataFrame(
        {
            "day": pd.Timestamp("2026-03-01") + pd.to_timedelta(day, unit="D"),
            "arm": np.where(treated, "new", "old"),
            "unit": unit,
            "item": item,
            "clicks": click.astype(int),
            "responses": (click & (rng.random(rows) < 0.3)).astype(int),
            "value": 10.0,
            "cost": click * rng.lognormal(0, 0.3, rows),
            "p_old": 0.06 * np.where(item == 1, 2.0, 1.0),
            "p_new": 0.06,
        }
    )


def analysed(folder: Path, frame: pd.DataFrame, separate: bool = False, **options) -> dict:
    """The analysis of a frame as JSON carries it."""
    frame.to_parquet(folder / "log.parquet")
    given = {"columns": COLUMNS, "shares": [(FIRST, 0.5)], "last": LAST, "control": "old"}
    log = open_log([folder / "log.parquet"], **(given | options))
    with log.database:
        return json.loads(json.dumps(finite_json(analyse(log, separate))))


def metrics(found: dict) -> set[str]:
    return {row["metric"] for row in found["effects"]}


def test_an_effect_on_clicks_is_found_and_conversion_of_clicks_stays(tmp_path):
    found = analysed(tmp_path, drawn_log(1.3))
    effects = {row["metric"]: row for row in found["effects"]}
    assert effects["CTR"]["significant"]
    assert effects["CTR"]["low"] < 0.3 < effects["CTR"]["high"]
    assert not effects["CVR"]["significant"]
    assert "CTR" in headline(found)


def test_money_is_compared_where_budgets_were_apart_alone(tmp_path):
    money = {"GMV per unit", "eCPM", "revenue per unit"}
    shared, apart = (analysed(tmp_path, drawn_log(), separate) for separate in (False, True))
    assert metrics(shared) == {"CTR", "CVR"}
    assert metrics(apart) == {"CTR", "CVR"} | money
    assert shared["arms"] == apart["arms"]  # summed in both


def test_without_clicks_responses_are_a_rate_of_impressions(tmp_path):
    columns = {k: v for k, v in COLUMNS.items() if k != "clicks"}
    assert metrics(analysed(tmp_path, drawn_log(), columns=columns)) == {"response rate"}


def test_lost_rows_withhold_every_effect(tmp_path):
    frame = drawn_log(1.3)
    found = analysed(tmp_path, frame[(frame.arm == "old") | (frame.unit % 5 > 0)])
    assert found["sample_ratio"][0]["broken"]
    assert found["effects"] == []
    assert len(found["withheld"]) == 1


def test_before_its_last_day_is_mature_a_test_shows_no_effect(tmp_path):
    found = analysed(tmp_path, drawn_log(1.3), maturity_days=1)
    assert (found["last_day"], found["planned_last_day"]) == ("2026-03-08", "2026-03-09")
    assert found["effects"] == []
    assert found["arms"]
    assert len(found["withheld"]) == 1


@pytest.mark.parametrize("absent", ["unit", "arm"])
def test_what_was_not_randomised_has_calibration_and_no_effect(tmp_path, absent):
    columns = {k: v for k, v in COLUMNS.items() if k != absent}
    versions = {"old": "p_old", "new": "p_new"}
    found = analysed(tmp_path, drawn_log(), columns=columns, versions=versions)
    assert (found["effects"], found["arms"]) == ([], [])
    assert len(found["withheld"]) == 1
    assert len(found["calibration"]) == (4 if absent == "unit" else 2)


def test_calibration_is_what_the_metrics_say_of_an_arms_rows(tmp_path):
    frame = drawn_log()
    found = analysed(tmp_path, frame, field=["item"], versions={"old": "p_old", "new": "p_new"})
    rows = frame[(frame.arm == "new") & (frame.day >= "2026-03-03")]
    scores = Scores(
        np.log(rows.p_old / (1 - rows.p_old)).to_numpy(np.float32),
        rows.item.to_numpy(np.int32), np.ones(len(rows), np.int32),
        rows.responses.to_numpy(np.int32),
        rows.day.to_numpy().astype("datetime64[D]").astype(np.int32), 4,
    )  # fmt: skip
    expected = summarise(measure(scores.uncalibrated_logit, scores))
    (shown,) = (r for r in found["calibration"] if (r["version"], r["traffic"]) == ("old", "new"))
    for name, key in {
        **{k: k for k in ("pcoc", "logloss", "daily_field_deviance")},
        **{"low": "pcoc_low", "high": "pcoc_high"},
    }.items():
        assert shown[name] == pytest.approx(expected[key], rel=1e-5)
    assert [value["field_value"] for value in shown["wrong"]] == ["1"]
    _, counts = count_by_day(scores.uncalibrated_logit, scores)
    assert shown["wrong"][0]["expected_responses"] == pytest.approx(
        counts.sum(axis=0).expected_responses[1], rel=1e-5
    )
    assert all(r["wrong"] == [] for r in found["calibration"] if r["version"] == "new")


def test_versions_are_measured_on_rows_that_both_have_scored(tmp_path):
    frame = drawn_log()
    frame.loc[::3, "p_new"] = None
    versions = {"old": "p_old", "new": "p_new"}
    found = analysed(tmp_path, frame, versions=versions)["calibration"]
    seen = frame[(frame.day >= "2026-03-03") & frame.p_new.notna()].groupby("arm").size()
    assert [row["impressions"] for row in found] == [seen["old"], seen["new"]] * 2


def test_a_unit_of_both_arms_stays_with_its_first_and_is_counted(tmp_path):
    frame = drawn_log()
    moved = frame[frame.arm == "old"].unit.min()
    frame.loc[(frame.unit == moved) & (frame.day >= "2026-03-06"), "arm"] = "new"
    plain, found = analysed(tmp_path, drawn_log()), analysed(tmp_path, frame)
    assert found["arms"] == plain["arms"]
    assert len(found["notes"]) == len(plain["notes"]) + 1


def test_units_without_impressions_count(tmp_path):
    frame = drawn_log()
    silent = pd.DataFrame(
        {"day": pd.Timestamp("2026-03-04"), "arm": np.repeat(["old", "new"], 50),
         "unit": np.arange(100) + 10_000}
    )  # fmt: skip
    both = pd.concat([frame.assign(impressions=1), silent.assign(impressions=0)])
    columns = COLUMNS | {"impressions": "impressions"}
    plain = analysed(tmp_path, frame, separate=True)
    found = analysed(tmp_path, both, separate=True, columns=columns)
    units = [[arm["units"] for arm in result["arms"]] for result in (plain, found)]
    assert units[1] == [count + 50 for count in units[0]]
    ctr, revenue = (
        [
            next(row["control"] for row in result["effects"] if row["metric"] == metric)
            for result in (plain, found)
        ]
        for metric in ("CTR", "revenue per unit")
    )
    assert revenue[1] < revenue[0]
    assert ctr[1] == pytest.approx(ctr[0], rel=0.02)


def test_the_page_needs_no_script_and_no_network_and_shows_every_table(tmp_path):
    versions = {"old<b>": "p_old", "new": "p_new"}
    found = analysed(tmp_path, drawn_log(1.3), True, field=["item"], versions=versions)
    write_online_page(tmp_path / "page.html", found)
    text = (tmp_path / "page.html").read_text()
    assert text.count("<svg") == 1
    assert "<script" not in text
    assert 'href="http' not in text
    assert "old<b>" not in text
    assert len(shown_tables(found)) == 5
    assert text.count("<table>") == 5
