"""Landing: twice is once, a rewrite replaces, a killed or second writer leaves one whole log."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from pipeline.core.errors import DataError
from pipeline.data.log_store.day_rows import read_day
from pipeline.data.log_store.day_writer import DayWriter
from pipeline.data.log_store.landing import LandingOptions, land_log
from pipeline.data.log_store.manifest import holds, read_manifest
from pipeline.formats.days import day_name
from tests.tiny_logs import KIND, PRIVATE, files_of, land_day, land_days, tiny_day

DAYS = [day_name(19_700 + index) for index in range(3)]


def test_a_day_landed_twice_is_landed_once(tmp_path):
    """3 rows, then 3 rows, not 6; and not a byte differs."""
    land_day(tmp_path / "data", PRIVATE, DAYS[0], tiny_day(3))
    before = files_of(tmp_path / "data")
    manifest = land_day(tmp_path / "data", PRIVATE, DAYS[0], tiny_day(3))
    assert manifest.days[DAYS[0]].rows == 3
    assert files_of(tmp_path / "data") == before


def test_a_smaller_rewrite_replaces_the_day(tmp_path):
    """6 rows, then 3."""
    land_day(tmp_path / "data", PRIVATE, DAYS[0], tiny_day(6))
    land_day(tmp_path / "data", PRIVATE, DAYS[1], tiny_day(5))
    manifest = land_day(tmp_path / "data", PRIVATE, DAYS[0], tiny_day(3))
    assert [entry.rows for entry in manifest.days.values()] == [3, 5]
    assert len(read_day(tmp_path / "data", DAYS[0])) == 3
    assert holds(tmp_path / "data", manifest)


def test_a_rewrite_removes_files_that_another_tool_left_in_the_day(tmp_path):
    """Stale parts."""
    land_day(tmp_path / "data", PRIVATE, DAYS[0], tiny_day(6))
    stale = tmp_path / "data" / f"day={DAYS[0]}" / "part-1.parquet"
    stale.write_bytes(b"old")
    assert holds(tmp_path / "data", land_day(tmp_path / "data", PRIVATE, DAYS[0], tiny_day(6)))


def test_equal_rows_make_equal_bytes_however_they_are_chunked(tmp_path):
    whole = tiny_day(40)
    cut = pa.concat_tables([whole.slice(0, 7), whole.slice(7)])
    for name, table in {"whole": whole, "cut": cut}.items():
        land_day(tmp_path / name, PRIVATE, DAYS[0], table)
    assert files_of(tmp_path / "whole") == files_of(tmp_path / "cut")


def test_a_log_that_fits_its_manifest_is_not_made_again(tmp_path):
    days = {day: tiny_day(4) for day in DAYS}
    manifest, changed = land_log(tmp_path / "data", KIND, days.items)
    assert changed

    def never() -> None:
        raise AssertionError("a log that fits was made again")

    assert land_log(tmp_path / "data", KIND, never) == (manifest, False)


@pytest.mark.parametrize("damage", ["truncate", "remove", "add a day", "other origin"])
def test_a_log_that_no_longer_fits_is_made_again(tmp_path, damage):
    days = {day: tiny_day(4) for day in DAYS}
    kind = KIND
    land_log(tmp_path / "data", KIND, days.items)
    whole = files_of(tmp_path / "data")
    part = tmp_path / "data" / f"day={DAYS[0]}" / "part-0.parquet"
    if damage == "truncate":
        part.write_bytes(part.read_bytes()[:-100])
    elif damage == "remove":
        part.unlink()
    elif damage == "add a day":
        (tmp_path / "data" / "day=2030-01-01").mkdir()
    else:
        kind = replace(KIND, origin={"seed": 2})
    assert land_log(tmp_path / "data", kind, days.items)[1]
    if damage != "other origin":
        assert files_of(tmp_path / "data") == whole


def test_another_log_replaces_the_whole_folder(tmp_path):
    land_log(tmp_path / "data", KIND, {day: tiny_day(4) for day in DAYS}.items)
    other = replace(KIND, format="other", origin={"seed": 2})
    manifest, _ = land_log(tmp_path / "data", other, {DAYS[1]: tiny_day(2)}.items)
    assert list(manifest.days) == [DAYS[1]]
    assert holds(tmp_path / "data", manifest)


def test_a_log_that_cannot_be_brought_again_is_never_replaced(tmp_path):
    land_day(tmp_path / "data", PRIVATE, DAYS[0], tiny_day(3))
    before = files_of(tmp_path / "data")
    with pytest.raises(DataError, match="nothing brings again"):
        land_log(tmp_path / "data", KIND, {DAYS[0]: tiny_day(4)}.items)
    assert files_of(tmp_path / "data") == before


def test_a_day_from_elsewhere_makes_a_log_one_that_cannot_be_brought_again(tmp_path):
    land_log(tmp_path / "data", KIND, {DAYS[0]: tiny_day(4)}.items)
    assert land_day(tmp_path / "data", KIND, DAYS[0], tiny_day(4)).origin == KIND.origin
    assert land_day(tmp_path / "data", KIND, DAYS[0], tiny_day(3)).origin == {}


@pytest.mark.parametrize("name", ["day=2024-01-01", "notes.txt"])
def test_files_that_no_manifest_names_are_left_alone(tmp_path, name):
    (tmp_path / "data" / name).mkdir(parents=True)
    with pytest.raises(DataError, match=r"files and no manifest\.json"):
        land_log(tmp_path / "data", KIND, {DAYS[0]: tiny_day(4)}.items)
    assert (tmp_path / "data" / name).exists()


def test_days_of_another_kind_are_refused_and_change_nothing(tmp_path):
    land_day(tmp_path / "data", PRIVATE, DAYS[0], tiny_day(3))
    before = files_of(tmp_path / "data")
    with pytest.raises(DataError, match="another kind"):
        land_day(tmp_path / "data", replace(PRIVATE, time_zone="Asia/Tokyo"), DAYS[0], tiny_day(3))
    assert files_of(tmp_path / "data") == before


@pytest.mark.parametrize(
    ("day", "table", "error"),
    [
        ("yesterday", tiny_day(), DataError),
        (DAYS[1], tiny_day().drop_columns("click"), KeyError),
        (DAYS[1], tiny_day().set_column(0, "item", pa.array([1, 2, 3, 4])), pa.ArrowInvalid),
    ],
    ids=["date", "column", "type"],
)
def test_a_day_that_breaks_its_kind_is_refused_and_leaves_the_previous_log(
    tmp_path, day, table, error
):
    """Types come from one declaration."""
    land_log(tmp_path / "data", KIND, {DAYS[0]: tiny_day(3)}.items)
    before = files_of(tmp_path / "data")
    other = replace(KIND, origin={"seed": 2})
    with pytest.raises(error):
        land_log(tmp_path / "data", other, {DAYS[0]: tiny_day(3), day: table}.items)
    assert files_of(tmp_path / "data") == before


def test_a_log_that_fails_half_way_leaves_the_previous_one(tmp_path):
    land_log(tmp_path / "data", KIND, {DAYS[0]: tiny_day(4)}.items)
    before = files_of(tmp_path)

    def broken():
        yield DAYS[0], tiny_day(2)
        raise RuntimeError("the source broke off")

    with pytest.raises(RuntimeError):
        land_log(tmp_path / "data", replace(KIND, origin={"seed": 2}), broken)
    assert files_of(tmp_path) == before


def test_a_day_with_other_rows_is_told_of_with_its_responses_before_and_after(tmp_path):
    """Late labels make a new version of a day; the same rows again make none."""
    changes, versions = [], []
    options = LandingOptions("tiny", None, "click")
    for clicks in ([0, 0, 0, 1], [0, 1, 1, 1], [0, 1, 1, 1]):

        def fill(stage: DayWriter, clicks: list[int] = clicks) -> None:
            stage.add(tiny_day(4, click=clicks), np.zeros(4, np.int32))

        landed = land_days(tmp_path / "data", PRIVATE, fill, options)
        versions.append(landed.manifest.days["1970-01-01"].content_sha256[:8])
        changes += landed.changes
    assert changes == [
        f"1970-01-01 has a new version: 4 -> 4 rows, 1 -> 3 responses "
        f"(content {versions[0]} -> {versions[1]})"
    ]


def land_rows_of(folder, rows, day=0, **options):
    """Land a day of so many rows."""

    def fill(stage: DayWriter) -> None:
        stage.add(tiny_day(rows), np.full(rows, day, np.int32))

    return land_days(folder, PRIVATE, fill, LandingOptions(**options)).manifest


def test_a_day_that_would_lose_more_than_a_tenth_of_its_rows_is_refused_and_stays(tmp_path):
    land_rows_of(tmp_path / "data", 100)
    land_rows_of(tmp_path / "data", 90)
    before = files_of(tmp_path)
    with pytest.raises(DataError) as refusal:
        land_rows_of(tmp_path / "data", 80)
    assert "day 1970-01-01 has 90 rows and would have 80" in str(refusal.value)
    assert files_of(tmp_path) == before
    manifest = land_rows_of(tmp_path / "data", 80, allow_shrink=True)
    assert manifest.days["1970-01-01"].rows == 80


def test_a_damaged_manifest_is_named(tmp_path):
    path = tmp_path / "manifest.json"
    for content in ("{", "[]", '{"days": {"2024-01-01": {}}}', '{"format": "x"}'):
        path.write_text(content)
        with pytest.raises(DataError, match=r"manifest\.json is not"):
            read_manifest(path)
