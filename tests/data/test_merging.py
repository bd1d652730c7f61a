"""Files however they are cut: a landed day is never replaced by less, and no event is doubled."""

import pickle
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo

import cloudpickle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.errors import DataError
from pipeline.core.files import read_json, write_json
from pipeline.data.ingest.file_reader import land_files
from pipeline.data.ingest.sources import land_sources
from pipeline.data.log_store.day_rows import read_day
from pipeline.data.log_store.landing import LandingOptions
from pipeline.data.log_store.manifest import read_manifest
from tests.data.logs import HEADER, bytes_in, mapping, refused, written
from tests.tiny_logs import files_of, tiny_day, write_clicks, write_log

BY_EVENT = LandingOptions("mine", "item", "click")
BY_FILE = LandingOptions("mine", None, "click")


def rows(*items: str, clicks: int = 0, day: int = 0) -> str:
    """Lines of a day, one for each item."""
    return "".join(f"{86400 * day + i},{item},1,{clicks}\n" for i, item in enumerate(items))


def test_late_events_in_the_file_of_the_next_day_are_added_to_their_day(tmp_path):
    """Three rows of yesterday in today's file; landing either file again changes nothing."""
    write_clicks(tmp_path)
    paths = [tmp_path / f"2024-04-0{day}.csv" for day in (1, 2)]
    said = [land_sources(str(tmp_path / "clicks.yaml"), tmp_path / "data", [p]) for p in paths]
    assert "2024-04-01 has a new version: 1,500 -> 1,503 rows" in said[1]
    before = files_of(tmp_path / "data")
    for path in paths:
        land_sources(str(tmp_path / "clicks.yaml"), tmp_path / "data", [path])
    assert files_of(tmp_path / "data") == before


def test_a_file_that_comes_again_takes_the_place_of_what_it_brought_before(tmp_path):
    """In its place among the rows; with more rows, or under another name with the same bytes."""
    first = written(tmp_path / "a.csv", HEADER + rows("a", "b"))
    second = written(tmp_path / "b.csv", HEADER + rows("c"))
    for path in (first, second):
        land_files(tmp_path / "data", mapping(), [path], options=BY_FILE)
    written(first, HEADER + rows("a", "x", "b"))
    land_files(tmp_path / "data", mapping(), [first], options=BY_FILE)
    assert read_day(tmp_path / "data", "1970-01-01")["item"].to_pylist() == ["a", "x", "b", "c"]
    renamed = second.rename(tmp_path / "moved.csv")
    manifest = land_files(tmp_path / "data", mapping(), [renamed], options=BY_FILE).manifest
    day = manifest.days["1970-01-01"]
    assert [(source.file, source.rows) for source in day.sources] == [
        ("a.csv", 3),
        ("moved.csv", 1),
    ]


def test_a_file_that_comes_again_with_fewer_rows_of_a_day_is_refused(tmp_path):
    path = written(tmp_path / "a.csv", HEADER + rows(*"abcdefghijklmnopqrst"))
    land_files(tmp_path / "data", mapping(), [path], options=BY_FILE)
    before = files_of(tmp_path / "data")
    written(path, HEADER + rows(*"abcdefghijklmnopqrs"))
    with pytest.raises(DataError, match=r"has 20 rows of a\.csv and would have 19"):
        land_files(tmp_path / "data", mapping(), [path], options=BY_FILE)
    assert files_of(tmp_path / "data") == before


def test_a_day_sent_again_under_another_name_is_refused_where_no_event_id_tells(tmp_path):
    noon = written(tmp_path / "noon.csv", HEADER + rows(*"abcd"))
    midnight = written(tmp_path / "midnight.csv", HEADER + rows(*"abcdefgh"))
    land_files(tmp_path / "data", mapping(), [noon], options=BY_FILE)
    with pytest.raises(DataError, match=r"4 of the 8 that midnight\.csv brings"):
        land_files(tmp_path / "data", mapping(), [midnight], options=BY_FILE)
    land_files(tmp_path / "data", mapping(), [midnight], options=BY_EVENT)
    assert read_day(tmp_path / "data", "1970-01-01")["item"].to_pylist() == list("abcdefgh")


def test_an_event_that_comes_again_is_the_newer_one_and_stays_in_its_place(tmp_path):
    """Late labels; a row without an id is what its file says it is."""
    first = written(tmp_path / "a.csv", HEADER + rows("a", "b", "", "c"))
    land_files(tmp_path / "data", mapping(), [first], options=BY_EVENT)
    late = written(tmp_path / "b.csv", HEADER + rows("b", "", "d", clicks=1))
    land_files(tmp_path / "data", mapping(), [late], options=BY_EVENT)
    land_files(tmp_path / "data", mapping(), [late], options=BY_EVENT)
    table = read_day(tmp_path / "data", "1970-01-01")
    assert table["item"].to_pylist() == ["a", "b", None, "c", None, "d"]
    assert table["click"].to_pylist() == [0, 1, 0, 0, 1, 1]


def test_files_of_a_call_are_as_if_they_had_landed_one_after_the_other(tmp_path):
    """A late label counts; of one file the first row of an event does."""
    first = written(tmp_path / "a.csv", HEADER + rows("a", "b", "", "c") + rows("a", clicks=1))
    late = written(tmp_path / "b.csv", HEADER + rows("b", "", "d", clicks=1))
    for calls in ([[first, late]], [[first], [late]]):
        folder = tmp_path / str(len(calls))
        for files in calls:
            manifest = land_files(folder, mapping(), files, options=BY_EVENT).manifest
        table = read_day(folder, "1970-01-01")
        assert table["item"].to_pylist() == ["a", "b", None, "c", None, "d"]
        assert table["click"].to_pylist() == [0, 1, 0, 0, 1, 1]
        assert sum(source.rows for source in manifest.days["1970-01-01"].sources) == 6


@pytest.mark.parametrize("place", ["dt=1970-01-01/h={}", "1970-01-01/0{}", "1970/01/01/{}"])
def test_files_of_the_same_name_in_folders_of_a_key_a_day_or_an_hour_are_told_apart(
    tmp_path, place
):
    for number, letter in enumerate("ab"):
        folder = tmp_path / place.format(number)
        folder.mkdir(parents=True)
        path = written(folder / "part-0.csv", HEADER + rows(letter))
        manifest = land_files(tmp_path / "data", mapping(), [path], options=BY_FILE).manifest
    assert manifest.days["1970-01-01"].rows == 2


def test_of_files_of_one_name_only_the_one_that_grew_takes_its_own_place(tmp_path):
    """Where several of a name are left, none is taken for another."""
    paths = []
    for letter in "xyz":
        (tmp_path / letter).mkdir()
        lines = rows(*(letter + other for other in "abcdefgh"))
        paths.append(written(tmp_path / letter / "part.csv", HEADER + lines))
    land_files(tmp_path / "data", mapping(), paths, options=BY_FILE)
    written(paths[1], HEADER + rows(*("y" + other for other in "abcdefghi")))
    with pytest.raises(DataError, match="name all files of the day in one call"):
        land_files(tmp_path / "data", mapping(), [paths[1]], options=BY_FILE)
    manifest = land_files(tmp_path / "data", mapping(), paths, options=BY_FILE).manifest
    assert manifest.days["1970-01-01"].rows == 25
    assert len(set(read_day(tmp_path / "data", "1970-01-01")["item"].to_pylist())) == 25


def test_a_day_that_another_tool_has_written_is_merged_and_every_row_has_its_file(tmp_path):
    """Whose rows are of no known file; again and again."""
    ids = [f"x{number}" for number in range(8)]
    table = tiny_day(8, item=ids).select(["item", "price", "click"])
    write_log(tmp_path / "data", {"1970-01-01": table})
    rules = mapping(format="tiny", columns={"item": "text", "price": "float64", "click": "int8"})
    kind = rules.log_kind().manifest({})
    manifest = read_json(tmp_path / "data" / "manifest.json") | {"columns": dict(kind.columns)}
    write_json(tmp_path / "data" / "manifest.json", manifest)
    for place, items in {"a": ["x1", "y"], "b": ["y", "z"]}.items():
        (tmp_path / place).mkdir()
        path = written(tmp_path / place / "same.csv", HEADER + rows(*items))
        options = LandingOptions("tiny", "item", "click")
        landed = land_files(tmp_path / "data", rules, [path], options=options).manifest
        day = landed.days["1970-01-01"]
        assert sum(source.rows for source in day.sources) == day.rows
    assert read_day(tmp_path / "data", "1970-01-01")["item"].to_pylist() == [*ids, "y", "z"]


def test_rows_without_an_id_are_those_of_their_file_however_its_rows_lie_among_others(tmp_path):
    """An event that two files have takes the place of the first and the row of the last."""
    columns = {"id": {"source": "item", "type": "text"}, "click": "int8"}
    rules, paths = mapping(columns=columns), [tmp_path / f"{name}.csv" for name in "ab"]
    for click in (0, 1):
        for path, ids in zip(paths, ([None, "x", None, None], ["x", None]), strict=True):
            written(path, HEADER + "".join(f"10,{event or ''},1,{click}\n" for event in ids))
        options = LandingOptions("mine", "id")
        land_files(tmp_path / "data", rules, paths, options=options)
        table = read_day(tmp_path / "data", "1970-01-01")
        assert table["id"].to_pylist() == [None, "x", None, None, None]
        assert table["click"].to_pylist() == [click] * 5


EVENTS = 72
START = datetime(2024, 3, 28, 5, tzinfo=UTC)  # clocks of Berlin change on the 31st
CUTS = ("arrival", "UTC", "Europe/Berlin", "America/New_York", "at random")


@st.composite
def arrangements(draw):
    """Events of six days in files, and calls that each land some of them."""
    cut, zone = draw(st.sampled_from(CUTS)), draw(st.sampled_from(CUTS[1:4]))
    stamps = [START + timedelta(hours=2 * event) for event in range(EVENTS)]
    files: dict[str, list[tuple[int, datetime]]] = {}
    for event, stamp in enumerate(stamps):
        if cut == "at random":
            name = str(draw(st.integers(0, 5)))
        elif cut == "arrival":
            name = (stamp + timedelta(hours=draw(st.integers(0, 30)))).strftime("%m-%d")
        else:
            name = stamp.astimezone(ZoneInfo(cut)).strftime("%m-%d")
        files.setdefault(name, []).append((event, stamp))
    names = draw(st.permutations(sorted(files)))
    calls: list[list[tuple[str, bool]]] = []
    for name in names:
        partial = draw(st.booleans())
        calls += [[(name, True)]] * partial
        if calls and draw(st.booleans()) and name not in {n for n, _ in calls[-1]}:
            calls[-1] = [*calls[-1], (name, False)]
        else:
            calls.append([(name, False)])
    again = draw(st.lists(st.sampled_from(names), max_size=3))
    return zone, files, [*calls, *([(name, False)] for name in again)]


def elsewhere(work, items, *_):
    """Each item with what is made of it by a function that travelled, the last one first; twice, as
    where a worker dies with the work done and another one begins it again.
    """
    there = cloudpickle.loads(cloudpickle.dumps(work))
    found = [pickle.loads(pickle.dumps((there(item), there(item))))[1] for item in reversed(items)]
    return zip(items, reversed(found), strict=True)


@pytest.mark.parametrize("options", [BY_FILE, BY_EVENT], ids=["by file", "by event"])
@settings(max_examples=5, deadline=None)
@given(arrangement=arrangements())
def test_no_arrangement_of_the_files_of_a_log_loses_or_doubles_an_event(options, arrangement):
    """Cut by arrival, by days of any zone or at random; shuffled, sent again, partial at first."""
    zone, files, calls = arrangement
    rules = mapping(time_zone=zone, time={"column": "ts", "format": "iso8601"})
    with TemporaryDirectory() as place:
        folder = Path(place)
        for call in calls:
            for name, partial in call:
                events = files[name][: len(files[name]) // 2] if partial else files[name]
                lines = (f"{stamp.isoformat()},e{event},1,0\n" for event, stamp in events)
                written(folder / f"{name}.csv", HEADER + "".join(lines))
            sources = [folder / f"{name}.csv" for name, _ in call]
            land_files(folder / "data", rules, sources, options=options)
            land_files(folder / "other", rules, sources, options=options, over=elsewhere)
        assert bytes_in(folder / "data") == bytes_in(folder / "other")
        days = read_manifest(folder / "data" / "manifest.json").days
        found = {day: read_day(folder / "data", day)["item"].to_pylist() for day in days}
    expected: dict[str, list[str]] = {}
    for event, stamp in (item for events in files.values() for item in events):
        day = stamp.astimezone(ZoneInfo(zone)).date().isoformat()
        expected.setdefault(day, []).append(f"e{event}")
    assert {day: sorted(items) for day, items in found.items()} == {
        day: sorted(items) for day, items in expected.items()
    }


def test_files_that_are_read_elsewhere_make_the_same_bytes_with_all_that_is_left_out(
    tmp_path, monkeypatch
):
    """Rows without a day, dropped and rejected ones, empty files, folders that tell files apart, a
    day that has rows of none, names that are relative.
    """
    monkeypatch.chdir(tmp_path)
    rules = mapping(
        time={"column": "ts", "format": "iso8601"}, keep={"item": ("a", "b")}, drop_null=("ts",),
        max_rejected=2,
    )  # fmt: skip
    early, late = "2024-03-01T01:00:00Z", "2024-03-03T01:00:00Z"
    lines = [
        f"{early},a,1,0\n,b,1,1\n{late},c,3,0\n", "",
        f"{early},b,2,1\nx,a,1,0\n{late},c,3,1\n", f"{early},a,1,0\n",
    ]  # fmt: skip
    sources = [Path(f"hour={n}/log.csv") for n in range(len(lines))]
    for source, text in zip(sources, lines, strict=True):
        source.parent.mkdir()
        source.write_text(HEADER + text)
    here = land_files(Path("data"), rules, sources)
    there = land_files(Path("other"), rules, sources, over=elsewhere)
    assert bytes_in(Path("data")) == bytes_in(Path("other"))
    assert (here.days, here.changes) == (there.days, there.changes)
    assert sum(sum(entry.dropped.values()) for entry in here.days.values()) == 4


@pytest.mark.parametrize(
    "lines", [["0,a,1,0\n", "0,a,1,0\n"], ["0,a,1,0\n", "x,b,1,0\n"], ["0,a,1,0\n", "1,b,1\n"]]
)
def test_what_is_read_elsewhere_is_refused_as_here(lines, tmp_path):
    sources = [written(tmp_path / f"{n}.csv", HEADER + text) for n, text in enumerate(lines)]
    said = refused(tmp_path, mapping(), *sources)
    with pytest.raises(DataError, match=f"{re.escape(said)}$"):
        land_files(tmp_path / "other", mapping(), sources, over=elsewhere)
    assert not (tmp_path / "other").exists()
