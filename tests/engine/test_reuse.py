"""What was made of days is kept: used where all is the same, never believed where it is not."""

import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.errors import AdaCalibError
from pipeline.engine.reuse import Made, Reuse, common_folder, trim
from tests.tiny_logs import files_of

FINITE = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
DEPENDS_ON = st.dictionaries(st.sampled_from("abc"), st.integers(0, 1), max_size=3)


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A repository with one commit."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "--quiet")
    name = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
    git(folder, *name, "commit", "--quiet", "--allow-empty", "--message", "first")
    return folder


def never() -> Made:
    raise AssertionError("it was made again")


def kept(checkout: Path) -> list[Path]:
    """The files that are kept of days."""
    return sorted(path for path in (checkout / ".git/adacalib").rglob("*") if path.is_file())


@given(facts=st.dictionaries(st.text(), JSON), payload=st.binary())
def test_what_is_read_is_what_was_made(tmp_path_factory, facts, payload):
    folder = tmp_path_factory.mktemp("checkout")
    git(folder, "init", "--quiet")
    made = Reuse(folder / "out", "scores", {}).made({}, lambda: Made(facts, payload))
    assert made == Reuse(folder / "out", "scores", {}).made({}, never)
    assert (made.facts, made.payload) == (facts, payload)


def test_numbers_that_are_none_are_read_as_they_are_made(checkout):
    """Neither JSON nor what is made anew knows NaN."""
    reuse, facts = Reuse(checkout / "out", "scores", {}), {"rate": float("nan"), "pair": (1, 2)}
    made = reuse.made({}, lambda: Made(facts))
    assert made.facts == reuse.made({}, never).facts == {"rate": None, "pair": [1, 2]}


def test_columns_come_back_with_their_types(checkout):
    columns = pa.table({"id": pa.array([1, 2], "u8"), "name": pa.array(["a", None])})
    reuse = Reuse(checkout / "out", "scores", {})
    made = reuse.made({}, lambda: Made.of_columns({"n": 2}, columns))
    assert made.columns.equals(reuse.made({}, never).columns)
    assert made.columns.equals(columns)


@given(DEPENDS_ON, DEPENDS_ON, DEPENDS_ON, DEPENDS_ON)
def test_it_is_made_again_where_anything_that_it_depends_on_differs(
    tmp_path_factory, same, day, other_same, other_day
):
    folder = tmp_path_factory.mktemp("checkout")
    git(folder, "init", "--quiet")
    Reuse(folder / "out", "scores", same).made(day, lambda: Made({}, b"first"))
    second = Reuse(folder / "out", "scores", other_same).made(other_day, lambda: Made({}, b"new"))
    unchanged = (same, day) == (other_same, other_day)
    assert second.payload == (b"first" if unchanged else b"new")
    other_work = Reuse(folder / "out", "tables", same).made(day, lambda: Made({}, b"other"))
    assert other_work.payload == b"other"


@given(st.data())
def test_an_entry_whose_bytes_are_not_those_that_were_written_is_made_again(tmp_path_factory, data):
    """Flipped, cut short, longer, empty, or of another key."""
    folder = tmp_path_factory.mktemp("checkout")
    git(folder, "init", "--quiet")
    reuse, made = Reuse(folder / "out", "scores", {}), Made({"rows": 3}, b"payload\n\x00")
    reuse.made({}, lambda: made)
    (path,) = kept(folder)
    content = path.read_bytes()
    place = data.draw(st.integers(0, len(content) - 1))
    flipped = content[:place] + bytes([content[place] ^ data.draw(st.integers(1, 255))])
    damaged = [flipped + content[place + 1 :], content[:place], content + b"x", b""]
    path.write_bytes(data.draw(st.sampled_from(damaged)))
    again = []
    assert reuse.made({}, lambda: again.append(1) or made) == made
    assert again == [1]
    assert path.read_bytes() == content
    assert reuse.made({}, never) == made


def test_worktrees_of_a_repository_share_what_is_kept_and_two_repositories_do_not(
    checkout, tmp_path
):
    git(checkout, "worktree", "add", "--quiet", "--detach", str(tmp_path / "other"))
    Reuse(checkout / "artifacts/scores", "scores", {}).made({}, lambda: Made({}, b"one"))
    for near in (tmp_path / "other/artifacts/scores", tmp_path / "other/reports/tables.json"):
        assert Reuse(near, "scores", {}).made({}, never).payload == b"one"
        assert common_folder(near) == common_folder(checkout / "artifacts")
    (tmp_path / "third").mkdir()
    git(tmp_path / "third", "init", "--quiet")
    third = Reuse(tmp_path / "third/artifacts/scores", "scores", {})
    assert third.made({}, lambda: Made({}, b"two")).payload == b"two"


def test_without_a_repository_nothing_is_written_anywhere(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    reuse = Reuse(tmp_path / "artifacts/scores", "scores", {})
    for payload in (b"one", b"two"):
        assert reuse.made({}, lambda payload=payload: Made({}, payload)).payload == payload
    assert files_of(tmp_path) == {}
    assert list(tmp_path.iterdir()) == []
    assert common_folder(tmp_path / "artifacts/scores") is None


@pytest.mark.parametrize("obstacle", ["a file in its place", "no right to write"])
def test_where_nothing_can_be_kept_the_work_is_done_all_the_same(checkout, obstacle):
    place = checkout / ".git/adacalib"
    if obstacle == "a file in its place":
        place.write_bytes(b"mine")
    else:
        place.mkdir()
        place.chmod(0o500)
    reuse = Reuse(checkout / "out", "scores", {})
    for payload in (b"one", b"two") if obstacle == "a file in its place" else (b"one",):
        assert reuse.made({}, lambda payload=payload: Made({}, payload)).payload == payload
    place.chmod(0o700)


def test_no_more_is_kept_than_the_limit_and_what_was_used_last_stays(checkout, monkeypatch):
    """Used, not made: reading counts."""
    reuse, size = Reuse(checkout / "out", "scores", {}), 1000
    for number in range(5):
        reuse.made({"n": number}, lambda: Made({}, os.urandom(size)))
        (newest,) = [path for path in kept(checkout) if path.stat().st_mtime_ns > 10**15]
        os.utime(newest, ns=(number, number))
    reuse.made({"n": 0}, never)  # least recently made, most recently used
    folder = checkout / ".git/adacalib/days"
    entry = kept(checkout)[0].stat().st_size
    assert trim(folder, 10 * entry) == 0
    assert len(kept(checkout)) == 5
    assert trim(folder, 3 * entry) == 2 * entry
    for number in (0, 3, 4):
        reuse.made({"n": number}, never)
    made = [reuse.made({"n": number}, lambda: Made({}, b"again")).payload for number in (1, 2)]
    assert made == [b"again"] * 2
    monkeypatch.setenv("ADACALIB_REUSE_GB", str(2.5 * entry / 1e9))
    reuse = Reuse(checkout / "out", "scores", {})
    reuse.made({"n": 9}, lambda: Made({}, os.urandom(size)))
    assert sum(path.stat().st_size for path in kept(checkout)) <= 2.5 * entry
    reuse.made({"n": 9}, never)


@given(st.lists(st.integers(0, 50), max_size=8), st.integers(0, 300))
def test_trimming_leaves_the_longest_run_of_newest_files_that_fits(tmp_path_factory, sizes, limit):
    folder = tmp_path_factory.mktemp("days")
    for age, size in enumerate(sizes):
        path = folder / f"{age % 3}" / f"{age}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * size)
        os.utime(path, ns=(10**9 * (99 - age), 10**9 * (99 - age)))
    removed = trim(folder, limit)
    left = {int(path.name) for path in folder.rglob("*") if path.is_file()}
    fits = [n for n in range(len(sizes) + 1) if sum(sizes[:n]) <= limit]
    assert set(range(max(fits))) <= left
    assert sum(sizes[age] for age in left) <= limit
    assert removed == sum(sizes) - sum(sizes[age] for age in left)


@pytest.mark.parametrize("said", ["20 GB", "inf"])
def test_a_limit_that_is_no_number_is_refused_by_name(checkout, monkeypatch, said):
    monkeypatch.setenv("ADACALIB_REUSE_GB", said)
    with pytest.raises(AdaCalibError, match=rf"ADACALIB_REUSE_GB must be a number .* '{said}'"):
        Reuse(checkout / "out", "scores", {}).made({}, lambda: Made({}))


def test_days_that_are_made_and_trimmed_at_once_disturb_one_another_in_nothing(
    checkout, monkeypatch
):
    """What one thread writes another may remove while a third looks at it."""
    monkeypatch.setenv("ADACALIB_REUSE_GB", "0.00001")
    reuse, start = Reuse(checkout / "out", "scores", {}), threading.Barrier(8)

    def work(thread: int) -> bool:
        start.wait(300)
        days = [{"n": (7 * thread + n) % 400} for n in range(60)]
        return all(
            reuse.made(day, lambda day=day: Made({}, b"%d" % day["n"])).payload == b"%d" % day["n"]
            for day in days
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    reuse.made({"n": -1}, lambda: Made({}))
    assert sum(path.stat().st_size for path in kept(checkout)) <= 10_000
