"""Events that come twice: found by their ids, within a day, however their rows came."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.errors import DataError
from pipeline.data.ingest.ali_ccp import OF_DAY, OF_PART, shares
from pipeline.data.ingest.file_reader import land_files
from pipeline.data.log_store.day_rows import read_day
from pipeline.data.log_store.day_writer import DayWriter
from pipeline.data.log_store.landing import LandingOptions
from tests.data.logs import HEADER, mapping, refused, written
from tests.tiny_logs import PRIVATE, land_day, land_days, tiny_day

PINNED = {OF_PART: 0xC5CC2910, OF_DAY: 0x41546D44}
ANY = st.characters(exclude_categories=["Cs"])
OPTIONS = LandingOptions("tiny", "item", "click")


@pytest.mark.parametrize("key", PINNED)
def test_equal_texts_are_in_one_share_and_others_in_others(key):
    texts = ["", "a", "b", "a\0", "ä", "a\u0308", "1", "01", "x" * 256, "x" * 257, "x" * 258]
    found = shares(pa.array(texts), key, 2**31)
    assert len(np.unique(found)) == len(texts)
    again = shares(pa.array(["padding", *texts, None]).slice(1, len(texts)), key, 2**31)
    assert np.array_equal(again, found)


@pytest.mark.parametrize("key", PINNED)
def test_shares_are_the_same_on_every_machine_and_of_equal_size(key):
    assert shares(pa.array(["AdaCalib"]), key, 2**31) == [PINNED[key] >> 1]
    ids = pa.array([str(1582218195625938945 + 7 * i) for i in range(20_000)])
    assert np.bincount(shares(ids, key, 10)) == pytest.approx(2000, rel=0.1)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from(["a", "b", "", "0", None]) | st.text(ANY, max_size=3)),
    st.integers(1, 9),
)
def test_an_id_came_before_exactly_where_a_loop_has_seen_it(tmp_path_factory, ids, at_once):
    expected, seen = [], set()
    for event in ids:
        expected.append(event is not None and event in seen)
        seen.add(event)
    table = tiny_day(len(ids), item=ids, shown=[*range(len(ids))], click=[0] * len(ids))

    def fill(stage: DayWriter) -> None:
        for start in range(0, len(ids), at_once):
            part = table.slice(start, at_once)
            stage.add(part, np.zeros(len(part), np.int32))

    folder = tmp_path_factory.mktemp("log") / "data"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.data.log_store.day_writer.BUDGET", 40 * at_once)
        land_days(folder, PRIVATE, fill, OPTIONS)
    if ids:
        stays = [row for row, again in enumerate(expected) if not again]
        assert read_day(folder, "1970-01-01")["shown"].to_pylist() == stays


def test_an_event_counts_once_a_day_and_what_was_dropped_is_counted(tmp_path):
    """Across blocks; a row without an id is an event of its own; days do not mix."""
    first = tiny_day(4, item=["a", "b", None, "a"], click=[0, 1, 0, 1])
    second = tiny_day(4, item=["b", "c", None, "a"], click=[0, 1, 0, 1])

    def fill(stage: DayWriter) -> None:
        stage.add(first, np.zeros(4, np.int32))
        stage.add(second, np.array([0, 0, 0, 1], np.int32))

    landed = land_days(tmp_path / "data", PRIVATE, fill, OPTIONS)
    manifest, came = landed.manifest, landed.days
    day = read_day(tmp_path / "data", "1970-01-01")
    assert day["item"].to_pylist() == ["a", "b", None, "c", None]
    assert day["click"].to_pylist() == [0, 1, 0, 1, 0]
    assert manifest.days["1970-01-01"].dropped == {"item came before": 2}
    assert came["1970-01-02"].rows == 1


def test_a_day_without_duplicates_has_the_bytes_of_one_that_never_had_any(tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.data.log_store.manifest.CONTENT_BLOCK", 64)
    items = [str(i % 150) for i in range(500)]
    whole = tiny_day(500, item=items)

    def fill(stage: DayWriter) -> None:
        for start in range(0, 500, 70):
            part = whole.slice(start, 70)
            stage.add(part, np.zeros(len(part), np.int32))

    manifest = land_days(tmp_path / "twice", PRIVATE, fill, OPTIONS).manifest
    once = land_day(tmp_path / "once", PRIVATE, "1970-01-01", whole.slice(0, 150))
    assert manifest.days["1970-01-01"].content_sha256 == once.days["1970-01-01"].content_sha256
    assert manifest.days["1970-01-01"].files == once.days["1970-01-01"].files


def test_an_event_id_that_is_no_column_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"log\.event_id is id, which is no column of the log"):
        land_days(tmp_path / "data", PRIVATE, lambda _: None, LandingOptions("tiny", "id"))


def test_the_same_file_twice_is_refused_unless_an_event_id_tells_its_rows_apart(tmp_path):
    """Also under another name; files with a header alone may be equal."""
    first = written(tmp_path / "a.csv", HEADER + "0,x,1,0\n1,y,1,1\n")
    again = written(tmp_path / "b.csv", first.read_bytes())
    empty = [written(tmp_path / name, HEADER) for name in ("c.csv", "d.csv")]
    sentence = refused(tmp_path, mapping(), first, *empty, again)
    assert sentence.startswith(
        f"b.csv holds the same bytes as {first}: every row would count twice"
    )
    assert "holds the same bytes" in refused(tmp_path, mapping(), first, first)
    options = LandingOptions("mine", "item", "click")
    came = land_files(tmp_path / "data", mapping(), [first, again, *empty], options=options).days
    assert (came["1970-01-01"].rows, came["1970-01-01"].dropped) == (2, {"item came before": 2})


def test_a_day_sent_again_with_more_rows_counts_every_event_once(tmp_path):
    """The file of noon and that of midnight, which holds its rows again."""
    noon = written(tmp_path / "noon.csv", HEADER + "0,x,1,0\n1,y,1,1\n2,,1,0\n")
    midnight = written(tmp_path / "midnight.csv", noon.read_text() + "3,z,1,0\n")
    options = LandingOptions("mine", "item", "click")
    land_files(tmp_path / "data", mapping(), [noon, midnight], options=options)
    assert read_day(tmp_path / "data", "1970-01-01")["item"].to_pylist() == [
        "x",
        "y",
        None,
        None,
        "z",
    ]
    options = replace(options, allow_shrink=True)
    land_files(tmp_path / "data", mapping(), [midnight], options=options)
    assert read_day(tmp_path / "data", "1970-01-01")["item"].to_pylist() == ["x", "y", None, "z"]
