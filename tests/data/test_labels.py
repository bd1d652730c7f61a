"""Labels that keep arriving, and days that are none."""

import pytest

from pipeline.core.errors import DataError, NotEnoughDataError
from pipeline.core.files import read_json
from pipeline.data.ingest.sources import land_sources
from pipeline.data.log_store.day_rows import read_day
from pipeline.data.log_store.landing import LandingOptions
from pipeline.data.log_store.manifest import read_manifest
from pipeline.data.log_store.splits import (
    label_growth,
    labels_until,
    maturity_of,
    split_by_count,
    stray_rows,
)
from pipeline.data.log_store.store import drop_days
from pipeline.params.sections import SplitParams, ValidateParams
from pipeline.stages import validate
from tests.stages.test_validate import LIMITS
from tests.tiny_logs import files_of, tiny_log_params

DAYS = [f"2024-04-{day:02}" for day in range(1, 11)]
MAPPING = """
format: clicks
kind: csv
time_zone: UTC
time: {column: at, format: iso8601}
columns: {id: text, shop: text, click: int8}
"""


def arrive(folder, day, rows=100, clicks=10, also=""):
    """The file of a day, the first rows of which have a click."""
    lines = [f"{day}T10:00:00Z,{day}-{i},shop{i % 3},{int(i < clicks)}\n" for i in range(rows)]
    (folder / f"{day}.csv").write_text("at,id,shop,click\n" + "".join(lines) + also)


def land(folder, *days, as_of=None, event_id=None, label="click", more=""):
    """The log after the files of these days have landed, and what was said."""
    (folder / "clicks.yaml").write_text(MAPPING + more)
    files = [folder / f"{day}.csv" for day in days]
    options = LandingOptions("clicks", event_id, label, as_of=as_of)
    said = land_sources(str(folder / "clicks.yaml"), folder / "data", files, options=options)
    return read_manifest(folder / "data/manifest.json"), said


def test_a_day_is_mature_when_its_labels_were_seen_so_many_days_after_it(tmp_path):
    """The landing counts and not the calendar: a snapshot of a day old is never final."""
    for day in DAYS[:5]:
        arrive(tmp_path, day)
        manifest, _ = land(tmp_path, day, as_of=day)
    assert maturity_of(manifest, 2, None).newest_mature_day == "2024-03-31"
    maturity = maturity_of(manifest, 2, None)
    assert maturity.waiting == DAYS[:5]
    counts = {"training": 1, "calibration": 1, "test": 1}
    with pytest.raises(NotEnoughDataError, match="wait for their labels") as refused:
        split_by_count(DAYS[:5], counts, "UTC", maturity)
    assert "for example" not in str(refused.value)
    manifest, _ = land(tmp_path, *DAYS[:5], as_of=DAYS[4])
    assert maturity_of(manifest, 2, None).newest_mature_day == DAYS[2]
    assert maturity_of(manifest, 0, None).waiting == []


def test_an_old_file_takes_no_late_labels_back(tmp_path):
    """Alone it is refused; all files in their order are the log as it stands, by hand and with what
    has landed as it is left unread.
    """
    late = "".join(f"{DAYS[0]}T10:00:00Z,{DAYS[0]}-{i},shop{i % 3},1\n" for i in range(90))
    arrive(tmp_path, DAYS[0])
    arrive(tmp_path, DAYS[1], also=late)
    land(tmp_path, *DAYS[:2], event_id="id")
    before = files_of(tmp_path / "data")
    for rows in (100, 101):
        arrive(tmp_path, DAYS[0], rows=rows)
        with pytest.raises(DataError, match="has 90 responses and would have 10"):
            land(tmp_path, DAYS[0], event_id="id")
        assert files_of(tmp_path / "data") == before
    for as_of in (DAYS[1], None):
        manifest, _ = land(tmp_path, *DAYS[:2], event_id="id", as_of=as_of)
        assert manifest.days[DAYS[0]].rows == 101
        assert sum(read_day(tmp_path / "data", DAYS[0])["click"].to_pylist()) == 90


def test_a_log_that_lands_at_once_has_the_labels_of_its_newest_day(tmp_path):
    for day in DAYS:
        arrive(tmp_path, day)
    manifest, _ = land(tmp_path, *DAYS)
    assert {labels_until(entry) for entry in manifest.days.values()} == {DAYS[-1]}
    assert maturity_of(manifest, 7, None).newest_mature_day == DAYS[2]


def test_labels_that_grew_are_landed_and_what_came_as_it_was_is_not_read_again(tmp_path):
    for day in DAYS[:3]:
        arrive(tmp_path, day)
    land(tmp_path, *DAYS[:2], as_of=DAYS[1])
    arrive(tmp_path, DAYS[0], rows=120, clicks=40)
    manifest, said = land(tmp_path, *DAYS[:3], as_of=DAYS[2])
    assert f"{DAYS[0]} has a new version: 100 -> 120 rows, 10 -> 40 responses" in said
    assert manifest.days[DAYS[0]].labels == {DAYS[1]: 10, DAYS[2]: 40}
    assert manifest.days[DAYS[1]].labels == {DAYS[1]: 10, DAYS[2]: 10}
    before = files_of(tmp_path / "data")
    land(tmp_path, *DAYS[:3], as_of=DAYS[2])
    assert files_of(tmp_path / "data") == before


def test_no_label_is_known_as_of_a_day_before_every_row(tmp_path):
    for day in DAYS[1:3]:
        arrive(tmp_path, day)
    with pytest.raises(DataError, match=DAYS[0]):
        land(tmp_path, *DAYS[1:3], as_of=DAYS[0])
    assert not (tmp_path / "data/manifest.json").exists()
    land(tmp_path, *DAYS[1:3], as_of=DAYS[1])  # files of a day may hold the first rows of the next


@pytest.mark.parametrize("as_of", ["2024-13-01", "2024-02-30", "2024-4-1", "", "tomorrow"])
def test_labels_are_as_of_no_day_that_is_none(tmp_path, as_of):
    """Whether the file has landed as it is or brings rows."""
    arrive(tmp_path, DAYS[0])
    for _ in range(2):
        with pytest.raises(DataError, match="YYYY-MM-DD"):
            land(tmp_path, DAYS[0], as_of=as_of)
        manifest, _ = land(tmp_path, DAYS[0], as_of=DAYS[0])
        assert list(manifest.days[DAYS[0]].labels) == [DAYS[0]]


def test_an_event_that_gets_its_conversion_later_has_it(tmp_path):
    arrive(tmp_path, DAYS[0], clicks=0)
    land(tmp_path, DAYS[0], as_of=DAYS[0], event_id="id")
    arrive(tmp_path, DAYS[0], clicks=7)
    manifest, _ = land(tmp_path, DAYS[0], as_of=DAYS[1], event_id="id")
    assert manifest.days[DAYS[0]].rows == 100
    assert sum(read_day(tmp_path / "data", DAYS[0])["click"].to_pylist()) == 7


def test_late_rows_in_the_file_of_another_day_make_no_labels_known(tmp_path):
    late = f"{DAYS[0]}T23:59:00Z,late,shop0,1\n"
    arrive(tmp_path, DAYS[0])
    arrive(tmp_path, DAYS[1], also=late)
    land(tmp_path, DAYS[0], as_of=DAYS[0])
    manifest, _ = land(tmp_path, DAYS[1], as_of=DAYS[1])
    assert manifest.days[DAYS[0]].labels == {DAYS[0]: 11}
    manifest, _ = land(tmp_path, *DAYS[:2], as_of=DAYS[1])
    assert manifest.days[DAYS[0]].labels == {DAYS[0]: 11, DAYS[1]: 11}


def test_growth_by_age_is_the_share_of_what_is_known_now(tmp_path):
    for age, clicks in enumerate((10, 15, 20)):
        arrive(tmp_path, DAYS[0], clicks=clicks)
        manifest, _ = land(tmp_path, DAYS[0], as_of=DAYS[age])
    growth = label_growth(manifest.days)
    assert [(row["age"], row["share"]) for row in growth] == [(0, 0.5), (1, 0.75), (2, 1.0)]


def test_responses_of_one_label_are_not_held_against_those_of_another(tmp_path, monkeypatch):
    """log.label was changed between two landings of a day."""
    lines = MAPPING.replace("click: int8", "click: int8, sale: int8")
    monkeypatch.setattr("tests.data.test_labels.MAPPING", lines)
    for age, sales in enumerate((2, 3, 4)):
        rows = [f"{DAYS[0]}T10:00:00Z,{i},shop0,{int(i < 50)},{int(i < sales)}" for i in range(99)]
        (tmp_path / f"{DAYS[0]}.csv").write_text("\n".join(["at,id,shop,click,sale", *rows]))
        label = "sale" if age else "click"
        manifest, _ = land(tmp_path, DAYS[0], as_of=DAYS[age], label=label)
    assert manifest.days[DAYS[0]].labels == {DAYS[0]: None, DAYS[1]: 3, DAYS[2]: 4}
    assert [row["share"] for row in label_growth(manifest.days)] == [0.75, 1.0]


def test_a_landing_that_knows_no_label_forgets_no_counts(tmp_path):
    for age, (clicks, label) in enumerate([(10, "click"), (15, None), (20, "click")]):
        arrive(tmp_path, DAYS[0], clicks=clicks)
        manifest, _ = land(tmp_path, DAYS[0], as_of=DAYS[age], label=label)
    assert manifest.days[DAYS[0]].labels == {DAYS[0]: 10, DAYS[1]: None, DAYS[2]: 20}


@pytest.mark.parametrize(
    ("stray", "rows"),
    [
        *[("2038-01-19", 1), ("2004-04-05", 1), ("0203-04-01", 50), ("1970-01-01", 50)],
        ("9999-12-20", 50),
    ],
)
def test_stray_rows_decide_no_day_and_a_command_takes_them_out(tmp_path, stray, rows):
    """A clock that runs ahead, a mistyped year, and stamps that stand for none, however many."""
    for day in DAYS:
        arrive(tmp_path, day)
    arrive(
        tmp_path, DAYS[-1], also="".join(f"{stray}T03:14:07Z,x{n},shop0,0\n" for n in range(rows))
    )
    manifest, said = land(tmp_path, *DAYS)
    assert stray in said
    maturity = maturity_of(manifest, 3, None)
    assert (maturity.reference_day, maturity.newest_mature_day) == (DAYS[-1], DAYS[6])
    assert len(stray_rows(manifest.days)) == 1
    paths = tmp_path / "data", tmp_path / "validation.json", tmp_path / "validation"
    log = tiny_log_params(
        format="clicks", field=("shop",), categorical=("shop",), numeric=(), maturity_days=3
    )
    validate.run(*paths, params=ValidateParams(**LIMITS), log=log, split=SplitParams(
        training_days=1, calibration_days=1, test_days=1))  # fmt: skip
    report = read_json(paths[1])
    assert (report["first_day"], report["last_day"]) == (DAYS[0], DAYS[-1])
    assert any(stray in warning for warning in report["warnings"])
    drop_days(tmp_path / "data", [stray])
    after = read_manifest(tmp_path / "data/manifest.json")
    assert list(after.days) == DAYS
    assert not (tmp_path / "data" / f"day={stray}").exists()
    with pytest.raises(DataError, match=stray):
        drop_days(tmp_path / "data", [stray])


@pytest.mark.parametrize("kept", [True, False])
def test_stray_rows_of_more_days_than_a_file_has_do_not_say_when_labels_are_known(tmp_path, kept):
    """Clocks that are reset differ, and rows that a rule drops have days, too."""
    strays = ["1970-01-01", "2000-01-01", "2038-01-19", "2106-02-07"]
    shop = "shop0" if kept else "heartbeat"
    also = "".join(f"{stray}T00:00:00Z,{stray},{shop},0\n" for stray in strays)
    rule = 'keep: {shop: ["shop0", "shop1", "shop2"]}\n'
    for day in DAYS[:5]:
        arrive(tmp_path, day, also=also)
        manifest, _ = land(tmp_path, day, more=rule)
    assert {day: labels_until(manifest.days[day]) for day in DAYS[:5]} == dict(
        zip(DAYS[:5], DAYS[:5], strict=True)
    )
    assert len(stray_rows(manifest.days)) == kept * len(strays)
    assert maturity_of(manifest, 3, None).reference_day == DAYS[4]


@pytest.mark.parametrize("also", [DAYS[1], f"{DAYS[0]}/", f"{DAYS[0]}/../.."])
def test_a_day_is_dropped_whole_or_no_day_is(tmp_path, also):
    """A path is no day, whatever folder it leads to."""
    arrive(tmp_path, DAYS[0])
    land(tmp_path, DAYS[0])
    before = files_of(tmp_path)
    with pytest.raises(DataError, match=also):
        drop_days(tmp_path / "data", [DAYS[0], also])
    assert files_of(tmp_path) == before
