"""A killed writer, a second one and a full disk leave one whole log."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.data.log_store import store
from pipeline.data.log_store.day_rows import read_day
from pipeline.data.log_store.landing import land_log
from pipeline.data.log_store.manifest import holds, read_manifest
from pipeline.formats.days import day_name
from tests.tiny_logs import KIND, PRIVATE, files_of, land_day, tiny_day

DAYS = [day_name(19_700 + index) for index in range(3)]

# A writer in a process of its own: lands days of 3,000 rows whose click is `mark`, and kills itself
# where it is told to. Arguments: folder, mark, place.
WRITER = """
import os, signal, sys
import numpy as np
from pathlib import Path
from pipeline.data.log_store import store
from pipeline.data.log_store import landing
from pipeline.data.log_store import day_writer
from tests.tiny_logs import KIND, PRIVATE, land_day, land_days, tiny_day

folder, mark, place = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
die = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
table = tiny_day(3000, click=[mark] * 3000)

def days():
    for day in ("2024-01-01", "2024-01-02"):
        if place == "between days" and day == "2024-01-02":
            die()
        yield day, table

if place == "writing a file":
    day_writer.pq.ParquetWriter.close = die  # what is there has no footer
if place == "writing the manifest":
    landing.write_manifest = die
if place == "before the files":
    store.publish = die
if place == "before the manifest":
    store._settle = die
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
    land_days(folder, PRIVATE, fill)
elif sys.argv[4] == "log":
    import dataclasses
    kind = dataclasses.replace(KIND, origin={"seed": mark})
    landing.land_log(folder, kind, days)
else:
    land_day(folder, PRIVATE, "2024-01-01", table)
"""


def writer(folder: Path, mark: int, place: str, what: str) -> subprocess.Popen:
    command = [sys.executable, "-c", WRITER, str(folder), str(mark), place, what]
    return subprocess.Popen(command, cwd=Path(__file__).parents[2])


def marks(folder: Path, day: str = "2024-01-01") -> set[int]:
    return set(read_day(folder, day)["click"].to_pylist())


@pytest.mark.slow
@pytest.mark.parametrize("place", ["between days", "writing a file", "writing the manifest"])
def test_a_killed_landing_leaves_the_previous_log_and_the_next_one_clears_up(tmp_path, place):
    """SIGKILL."""
    kind = replace(KIND, origin={"seed": 0})
    old = {day: tiny_day(3000, click=[0] * 3000) for day in ("2024-01-01", "2024-01-02")}
    land_log(tmp_path / "data", kind, old.items)
    before = files_of(tmp_path / "data")
    assert writer(tmp_path / "data", 1, place, "log").wait() == -signal.SIGKILL
    assert files_of(tmp_path / "data") == before
    assert writer(tmp_path / "data", 1, "nowhere", "log").wait() == 0
    assert marks(tmp_path / "data") == {1}
    assert sorted(os.listdir(tmp_path)) == [".data.tmp-lock", "data"]


@pytest.mark.slow
def test_a_landing_killed_between_two_renames_is_put_back_by_the_next(tmp_path):
    kind = replace(KIND, origin={"seed": 0})
    old = {day: tiny_day(3000, click=[0] * 3000) for day in ("2024-01-01", "2024-01-02")}
    manifest, _ = land_log(tmp_path / "data", kind, old.items)
    assert writer(tmp_path / "data", 1, "between two renames", "log").wait() == -signal.SIGKILL
    assert not (tmp_path / "data").exists()
    assert land_log(tmp_path / "data", kind, old.items) == (manifest, False)
    assert sorted(os.listdir(tmp_path)) == [".data.tmp-lock", "data"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "mark"),
    [("writing a file", 0), ("before the files", 0), ("before the manifest", 1)],
)
def test_a_killed_day_is_the_previous_day_or_the_whole_new_one(tmp_path, place, mark):
    """Also where the writer died between the file and the manifest; other days are whole."""
    folder = tmp_path / "data"
    for day in ("2024-01-01", "2024-01-02"):
        land_day(folder, PRIVATE, day, tiny_day(3000, click=[0] * 3000))
    assert writer(folder, 1, place, "day").wait() == -signal.SIGKILL
    manifest = read_manifest(folder / "manifest.json")
    assert holds(folder, manifest)
    assert (marks(folder), marks(folder, "2024-01-02")) == ({mark}, {0})
    land_day(folder, PRIVATE, "2024-01-01", tiny_day(3000, click=[1] * 3000))
    assert marks(folder) == {1}
    assert sorted(os.listdir(tmp_path)) == [".data.tmp-lock", "data"]
    assert sorted(os.listdir(folder)) == ["day=2024-01-01", "day=2024-01-02", "manifest.json"]


@pytest.mark.slow
def test_a_log_whose_first_landing_was_killed_can_be_landed(tmp_path):
    """Nothing of it is taken for a log."""
    assert writer(tmp_path / "data", 1, "before the files", "day").wait() == -signal.SIGKILL
    assert list(read_manifest(tmp_path / "data" / "manifest.json").days) == []
    assert list(land_day(tmp_path / "data", PRIVATE, DAYS[0], tiny_day()).days) == [DAYS[0]]


FULL = """
import resource, signal, sys
from pathlib import Path
from tests.tiny_logs import PRIVATE, land_day, tiny_day

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
    """The limit on a file's size stands for a full disk."""
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


@pytest.mark.slow
@pytest.mark.parametrize("what", ["log", "day", "days"])
def test_two_writers_at_once_end_in_one_whole_log(tmp_path, what):
    writers = [writer(tmp_path / "data", mark, "nowhere", what) for mark in (0, 1)]
    assert [process.wait() for process in writers] == [0, 0]
    assert holds(tmp_path / "data", read_manifest(tmp_path / "data" / "manifest.json"))
    assert marks(tmp_path / "data") in ({0}, {1})
    assert sorted(os.listdir(tmp_path)) == [".data.tmp-lock", "data"]


def test_a_second_writer_says_that_it_waits(tmp_path, caplog):
    with ThreadPoolExecutor(1) as pool, store.landing_lock(tmp_path / "data"):
        second = pool.submit(land_day, tmp_path / "data", PRIVATE, DAYS[0], tiny_day())
        while "waiting" not in caplog.text:
            assert not second.done()
        assert not (tmp_path / "data").exists()
    assert list(second.result().days) == [DAYS[0]]
