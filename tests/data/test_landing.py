"""Landing: twice is once, a rewrite replaces, a killed or second writer leaves one whole log."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline.data import commits
from pipeline.data.changes import DayChange
from pipeline.data.days import day_name, read_day
from pipeline.data.landing import Roles, land_day, land_days, land_log
from pipeline.data.manifest import content_sha256, holds, read_manifest
from pipeline.data.staging import DayStage
from pipeline.errors import DataError
from tests.tiny_logs import KIND, PRIVATE, files_of, tiny_day, write_log

DAYS = [day_name(19_700 + index) for index in range(3)]

# A writer in a process of its own: lands days of 3,000 rows whose click is `mark`, and kills itself
# where it is told to. Arguments: folder, mark, place.
WRITER = """
import os, signal, sys
import numpy as np
from pathlib import Path
from pipeline.data import commits, landing, staging
from tests.tiny_logs import KIND, PRIVATE, tiny_day

folder, mark, place = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
die = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
table = tiny_day(3000, click=[mark] * 3000)

def days():
    for day in ("2024-01-01", "2024-01-02"):
        if place == "between days" and day == "2024-01-02":
            die()
        yield day, table

if place == "writing a file":
    staging.pq.ParquetWriter.close = die  # what is there has no footer
if place == "writing the manifest":
    landing.write_manifest = die
if place == "before the files":
    commits.publish = die
if place == "before the manifest":
    commits._settle = die
if place == "between two renames":
    rename = Path.rename
    def aside_only(self, target):
        rename(self, target)
        if ".tmp-old-" in str(target):
            die()
    Path.rename = aside_only
if sys.argv[4] == "days":
    def fill(stage):
        stage.add(table, np.full(3000, 19723))
    landing.land_days(folder, PRIVATE, fill)
elif sys.argv[4] == "log":
    import dataclasses
    kind = dataclasses.replace(KIND, origin={"seed": mark})
    landing.land_log(folder, kind, days)
else:
    landing.land_day(folder, PRIVATE, "2024-01-01", table)
"""


def writer(folder: Path, mark: int, place: str, what: str) -> subprocess.Popen:
    command = [sys.executable, "-c", WRITER, str(folder), str(mark), place, what]
    return subprocess.Popen(command, cwd=Path(__file__).parents[2])


def marks(folder: Path, day: str = "2024-01-01") -> set[int]:
    return set(read_day(folder, day)["click"].to_pylist())


def test_a_day_landed_twice_is_landed_once(tmp_path):
    """H15: 3 rows, then 3 rows, not 6; and not a byte differs."""
    land_day(tmp_path / "data", PRIVATE, DAYS[0], tiny_day(3))
    before = files_of(tmp_path / "data")
    manifest = land_day(tmp_path / "data", PRIVATE, DAYS[0], tiny_day(3))
    assert manifest.days[DAYS[0]].rows == 3
    assert files_of(tmp_path / "data") == before


def test_a_smaller_rewrite_replaces_the_day(tmp_path):
    """H15: 6 rows, then 3."""
    land_day(tmp_path / "data", PRIVATE, DAYS[0], tiny_day(6))
    land_day(tmp_path / "data", PRIVATE, DAYS[1], tiny_day(5))
    manifest = land_day(tmp_path / "data", PRIVATE, DAYS[0], tiny_day(3))
    assert [entry.rows for entry in manifest.days.values()] == [3, 5]
    assert len(read_day(tmp_path / "data", DAYS[0])) == 3
    assert holds(tmp_path / "data", manifest)


def test_a_rewrite_removes_files_that_another_tool_left_in_the_day(tmp_path):
    """H15: stale parts."""
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
    with pytest.raises(DataError, match="cannot be brought again"):
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


@pytest.mark.parametrize(
    ("kind", "table", "match"),
    [
        (replace(PRIVATE, time_zone="Asia/Tokyo"), tiny_day(), "another kind"),
        (PRIVATE, tiny_day().drop_columns("click"), "day 2024-01-05 lacks the column click"),
        (
            PRIVATE,
            tiny_day().set_column(0, "item", pa.array([1, 2, 3, 4])),
            "column item is int64 on day 2024-01-05, the format tiny declares string",
        ),
    ],
    ids=["zone", "column", "type"],
)
def test_a_day_that_does_not_belong_to_the_log_is_refused_and_changes_nothing(
    tmp_path, kind, table, match
):
    """H14, H16: types come from one declaration."""
    land_day(tmp_path / "data", PRIVATE, DAYS[0], tiny_day(3))
    before = files_of(tmp_path / "data")
    with pytest.raises(DataError, match=match):
        land_day(tmp_path / "data", kind, "2024-01-05", table)
    assert files_of(tmp_path / "data") == before


def test_a_day_that_is_no_date_is_refused(tmp_path):
    with pytest.raises(DataError, match="YYYY-MM-DD"):
        land_day(tmp_path / "data", PRIVATE, "yesterday", tiny_day())
    assert files_of(tmp_path) == {}


def test_a_log_that_fails_half_way_leaves_the_previous_one(tmp_path):
    land_log(tmp_path / "data", KIND, {DAYS[0]: tiny_day(4)}.items)
    before = files_of(tmp_path)

    def broken():
        yield DAYS[0], tiny_day(2)
        raise RuntimeError("the source broke off")

    with pytest.raises(RuntimeError):
        land_log(tmp_path / "data", replace(KIND, origin={"seed": 2}), broken)
    assert files_of(tmp_path) == before


@pytest.mark.slow
@pytest.mark.parametrize("place", ["between days", "writing a file", "writing the manifest"])
def test_a_killed_landing_leaves_the_previous_log_and_the_next_one_clears_up(tmp_path, place):
    """H15: SIGKILL."""
    kind = replace(KIND, origin={"seed": 0})
    old = {day: tiny_day(3000, click=[0] * 3000) for day in ("2024-01-01", "2024-01-02")}
    land_log(tmp_path / "data", kind, old.items)
    before = files_of(tmp_path / "data")
    assert writer(tmp_path / "data", 1, place, "log").wait() == -signal.SIGKILL
    assert files_of(tmp_path / "data") == before
    assert writer(tmp_path / "data", 1, "nowhere", "log").wait() == 0
    assert marks(tmp_path / "data") == {1}
    assert os.listdir(tmp_path) == ["data"]


@pytest.mark.slow
def test_a_landing_killed_between_two_renames_is_put_back_by_the_next(tmp_path):
    """H15."""
    kind = replace(KIND, origin={"seed": 0})
    old = {day: tiny_day(3000, click=[0] * 3000) for day in ("2024-01-01", "2024-01-02")}
    manifest, _ = land_log(tmp_path / "data", kind, old.items)
    assert writer(tmp_path / "data", 1, "between two renames", "log").wait() == -signal.SIGKILL
    assert not (tmp_path / "data").exists()
    assert land_log(tmp_path / "data", kind, old.items) == (manifest, False)
    assert os.listdir(tmp_path) == ["data"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "mark"),
    [("writing a file", 0), ("before the files", 0), ("before the manifest", 1)],
)
def test_a_killed_day_is_the_previous_day_or_the_whole_new_one(tmp_path, place, mark):
    """H15: also where the writer died between the file and the manifest; other days are whole."""
    folder = tmp_path / "data"
    for day in ("2024-01-01", "2024-01-02"):
        land_day(folder, PRIVATE, day, tiny_day(3000, click=[0] * 3000))
    assert writer(folder, 1, place, "day").wait() == -signal.SIGKILL
    manifest = read_manifest(folder / "manifest.json")
    assert holds(folder, manifest)
    assert (marks(folder), marks(folder, "2024-01-02")) == ({mark}, {0})
    land_day(folder, PRIVATE, "2024-01-01", tiny_day(3000, click=[1] * 3000))
    assert marks(folder) == {1}
    assert os.listdir(tmp_path) == ["data"]
    assert sorted(os.listdir(folder)) == ["day=2024-01-01", "day=2024-01-02", "manifest.json"]


@pytest.mark.slow
def test_a_log_whose_first_landing_was_killed_can_be_landed(tmp_path):
    """H15: nothing of it is taken for a log."""
    assert writer(tmp_path / "data", 1, "before the files", "day").wait() == -signal.SIGKILL
    assert list(read_manifest(tmp_path / "data" / "manifest.json").days) == []
    assert list(land_day(tmp_path / "data", PRIVATE, DAYS[0], tiny_day()).days) == [DAYS[0]]


FULL = """
import resource, signal, sys
from pathlib import Path
from pipeline.data.landing import land_day
from tests.tiny_logs import PRIVATE, tiny_day

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
import numpy as np
prices = np.random.default_rng(1).random(3000).tolist()
try:
    land_day(Path(sys.argv[1]), PRIVATE, "2024-01-01", tiny_day(3000, price=prices))
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.slow
def test_a_disk_that_takes_no_more_leaves_the_previous_day(tmp_path):
    """H15: the limit on a file's size stands for a full disk."""
    land_day(tmp_path / "data", PRIVATE, "2024-01-01", tiny_day(3))
    before = files_of(tmp_path)
    said = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "data")],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.startswith(f"DataError {tmp_path}/data cannot be written: ")
    assert said.stdout.count("\n") == 1
    assert said.stderr == ""
    assert files_of(tmp_path) == before


def test_a_day_with_other_rows_is_told_of_with_its_responses_before_and_after(tmp_path):
    """Late labels make a new version of a day; the same rows again make none."""
    told: list[DayChange] = []
    roles = Roles("tiny", None, "click")
    for clicks in ([0, 0, 0, 1], [0, 1, 1, 1], [0, 1, 1, 1]):

        def fill(stage: DayStage, clicks: list[int] = clicks) -> None:
            stage.add(tiny_day(4, click=clicks), np.zeros(4, np.int32))

        manifest, _ = land_days(tmp_path / "data", PRIVATE, fill, roles, told.append)
    (change,) = told
    versions = change.before.content_sha256[:8], change.after.content_sha256[:8]
    assert str(change) == (
        f"1970-01-01 has a new version: 4 -> 4 rows, 1 -> 3 responses "
        f"(content {versions[0]} -> {versions[1]})"
    )
    assert manifest.days["1970-01-01"] == change.after


@pytest.mark.slow
@pytest.mark.parametrize("what", ["log", "day", "days"])
def test_two_writers_at_once_end_in_one_whole_log(tmp_path, what):
    """H15."""
    writers = [writer(tmp_path / "data", mark, "nowhere", what) for mark in (0, 1)]
    assert [process.wait() for process in writers] == [0, 0]
    assert holds(tmp_path / "data", read_manifest(tmp_path / "data" / "manifest.json"))
    assert marks(tmp_path / "data") in ({0}, {1})
    assert os.listdir(tmp_path) == ["data"]


def test_the_content_hash_sees_values_names_types_nulls_and_order():
    table = tiny_day(3)
    others = [
        table.slice(0, 2),
        table.take([1, 0, 2]),
        table.rename_columns(["item2", "price", "shown", "click"]),
        table.select(["price", "item", "shown", "click"]),
        table.set_column(2, "shown", pa.array([1, 2, 3], pa.int32())),
        table.set_column(2, "shown", pa.array([1, 2, None], pa.int64())),
        table.set_column(2, "shown", pa.array([1, 2, 0], pa.int64())),
        table.set_column(0, "item", pa.array(["ab", "", "001"])),
        table.set_column(0, "item", pa.array(["a", "b", None])),
    ]
    hashes = [content_sha256(t) for t in [table, *others]]
    assert len(set(hashes)) == len(hashes)


def test_the_content_hash_does_not_see_chunks_slices_or_what_lies_under_a_null():
    table = tiny_day(6)
    padded = pa.concat_tables([tiny_day(2), table, tiny_day(2)])
    assert content_sha256(padded.slice(2, 6)) == content_sha256(table)
    masked = pa.array([1, 9], mask=pa.array([False, True]).to_numpy(zero_copy_only=False))
    a, b = pa.table({"x": masked}), pa.table({"x": pa.array([1, None])})
    assert content_sha256(a) == content_sha256(b)
    large = table.set_column(0, "item", table["item"].cast(pa.large_string()))
    assert content_sha256(large) == content_sha256(table)


def test_the_content_hash_takes_every_type_a_log_has_and_names_others():
    stamps = pa.array([1, None], pa.timestamp("us", "UTC"))
    columns = [stamps, pa.array([1, None], pa.date32()), pa.array([True, None]), pa.nulls(2)]
    assert len({content_sha256(pa.table({"x": column})) for column in columns}) == 4
    with pytest.raises(DataError, match="column x has type struct"):
        content_sha256(pa.table({"x": [{"a": 1}]}))


def test_the_content_hash_of_lists_sees_where_they_end_and_not_how_they_are_stored():
    lists = [
        [["a"], ["b"]],
        [["a", "b"], []],
        [["a", "b"], None],
        [["a"], ["b", None]],
        [["a", "b"]],
    ]
    tables = [pa.table({"x": pa.array(rows, pa.list_(pa.string()))}) for rows in lists]
    assert len(set(map(content_sha256, tables))) == len(lists)
    renamed = tables[0].cast(pa.schema({"x": pa.list_(pa.field("element", pa.string()))}))
    assert content_sha256(renamed) == content_sha256(tables[0])


def test_the_content_hash_is_the_same_for_another_parquet_writer(tmp_path):
    """Same rows, other writer."""
    landed = land_day(tmp_path / "a", PRIVATE, DAYS[0], tiny_day(9)).days[DAYS[0]]
    other = read_manifest(write_log(tmp_path / "b", {DAYS[0]: tiny_day(9)}) / "manifest.json")
    assert other.days[DAYS[0]].content_sha256 == landed.content_sha256
    assert other.days[DAYS[0]].files != landed.files


def test_a_damaged_manifest_is_named(tmp_path):
    path = tmp_path / "manifest.json"
    for content in ("{", "[]", '{"days": {"2024-01-01": {}}}', '{"format": "x"}'):
        path.write_text(content)
        with pytest.raises(DataError, match=r"manifest\.json is not"):
            read_manifest(path)


def test_a_second_writer_says_that_it_waits(tmp_path, caplog, monkeypatch):
    calls = []

    def busy(descriptor: int, operation: int) -> None:
        calls.append(operation)
        if operation & commits.fcntl.LOCK_NB:
            raise BlockingIOError

    monkeypatch.setattr(commits.fcntl, "flock", busy)
    land_day(tmp_path / "data", PRIVATE, DAYS[0], tiny_day())
    assert "waiting" in caplog.text
    assert calls[-1] == commits.fcntl.LOCK_EX
