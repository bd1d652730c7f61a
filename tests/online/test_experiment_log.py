"""The log of an experiment: what units come to, whichever way their rows are spelled."""

import os
from datetime import date

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.core.errors import DataError, NotEnoughDataError
from pipeline.online.experiment_log import SUMMED, ExperimentLog, open_log

FIRST, LAST = date(2026, 3, 3), date(2026, 3, 6)
COLUMNS = {
    **{name: name for name in ("day", "arm", "unit", "impressions", "responses", "clicks")},
    **{name: name for name in ("value", "cost")},
}


def drawn_rows(seed: int = 0, rows: int = 400) -> pd.DataFrame:
    """Rows of some users over six days, two of them before the test."""
    rng = np.random.default_rng(seed)
    impressions = rng.integers(0, 4, rows)
    clicks = rng.binomial(impressions, 0.5)
    seconds = rng.integers(0, 6 * 86_400, rows)
    return pd.DataFrame(
        {
            "day": pd.Timestamp("2026-03-01") + pd.to_timedelta(seconds, unit="s"),
            "arm": rng.choice(["a", "b"], rows),
            "unit": rng.integers(0, 60, rows),
            "impressions": impressions,
            "clicks": clicks,
            "responses": rng.binomial(clicks, 0.5),
            "value": rng.integers(1, 9, rows) / 2,
            "cost": rng.integers(0, 9, rows) / 4,
            "p": rng.uniform(0.1, 0.9, rows),
        }
    )


def opened(folder, frame: pd.DataFrame, suffix: str = "parquet", **options) -> ExperimentLog:
    """The log of a frame that was written to a folder."""
    target = folder / f"log.{suffix}"
    if suffix.endswith("parquet"):
        frame.to_parquet(target)
    else:
        frame.to_csv(target, index=False)
    given = {"columns": COLUMNS, "shares": [(FIRST, 0.5)], "last": LAST} | options
    return open_log([target], **given)


def units_of(log: ExperimentLog) -> pd.DataFrame:
    """The units, in order."""
    with log.database:
        return log.sum_units().df().sort_values("unit").reset_index(drop=True)


def test_units_have_the_sums_of_their_test_days_and_their_first_arm(tmp_path):
    frame = drawn_rows()
    found = units_of(opened(tmp_path, frame))
    rows = frame.assign(gmv=frame.responses * frame.value, revenue=frame.cost)
    test = rows[rows.day >= "2026-03-03"].sort_values("day")
    first = test.groupby("unit").first()
    sums = test.groupby("unit")[list(SUMMED)].sum()
    before = rows[rows.day < "2026-03-03"].groupby("unit")[list(SUMMED)].sum()
    assert found.unit.tolist() == sums.index.tolist()
    assert found.treated.tolist() == (first.arm == "b").astype(int).tolist()
    np.testing.assert_allclose(found[list(SUMMED)], sums)
    np.testing.assert_allclose(
        found[[f"pre_{c}" for c in SUMMED]], before.reindex(sums.index).fillna(0)
    )


@pytest.mark.parametrize("suffix", ["csv", "CSV.gz", "csv.parquet"])
def test_neither_the_order_nor_the_format_of_rows_matters(tmp_path, suffix):
    frame = drawn_rows()
    frame["unit"] = frame.unit.astype(str)
    expected = units_of(opened(tmp_path, frame))
    found = units_of(opened(tmp_path, frame.sample(frac=1, random_state=1), suffix))
    pd.testing.assert_frame_equal(found, expected)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_units_are_as_they_are_spelled(tmp_path, suffix):
    """However late in a file it shows that they are no numbers, and whatever else may be one."""
    spelled = ["7"] * 30_000 + ["07", "7.0", "007", "NULL", "true", " 7", '7"']
    arms = ["a"] * 30_000 + ["b"] * (len(spelled) - 30_000)
    frame = pd.DataFrame({"day": "2026-03-03", "arm": arms, "unit": spelled, "responses": True})
    columns = {name: name for name in frame}
    found = units_of(opened(tmp_path, frame, suffix, columns=columns))
    assert found.unit.tolist() == sorted(set(spelled))
    assert found.responses.sum() == len(spelled)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("stamp", "tests"),
    [
        ("2026-03-03T04:30:00Z", False),  # 2 March, 23:30 in New York
        ("2026-03-03T04:30:00+00:00", False),
        ("2026-03-03T05:30:00Z", True),
        ("2026-03-03 00:30:00", True),
        ("2026-03-03", True),
    ],
)
def test_the_day_of_an_instant_is_that_of_the_logs_zone(tmp_path, suffix, stamp, tests):
    """Also where stamps are text, and spelled in several ways."""
    rows = [stamp, "2026-03-04T12:00:00Z", "2026-03-05 12:00:00"]
    frame = pd.DataFrame({"day": rows, "arm": ["a", "a", "b"], "responses": 0})
    columns = {name: name for name in frame}
    log = opened(tmp_path, frame, suffix, columns=columns, time_zone="America/New_York")
    with log.database:
        assert log.rows == 2 + tests


def test_a_day_that_may_be_read_in_two_ways_is_refused(tmp_path):
    frame = drawn_rows().assign(day="03/04/2026")
    with pytest.raises(DataError):
        opened(tmp_path, frame, "csv")


def test_one_row_of_many_impressions_is_as_many_rows(tmp_path):
    frame = drawn_rows().query("impressions > 0 and clicks == 0")
    single = frame.loc[frame.index.repeat(frame.impressions)]
    shared = single.assign(impressions=1, cost=single.cost / single.impressions)
    pd.testing.assert_frame_equal(
        units_of(opened(tmp_path, frame)), units_of(opened(tmp_path, shared))
    )


def test_a_price_of_responses_is_what_they_cost(tmp_path):
    frame = drawn_rows().assign(price=3.0)
    columns = {k: v for k, v in COLUMNS.items() if k != "cost"} | {"price": "price"}
    found = units_of(opened(tmp_path, frame, columns=columns))
    np.testing.assert_allclose(found.revenue, 3 * found.responses)


def test_a_unit_belongs_to_the_period_in_which_it_came(tmp_path):
    shares = [(FIRST, 0.1), (date(2026, 3, 5), 0.5)]
    frame = drawn_rows()
    found = units_of(opened(tmp_path, frame, shares=shares))
    came = frame[frame.day >= "2026-03-03"].groupby("unit").day.min()
    assert (found.cell // 2).tolist() == (came >= "2026-03-05").astype(int).tolist()


def test_immature_days_do_not_count(tmp_path):
    log = opened(tmp_path, drawn_rows(), maturity_days=2)
    assert (log.newest, log.mature) == (date(2026, 3, 6), date(2026, 3, 4))
    frame = drawn_rows()
    early = frame[frame.day < "2026-03-05"]
    expected = units_of(opened(tmp_path, early, last=date(2026, 3, 4)))
    pd.testing.assert_frame_equal(units_of(log), expected)


def test_days_begin_at_midnight_of_the_time_zone(tmp_path):
    frame = drawn_rows()
    frame["day"] = frame.day.dt.tz_localize("America/New_York")
    found = units_of(opened(tmp_path, frame, time_zone="America/New_York"))
    plain = units_of(opened(tmp_path, drawn_rows()))
    pd.testing.assert_frame_equal(found[list(SUMMED)], plain[list(SUMMED)])


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("impressions", -1),
        ("p", 1.5),
        ("arm", "c"),
        ("day", "yesterday"),
        ("cost", -0.5),
        ("cost", "inf"),
        ("clicks", "nan"),
    ],
)
def test_a_row_that_breaks_a_rule_is_refused(tmp_path, column, value):
    frame = drawn_rows().astype({column: object})
    row = frame.index[frame.day.astype(str) >= "2026-03-03"][0]
    frame.loc[row, column] = value
    with pytest.raises(DataError):
        opened(tmp_path, frame, "csv", versions={"served": "p"})


def test_a_folder_of_days_is_a_log_whatever_its_name(tmp_path):
    frame = drawn_rows()
    expected = units_of(opened(tmp_path, frame))
    dates = frame.day.dt.date.astype(str)
    for date_, rows in frame.groupby(dates):
        folder = tmp_path / "log [old].csv" / f"day={date_}"
        folder.mkdir(parents=True)
        rows.drop(columns="day").to_parquet(folder / "rows.parquet")
    log = open_log([tmp_path / "log [old].csv"], COLUMNS, [(FIRST, 0.5)], LAST)
    found = units_of(log)
    assert found.unit.tolist() == expected.unit.tolist()
    np.testing.assert_allclose(found[list(SUMMED)], expected[list(SUMMED)])


@pytest.mark.parametrize("column", ["impressions", "responses", "clicks", "value", "p"])
def test_a_number_that_is_none_is_refused_in_parquet_too(tmp_path, column):
    """NaN is in none of the file's statistics, by which comparisons are answered."""
    arrays = {name: pa.array(values.to_numpy()) for name, values in drawn_rows().items()}
    numbers = arrays[column].to_numpy(zero_copy_only=False).astype(float)
    numbers[:] = np.where(np.arange(len(numbers)) == len(numbers) - 1, np.nan, numbers)
    pq.write_table(pa.table(arrays | {column: pa.array(numbers)}), tmp_path / "log.parquet")
    with pytest.raises(DataError):
        open_log(
            [tmp_path / "log.parquet"], COLUMNS, [(FIRST, 0.5)], LAST, versions={"served": "p"}
        )


def test_a_column_that_the_log_lacks_is_refused(tmp_path):
    with pytest.raises(DataError):
        opened(tmp_path, drawn_rows().drop(columns="cost"))


def test_a_test_of_which_no_day_is_mature_is_refused(tmp_path):
    with pytest.raises(NotEnoughDataError):
        opened(tmp_path, drawn_rows(), maturity_days=9)


@pytest.mark.parametrize(
    "options",
    [
        {"last": date(2026, 3, 1)},
        {"shares": [(FIRST, 1.0)]},
        {"shares": [(FIRST, 0.1), (FIRST, 0.2)]},
        {"control": "z"},
    ],
)
def test_a_plan_that_is_none_is_refused(tmp_path, options):
    with pytest.raises(DataError):
        opened(tmp_path, drawn_rows(), **options)


def test_a_file_that_is_missing_or_no_log_is_refused(tmp_path):
    (tmp_path / "log.parquet").write_text("nothing")
    os.mkfifo(tmp_path / "pipe.csv")
    for name in ("log.parquet", "absent.csv", "pipe.csv"):
        with pytest.raises(DataError):
            open_log([tmp_path / name], COLUMNS, [(FIRST, 0.5)], LAST)
