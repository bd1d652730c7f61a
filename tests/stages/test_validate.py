"""validate: what breaks the contract stops the run and is named by day, column and row."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline.core.errors import AdaCalibError, DataError, NotEnoughDataError
from pipeline.core.files import read_json
from pipeline.params.sections import SplitParams, ValidateParams
from pipeline.stages import validate
from tests.tiny_logs import PRIVATE, files_of, land_day, tiny_day, tiny_log_params, write_log

DAYS = ["2024-01-01", "2024-01-02", "2024-01-03"]
LIMITS = {
    "min_rows_per_day": 1,
    "max_null_share": 0.5,
    "recent_days": 14,
    "impressions_factor": {"warning": 3.0, "error": 1000.0},
    "response_rate_factor": {"warning": 2.0, "error": None},
    "null_share_rise": {"warning": 0.2, "error": None},
    "new_value_share": {"warning": 0.3, "error": 1.0},
}
GOOD = {day: tiny_day(4) for day in DAYS}


def report(folder: Path, *, limits: dict | None = None, last_day: str | None = None, **log) -> dict:
    """reports/validation.json of the log in `folder`, up to a day."""
    target, details = folder.parent / "reports" / "validation.json", folder.parent / "details"
    validate.run(
        folder,
        target,
        details,
        params=ValidateParams(**{**LIMITS, **(limits or {})}),
        log=tiny_log_params(**log),
        split=SplitParams(training_days=1, calibration_days=1, test_days=1, last_day=last_day),
    )
    return read_json(target)


def by_day(folder: Path) -> dict:
    """The counts of each day that the last `report` of the log in `folder` was made of."""
    return json.loads((folder.parent / "details" / "days.json").read_text())


def refusal(folder: Path, kind: type[AdaCalibError] = DataError, **arguments) -> str:
    """The sentence with which the log in `folder` is refused; nothing is written."""
    with pytest.raises(kind) as error:
        report(folder, **arguments)
    assert not (folder.parent / "reports").exists() or not files_of(folder.parent / "reports")
    assert "\n" not in str(error.value)
    return str(error.value)


def with_column(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)


def test_the_report_counts_what_the_log_holds(tmp_path):
    days = {**GOOD, DAYS[1]: tiny_day(2, item=["a", None], price=[None, 1.0])}
    folder = write_log(tmp_path / "data", days)
    document = report(folder)
    assert {name: document[name] for name in ("first_day", "last_day", "days", "rows")} == {
        "first_day": DAYS[0],
        "last_day": DAYS[2],
        "days": 3,
        "rows": 10,
    }
    assert (document["impressions"], document["responses"]) == (10, 5)
    assert document["response_rate"] == 0.5
    assert document["null_shares"] == {"item": 0.1, "price": 0.1}
    assert document["missing_days"] == []
    assert by_day(folder)[DAYS[1]] == {
        "rows": 2,
        "impressions": 2,
        "responses": 1,
        "response_rate": 0.5,
        "field_values": 1,
        "nulls": {"item": 1, "price": 1},
        "field_nulls": 1,
        "new_rows": 0,
        "waits": False,
    }


def test_counted_rows_stand_for_their_impressions(tmp_path):
    folder = write_log(tmp_path / "data", GOOD)
    document = report(folder, impressions="shown")
    assert (document["rows"], document["impressions"], document["responses"]) == (12, 30, 6)


def test_days_after_the_last_day_are_not_looked_at(tmp_path):
    broken = with_column(GOOD[DAYS[2]], "click", pa.array([None] * 4, pa.int8()))
    folder = write_log(tmp_path / "data", {**GOOD, DAYS[2]: broken})
    assert "2024-01-09 is not in the manifest" in refusal(folder, last_day="2024-01-09")
    assert report(folder, last_day=DAYS[1])["days"] == 2


def test_a_gap_in_the_days_is_listed(tmp_path):
    days = {"2024-01-01": tiny_day(), "2024-01-04": tiny_day()}
    assert report(write_log(tmp_path / "data", days))["missing_days"] == [
        "2024-01-02",
        "2024-01-03",
    ]


@pytest.mark.parametrize("column", ["click", "item", "price", "shown"])
def test_a_column_that_is_missing_or_renamed_is_named_with_its_day(tmp_path, column):
    """A later day without the label is never read as one without responses."""
    days = {**GOOD, DAYS[1]: GOOD[DAYS[1]].rename_columns({column: "other"})}
    sentence = refusal(write_log(tmp_path / "data", days), impressions="shown")
    assert f"day={DAYS[1]}/part-0.parquet lacks the column {column}" in sentence
    assert "other" in sentence


def test_labels_that_are_yet_to_come_wait_and_are_asked_for_when_the_day_is_mature(tmp_path):
    """Blank, or known of responses alone: neither stops the day, nor is its rate compared."""
    days = [f"2024-01-{day:02}" for day in range(1, 8)]
    table = {day: tiny_day(200) for day in days}
    blank = {**table, days[5]: tiny_day(200, click=[1, None] * 100)}
    blank[days[6]] = tiny_day(200, click=[None] * 200)
    folder = write_log(tmp_path / "data", blank)
    document = report(folder, maturity_days=2)
    assert document["waiting"] == days[5:]
    assert document["warnings"] == []
    assert document["responses"] == 5 * 100 + 100
    with pytest.raises(DataError, match=f"day {days[5]}, column click, row 1"):
        report(folder)


@pytest.mark.parametrize(
    ("impressions", "column", "values", "row"),
    [
        (None, "click", [0, 1, None, None], "row 2 is null or NaN, as 1 more rows do"),
        (None, "click", [0, 2, 0, 0], "row 1 is 2"),
        (None, "click", [0, -1, 0, 0], "row 1 is -1"),
        ("shown", "click", [0, 3, 0, 0], "row 1 is 3: it must be a whole number from 0 to shown"),
        ("shown", "click", [0, -1, 0, 0], "row 1 is -1"),
        ("shown", "click", [0, None, 0, 0], "row 1 is null"),
        ("shown", "click", [0, 0.5, 0, 0], "row 1 is 0.5"),
        ("shown", "shown", [1, 2, -1, 0], "row 2 is -1: it must be a whole number, 0 or more"),
        ("shown", "shown", [1, 2, None, 0], "row 2 is null"),
    ],
)
def test_a_label_or_count_that_cannot_be_is_refused_with_its_row(
    tmp_path, impressions, column, values, row
):
    """A null label is never no response."""
    days = {**GOOD, DAYS[1]: with_column(GOOD[DAYS[1]], column, pa.array(values))}
    sentence = refusal(write_log(tmp_path / "data", days), impressions=impressions)
    assert f"day {DAYS[1]}, column {column}, {row}" in sentence


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_number_that_is_not_finite_is_refused_and_a_null_is_not(tmp_path, value):
    days = {
        **GOOD,
        DAYS[1]: tiny_day(4, price=pa.array([1.0, None, value, 2.0], from_pandas=False)),
    }
    sentence = refusal(write_log(tmp_path / "data", days))
    assert f"day {DAYS[1]}, column price, row 2 is" in sentence
    assert "must be finite, or null" in sentence


def test_integers_one_day_and_text_the_next_are_the_same_field_values(tmp_path):
    """The role of a column, not its storage, gives its type."""
    ids = ["7", "1582218195625938945", None, "12"]
    numbers = pa.array([None if i is None else int(i) for i in ids], pa.int64())
    days = {
        DAYS[0]: with_column(tiny_day(4), "item", numbers),
        DAYS[1]: tiny_day(4, item=ids),
    }
    folder = write_log(tmp_path / "data", days)
    report(folder)
    assert [day["field_values"] for day in by_day(folder).values()] == [3, 3]
    assert [day["new_rows"] for day in by_day(folder).values()] == [3, 0]


@pytest.mark.parametrize(
    ("column", "values", "sentence"),
    [
        ("price", pa.array(["1", "2", "x", "3"]), "column price: type string is not a number"),
        ("click", pa.array(["0", "1", "0", "1"]), "column click: type string is not a number"),
        ("item", pa.array([1.0, 2.5, 3.0, 4.0]), "column item: a float column names values only"),
    ],
)
def test_a_type_that_does_not_fit_its_role_is_named_with_its_day(
    tmp_path, column, values, sentence
):
    days = {**GOOD, DAYS[1]: with_column(GOOD[DAYS[1]], column, values)}
    assert f"day {DAYS[1]}, {sentence}" in refusal(write_log(tmp_path / "data", days))


@pytest.mark.parametrize("kind", [pa.null(), pa.float64(), pa.string()], ids=str)
def test_a_feature_without_any_value_on_one_day_is_accepted(tmp_path, kind):
    """All-null on the first day, text or numbers later."""
    column = "place" if kind == pa.string() else "price"
    days = {day: table.append_column("place", pa.array(["x"] * 4)) for day, table in GOOD.items()}
    days[DAYS[0]] = with_column(days[DAYS[0]], column, pa.nulls(4, kind))
    document = report(write_log(tmp_path / "data", days), categorical=("item", "place"))
    assert document["null_shares"][column] == pytest.approx(1 / 3)


def test_a_day_without_any_field_value_is_refused(tmp_path):
    """The field is no optional column."""
    days = {**GOOD, DAYS[1]: tiny_day(4, item=[None] * 4)}
    assert f"day {DAYS[1]}: none of its 4 rows has a field value" in refusal(
        write_log(tmp_path / "data", days)
    )


def test_too_many_nulls_are_refused_with_the_day_that_has_most(tmp_path):
    days = {**GOOD, DAYS[1]: tiny_day(4, price=[None] * 4)}
    sentence = refusal(write_log(tmp_path / "data", days), limits={"max_null_share": 0.3})
    assert "column price has no value in 33.3% of all rows" in sentence
    assert f"day {DAYS[1]} lacks most" in sentence


@pytest.mark.parametrize(("rows", "least"), [(0, 1), (2, 3)])
def test_a_day_that_is_empty_or_has_too_few_impressions_stops_the_run(tmp_path, rows, least):
    folder = write_log(tmp_path / "data", {**GOOD, DAYS[1]: tiny_day(rows)})
    limits = {"min_rows_per_day": least}
    sentence = refusal(folder, NotEnoughDataError, limits=limits)
    assert f"day {DAYS[1]} has {rows} impressions" in sentence
    if rows:
        assert report(folder, limits=limits, impressions="shown")["rows"] == 10


def test_no_data_and_one_day_of_data_are_refused(tmp_path):
    assert "there is no data" in refusal(tmp_path / "data")
    sentence = refusal(write_log(tmp_path / "one", {DAYS[0]: tiny_day()}), NotEnoughDataError)
    assert "two days are needed, the log has 1 day: 2024-01-01..2024-01-01" in sentence
    assert "has no days" in refusal(write_log(tmp_path / "none", {}), NotEnoughDataError)


def test_a_truncated_file_is_named_with_its_day(tmp_path):
    folder = write_log(tmp_path / "data", GOOD)
    part = folder / f"day={DAYS[1]}" / "part-0.parquet"
    part.write_bytes(part.read_bytes()[:-100])
    assert f"day={DAYS[1]}/part-0.parquet is not the file that was landed" in refusal(folder)


def test_a_copied_file_and_a_day_that_nobody_landed_are_refused(tmp_path):
    """A duplicated input file would count every click twice."""
    folder = write_log(tmp_path / "data", GOOD)
    part = folder / f"day={DAYS[1]}" / "part-0.parquet"
    copy = part.with_name("part-1.parquet")
    copy.write_bytes(part.read_bytes())
    assert f"day={DAYS[1]}/part-1.parquet is not in the manifest" in refusal(folder)
    copy.unlink()
    part.unlink()
    assert f"day={DAYS[1]}/part-0.parquet is missing" in refusal(folder)
    (folder / "day=2024-02-01").mkdir()
    assert "day=2024-02-01 is not in" in refusal(folder)


def test_a_log_of_another_format_or_zone_is_refused(tmp_path):
    """Days that were cut elsewhere are other days."""
    folder = write_log(tmp_path / "data", GOOD)
    assert "time_zone UTC, params.yaml says log.time_zone: Asia/Tokyo" in refusal(
        folder, time_zone="Asia/Tokyo"
    )
    assert "format tiny, params.yaml says log.format: obd" in refusal(folder, format="obd")


def test_a_true_probability_must_be_one(tmp_path):
    days = {**GOOD, DAYS[1]: tiny_day(4, price=[0.1, 0.2, 1.0, 0.3])}
    days = {DAYS[0]: tiny_day(4, price=[0.1, 0.2, 0.5, 0.3]), DAYS[1]: days[DAYS[1]]}
    sentence = refusal(write_log(tmp_path / "data", days), truth="price", numeric=())
    assert f"day {DAYS[1]}, column price, row 2 is 1: it must lie in (0, 1)" in sentence


def test_the_same_log_makes_the_same_report(tmp_path):
    """No time stamp, no path."""
    for name in ("a", "b"):
        report(write_log(tmp_path / name / "data", GOOD))
    assert files_of(tmp_path / "a" / "reports") == files_of(tmp_path / "b" / "reports")


def test_a_day_that_has_an_event_twice_is_reported_where_an_event_id_is_named(tmp_path):
    """Rows without an id are events of their own; ids do not mix over days."""
    days = {day: tiny_day(4, item=[f"{day} {i}" for i in range(4)]) for day in DAYS}
    days[DAYS[1]] = tiny_day(6, item=["a", "b", "a", None, "a", None])
    folder = write_log(tmp_path / "data", days)
    limits = {"new_value_share": {"warning": None, "error": None}}
    twice = f"{DAYS[1]} has 1 event more than once by the ids in item"
    assert twice not in str(report(folder, limits=limits)["warnings"])
    assert twice in str(report(folder, limits=limits, event_id="item")["warnings"])
    assert "day=2024-01-01/part-0.parquet lacks the column id" in refusal(
        write_log(tmp_path / "other" / "data", GOOD), event_id="id"
    )


def test_an_event_on_two_days_stops_the_run_and_both_are_named(tmp_path):
    """Three events of the last day are on the first, too; rows without an id are no events."""
    days = {day: tiny_day(4, item=[f"{day} {i}" for i in range(3)] + [None]) for day in DAYS}
    again = days[DAYS[-1]].slice(0, 3)
    days[DAYS[0]] = pa.concat_tables([days[DAYS[0]], again])
    folder = write_log(tmp_path / "data", days)
    assert refusal(folder, event_id="item").startswith(
        f"3 events by the ids in item are on both {DAYS[0]} and {DAYS[-1]}: "
    )
    report(folder, limits={"new_value_share": {"warning": None, "error": None}})


def test_a_day_that_holds_another_is_reported_where_no_event_id_is_named(tmp_path):
    """Equal rows by chance, as of few values, are not."""
    rng = np.random.default_rng(1)
    days = {day: tiny_day(200, price=rng.random(200).tolist()) for day in DAYS}
    assert report(write_log(tmp_path / "a" / "data", days))["warnings"] == []
    days[DAYS[0]] = pa.concat_tables([days[DAYS[0]], days[DAYS[2]]])
    (warning, *_) = report(write_log(tmp_path / "b" / "data", days))["warnings"]
    assert warning.startswith(f"200 rows are on {DAYS[0]} and {DAYS[2]} alike, of 200")


def test_a_misspelt_column_is_told_with_its_key_and_a_name_like_it(tmp_path):
    for day in DAYS:
        land_day(tmp_path / "data", PRIVATE, day, tiny_day(4))
    sentence = refusal(tmp_path / "data", field=("itme",))
    assert "log.field names the column itme, which the log does not have" in sentence
    assert sentence.endswith("did you mean item?")


@pytest.mark.parametrize(
    ("clicks", "step"),
    [
        ([0, 2], "or leave them out (keep of the mapping, after adacalib drop), and land"),
        ([0, None], "(drop_null of the mapping, after adacalib drop), and land"),
        ([0, -3], "repair the rows and land the day again"),
    ],
)
def test_a_wrong_label_is_told_with_what_leaves_it_out(tmp_path, clicks, step):
    days = {**GOOD, DAYS[1]: tiny_day(2, click=clicks)}
    assert step in refusal(write_log(tmp_path / "data", days))
