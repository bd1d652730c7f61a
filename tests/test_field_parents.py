"""Campaigns of advertisers of verticals, from the log to the answer of every level."""

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from time import sleep

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.__main__ import run_stage
from pipeline.core.errors import DataError
from pipeline.core.files import file_sums, read_json, sha256_of
from pipeline.encoding.parents import Apart, count_field, nearest_parents, several_pairs, tree_of
from pipeline.encoding.vocabulary import Vocabulary
from pipeline.engine import day_map
from pipeline.formats.champion import MODEL, TABLES, Pin, write_pin
from pipeline.formats.maps import read_maps
from pipeline.formats.tables import FieldTree
from pipeline.serving.predictor import load
from pipeline.serving.requests import inputs_of
from pipeline.serving.shadow import Shadow
from pipeline.serving.state import ServiceState
from tests.tiny_logs import files_of
from tests.whole_walk import DAYS, PATHS, asked, project, scored, walk

CAMPAIGNS = 24  # c0 … c23 of advertisers a0 … a5 of verticals v0 and v1
ROWS = 1500
MOVED, SHARED, BORN = "c4", "c7", "born"


def day_of(index, day):
    """Rows of a day; a campaign changes its advertiser, one has two, one is born at the end."""
    rng = np.random.default_rng(index)
    number = np.minimum(rng.integers(0, 44, ROWS) // 2, rng.integers(0, CAMPAIGNS, ROWS))
    advertiser = number % 6
    advertiser[(number == 4) & (index >= 5)] = 0
    shared = np.flatnonzero(number == 7)
    advertiser[shared[: len(shared) // 2]] = 2
    score = rng.normal(-1.5, 1.0, ROWS)
    truth = score + np.linspace(-1.5, 1.5, 6)[advertiser] + 0.3 * np.sin(number)
    names = np.array([f"c{n}" for n in range(CAMPAIGNS)], object)[number]
    if index % 2:
        names[:60] = None
    if index == len(DAYS) - 1:
        names[100:160] = BORN
    verticals = np.array(["v0", "v0", "v0", "v1", "v1", None], object)[advertiser]
    return pa.table(
        {
            "item": pa.array(names),
            "advertiser": [f"a{n}" for n in advertiser],
            "vertical": pa.array(verticals),
            "score": score,
            "price": rng.lognormal(0, 1, ROWS),
            "shown": np.ones(ROWS, np.int64),
            "click": (rng.random(ROWS) < 1 / (1 + np.exp(-truth))).astype(np.int8),
        }
    )


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """The log and all stages up to the verdict, of a logged score."""
    folder = tmp_path_factory.mktemp("parents") / "project"
    days = {day: day_of(index, day) for index, day in enumerate(DAYS)}
    parents = ["advertiser", "vertical"]
    more = {"log__value": "price", "score__max_field_values": 20, "calibrate__choose": "always"}
    project(folder, days, log__field_parents=parents, log__served_logit="score", **more)
    return walk(folder, "report")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of worker processes that end
def test_worker_processes_measure_what_threads_do(walked, tmp_path, monkeypatch):
    folder = Path(shutil.copytree(walked, tmp_path / "project"))
    sums, report = folder / "artifacts/evaluation", folder / "reports/evaluation.json"
    before = files_of(sums) | {"report": report.read_bytes()}
    shutil.rmtree(sums)
    report.unlink()
    monkeypatch.setenv(day_map.DASK, "local:2")
    try:
        paths = [folder / path for path in PATHS["evaluate"]]
        run_stage("evaluate", paths, folder / "params.yaml")
    finally:
        day_map.release()
    assert files_of(sums) | {"report": report.read_bytes()} == before


def rows_of(*rows):
    """Columns of rows (item, advertiser, vertical), at one score."""
    item, advertiser, vertical = (list(column) for column in zip(*rows, strict=True))
    return {
        "item": item,
        "advertiser": advertiser,
        "vertical": vertical,
        "score": [-1.5] * len(rows),
    }


SCHEMA = pa.schema(
    [*((n, pa.string()) for n in ("item", "advertiser", "vertical")), ("score", "f8")]
)
ASKED_FOR = (
    ("c1", "a1", "v0"),  # known
    ("c7", "a1", "v0"),  # of two advertisers: known by each pair
    ("c7", "a2", "v0"),
    ("c7", "a3", "v1"),
    ("new", "a1", "v0"),
    ("new", "newer", "v0"),
    ("new", "a1", "newest"),  # an advertiser of another vertical is another
    ("new", "a5", None),
    (None, "a3", "v1"),
    (None, None, None),
)
ASKED = rows_of(*ASKED_FOR)
LEVELS = [0, 0, 0, 1, 1, 2, 3, 3, 1, 0]


def test_each_level_answers_for_what_it_knows(walked):
    said = load(walked / "artifacts/model").predict(pa.table(ASKED))
    assert said.field_level.tolist() == LEVELS
    assert said.unseen.tolist() == [level > 0 for level in LEVELS[:-2]] + [False, False]
    names = read_json(walked / "artifacts/model/manifest.json")["base"]["field"]["values"]
    assert [names[each] for each in said.field_value_id[:8]] == [
        "c1", "\x1e\x1ec7\x1fa1\x1fv0", "\x1e\x1ec7\x1fa2\x1fv0", "\x1e\x1fa3\x1fv1",
        "\x1e\x1fa1\x1fv0", "\x1e\x1fv0", None, None,
    ]  # fmt: skip


def test_a_new_campaign_is_served_as_its_advertiser_is(walked):
    """a0 has far fewer responses than a4; both are far from what an unseen one gets."""
    rows = [("new", "a0", "v0"), ("new", "a4", "v1"), ("new", "x", "y")]
    low, high, unseen = (
        load(walked / "artifacts/model").predict(pa.table(rows_of(*rows))).probability
    )
    assert low < unseen - 0.05
    assert high > unseen + 0.05


def test_http_and_files_say_the_same(walked):
    answer, metrics = asked(walked, ASKED)
    assert answer.json()["field_level"] == LEVELS
    assert 'adacalib_field_level_rows_total{level="1"} 3.0' in metrics
    answers, _ = scored(walked, pa.table(ASKED))
    np.testing.assert_array_equal(answers["field_level"], LEVELS)
    np.testing.assert_allclose(answers["probability"], answer.json()["probability"], rtol=1e-12)


PARTS = st.sampled_from(
    ["c1", "c7", "a1", "a2", "v0", "v1", "new", "", "\x1f", "\x1e(null)", "c7\x1fa1", None]
)


@settings(max_examples=20, deadline=None)
@given(rows=st.lists(st.tuples(PARTS, PARTS, PARTS), min_size=1, max_size=20))
def test_every_way_to_ask_gives_the_same(walked, rows):
    """The file by predict, by HTTP and by adacalib score; the bare table from the same ids."""
    columns, model = rows_of(*rows), walked / "artifacts/model"
    said = load(model).predict(pa.table(columns, schema=SCHEMA))
    answer = asked(walked, columns)[0].json()
    scores, _ = scored(walked, pa.table(columns, schema=SCHEMA))
    for name in ("field_value_id", "field_level", "unseen", "calibrated_logit", "probability"):
        assert answer[name] == scores[name].tolist() == getattr(said, name).tolist()
    (table,) = read_maps(model / "calibration.parquet").values()
    expected = table(said.uncalibrated_logit, said.field_value_id)
    np.testing.assert_allclose(said.calibrated_logit, expected, atol=1e-9)


def test_a_shadow_names_known_values_alone(walked, tmp_path):
    """New ones are as many as may come, whether or not their parent's map answers."""
    model, columns = load(walked / "artifacts/model"), rows_of(*ASKED_FOR)
    body = json.dumps({"columns": columns}).encode()
    inputs = inputs_of(body, "application/json", model, 99)
    shadow = Shadow(model, model, ServiceState(tmp_path).seated(), 0.5)
    shadow.watch(body, "application/json", inputs, model.run(inputs))
    while (found := {gauge.name: gauge for gauge in shadow.collect()})[
        "adacalib_shadow_rows"
    ].samples[0].value < len(ASKED_FOR):
        sleep(0.01)
    values = found["adacalib_shadow_field_value_difference"].samples
    assert {v.labels["field_value"] for v in values} == {"c1", "c7", "(unseen or null)"}


def test_a_campaign_of_two_advertisers_is_served_by_each_as_it_is_there(walked):
    """Its truth is .6 logits apart between them."""
    rows = [("c7", "a1", "v0"), ("c7", "a2", "v0")]
    of_pair = load(walked / "artifacts/model").predict(pa.table(rows_of(*rows))).probability
    days = pa.concat_tables([day_of(index, day) for index, day in enumerate(DAYS)]).to_pandas()
    rate = days[days["item"] == SHARED].groupby("advertiser")["click"].mean()
    assert rate["a2"] > rate["a1"]
    assert of_pair[1] > of_pair[0]


def test_who_moved_and_who_had_two_is_told(walked):
    field = read_json(walked / "artifacts/scores/manifest.json")["field"]
    tree, names = FieldTree.of(field), field["values"]
    ((ids, parents),) = tree.moves.values()
    assert [names[i] for i in ids] == [MOVED]
    assert [names[p] for p in parents] == ["\x1e\x1fa0\x1fv0"]
    for advertiser in ("a1", "a2"):
        pair = names.index(f"\x1e\x1e{SHARED}\x1f{advertiser}\x1fv0")
        assert names[tree.parent[pair]] == f"\x1e\x1f{advertiser}\x1fv0"
    assert SHARED not in names
    found = read_json(walked / "reports/evaluation.json")["parents"]
    assert found == {"ids": 7, "moved": 1, "pairs": 2}


def test_money_at_stake_is_that_of_the_test_days(walked):
    days = [day_of(index, day) for index, day in enumerate(DAYS)][-2:]
    price, click, score = (
        np.concatenate([day[name] for day in days]) for name in ("price", "click", "score")
    )
    found = read_json(walked / "reports/evaluation.json")["worth"]
    base = found["methods"]["uncalibrated"]
    assert base["observed"] == pytest.approx((price * click).sum())
    assert base["expected"] == pytest.approx((price / (1 + np.exp(-score))).sum(), rel=1e-6)
    page = (walked / "artifacts/report/report.html").read_text()
    assert "Money at stake" in page
    listed = json.loads(re.search(r'id="sums">(.*?)</script>', page, flags=re.DOTALL)[1])["values"]
    shown = dict(zip(listed["name"], listed["stake"], strict=True))
    apart = {row["field_value"]: row["expected"] - row["observed"] for row in found["field_values"]}
    both = shown.keys() & apart.keys()
    assert both
    assert {n: apart[n] for n in both} == pytest.approx({n: shown[n] for n in both}, abs=0.01)


def test_who_has_several_parents_is_known_by_pairs(tmp_path):
    """Whichever day of the first ones shows it; later an id is that of the pair that it was."""

    def of_day(*rows):
        table = pa.table({**rows_of(*rows * 20), "click": [0, 1] * (10 * len(rows))})
        return table.append_column("shown", pa.array([1] * len(table)))

    both = [("y", "a", "v"), ("y", "b", "v"), ("z", "a", "v"), ("y", None, "v")]
    days = {day: of_day(("x", "a", "v"), both[0], both[2]) for day in DAYS}
    days[DAYS[3]] = of_day(("x", "a", "v"), *both)
    last = [(value, parent, "v") for value in ("x", "new") for parent in "ab"]
    days[DAYS[-1]] = of_day(*last, last[1])
    parents = ["advertiser", "vertical"]
    folder = project(
        tmp_path / "project", days, log__field_parents=parents, log__served_logit="score"
    )
    walk(folder, "merge")
    field = read_json(folder / "artifacts/scores/manifest.json")["field"]
    pairs = [f"\x1e\x1e{value}\x1f{parent}\x1fv" for value in ("y", "new") for parent in "ab"]
    pairs.append("\x1e\x1ex\x1fb\x1fv")
    assert {*field["values"]} - {*map("\x1e\x1f".__add__, ("a\x1fv", "b\x1fv", "v"))} == {
        None, "x", "z", *pairs,
    }  # fmt: skip
    of_day = {
        day: Counter(field["values"][each] for each in rows["field_value_id"].to_pylist())
        for day in (DAYS[3], DAYS[-1])
        for rows in [pq.read_table(folder / f"artifacts/scores/day={day}.parquet")]
    }
    assert of_day[DAYS[3]] == dict.fromkeys(["x", "z", *pairs[:2], "\x1e\x1fv"], 20)
    assert of_day[DAYS[-1]] == dict.fromkeys(["x", *pairs[2:4]], 20) | {pairs[-1]: 40}
    names = [("x", "a", "v"), ("x", "b", "v"), ("x", "c", "v"), ("x", None, "v"), ("y", "c", "v")]
    said = load(folder / "artifacts/model").predict(pa.table(rows_of(*names)))
    found = [field["values"][each] for each in said.field_value_id]
    assert found == ["x", pairs[-1], "x", "x", "\x1e\x1fv"]


@pytest.mark.parametrize("at_first", [1, 2])
def test_a_value_that_got_a_second_parent_is_no_other_mix(tmp_path, at_first):
    """Held against a champion that knows it by itself, or the other way round."""
    folders = []
    for parents in (at_first, 3 - at_first):
        rng = np.random.default_rng(parents)
        item, click = rng.choice(["x", "y"], 4000), rng.integers(0, 2, 4000)
        owner = np.where(item == "x", rng.integers(0, parents, 4000), 0).astype(str)
        table = pa.table(
            {"item": item, "owner": owner, "score": rng.normal(size=4000), "click": click}
        )
        more = {"log__field_parents": ["owner"], "log__served_logit": "score"}
        folders.append(project(tmp_path / str(parents), dict.fromkeys(DAYS, table), **more))
    champion, folder = walk(folders[0], "merge"), folders[1]
    for name in ("model", "tables"):
        shutil.copytree(
            champion / "artifacts" / name, folder / {"model": MODEL, "tables": TABLES}[name]
        )
    version = sha256_of(folder / MODEL / "manifest.json")
    pin = Pin("v0.0.3", "0" * 40, "2024-01-01", version, file_sums(folder / TABLES))
    write_pin(folder / "champion.json", pin)
    walk(folder, "check_tables")
    drift = read_json(folder / "reports/tables.json")["drift"]
    assert (drift["mix_beyond_noise"] < 0.01, drift["field_values"]) == (True, 2)
    assert drift["rate_beyond_noise"] < 0.1


def test_values_without_an_id_have_that_of_their_parent(walked):
    """Of 24 campaigns 20 have ids of their own; the others are no unseen ones in the scores."""
    manifest = read_json(walked / "artifacts/scores/manifest.json")
    values = manifest["field"]["values"]
    assert sum(not str(name).startswith(("None", "\x1e\x1f", "\x1e(")) for name in values) == 20
    levels = np.array(manifest["field"]["tree"]["level"])
    day = pq.read_table(walked / f"artifacts/scores/day={DAYS[3]}.parquet")
    assert (levels[day["field_value_id"].to_numpy()] == 1).any()


def test_vectors_ask_every_level(walked):
    vectors = json.loads((walked / "artifacts/model/test_vectors.json").read_text())
    said = load(walked / "artifacts/model").predict(pa.table(vectors["columns"]))
    assert {*said.field_level.tolist()} == {0, 1, 2, 3}


def test_a_far_parent_is_one_where_no_near_one_is_known():
    table = pa.table({"c": ["x", "y"], "a": pa.nulls(2, pa.string()), "v": ["1", None]})
    found = count_field(table, ["c"], ["a", "v"])
    known = Vocabulary(()).extended(Apart().counts([found]))
    tree = tree_of(known, 2, [("2024-03-04", nearest_parents(found))])
    assert known.names == [None, "x", "y", "\x1e\x1f1"]
    assert tree["level"] == [3, 0, 0, 2]
    assert tree["parent"] == [0, 3, 0, 0]


def test_parents_of_several_lines_have_parents():
    """A line break is a character like any other."""
    table = pa.table({"c": ["x"], "a": ["p\nq"], "v": ["home\ngarden"]})
    found = count_field(table, ["c"], ["a", "v"])
    known = Vocabulary(()).extended(Apart().counts([found]))
    tree = tree_of(known, 2, [("2024-03-04", nearest_parents(found))])
    assert known.names == [None, "x", "\x1e\x1fhome\ngarden", "\x1e\x1fp\nq\x1fhome\ngarden"]
    assert tree["parent"] == [0, 3, 0, 2]


def test_a_row_that_lacks_the_near_parent_is_neither_a_move_nor_a_second_parent():
    """Of a day on which all rows lack it, too; another far parent is a move."""

    def of_day(near, far):
        return pa.table({"c": ["x"] * len(near), "a": pa.array(near, pa.string()), "v": far})

    days = [
        of_day(["p", "p", None], ["1", "1", "1"]),
        of_day([None], ["1"]),
        of_day(["p", None, None], ["1", "1", "1"]),
        of_day([None], ["2"]),
        of_day(["q"], ["2"]),
    ]
    found = [count_field(table, ["c"], ["a", "v"]) for table in days]
    known = Vocabulary(()).extended(Apart().counts(found))
    tree = tree_of(known, 2, [(f"{n}", nearest_parents(of_day)) for n, of_day in enumerate(found)])
    ids = {name: number for number, name in enumerate(known.names)}
    assert tree["parent"][ids["x"]] == ids["\x1e\x1fp\x1f1"]
    assert tree["moves"] == {"3": [[ids["x"]], [ids["\x1e\x1f2"]]],
                             "4": [[ids["x"]], [ids["\x1e\x1fq\x1f2"]]]}  # fmt: skip
    assert not any(map(several_pairs, found))


@pytest.mark.parametrize("column", ["c", "a"])
def test_a_value_or_parent_that_holds_the_separator_is_refused_by_its_row(column):
    """Two pairs could share a name."""
    parts = {"c": ["x", "y"], "a": ["p", "q"]} | {column: ["x", "y\x1fz"]}
    with pytest.raises(DataError, match=f"column {column} .* row 1"):
        count_field(pa.table(parts), ["c"], ["a"])


def test_the_parent_of_a_value_is_the_one_with_the_most_rows():
    table = pa.table({"c": ["x", "x", "x", "y", None, "z"], "a": ["p", "q", "q", None, "p", None],
                      "v": ["1", "1", "1", "1", "1", None]})  # fmt: skip
    found = nearest_parents(count_field(table, ["c"], ["a", "v"])).sort_by("values").to_pylist()
    assert found == [
        {"values": "x", "parent": "\x1e\x1fq\x1f1"},
        {"values": "y", "parent": "\x1e\x1f1"},
    ]
