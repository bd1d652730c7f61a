"""Ali-CCP, on small files in exactly its format: two files joined, lists kept."""

import json

import numpy as np
import pytest

from pipeline.data.ingest.ali_ccp import FORMATS, MANY, MEASURED, ONE, kind, land_files
from pipeline.data.ingest.sources import land_sources
from pipeline.data.log_store.day_rows import read_day
from pipeline.data.log_store.landing import LandingOptions
from pipeline.data.log_store.manifest import holds, read_manifest
from pipeline.params.params_file import read_params
from pipeline.params.sections import DayLimits, LogParams
from pipeline.stages import split, validate
from tests.data.ali_ccp_files import (
    ITEM,
    LINES,
    USER,
    VISITS,
    Feature,
    common,
    dropped,
    files,
    one_row,
    rows_of,
    skeleton,
)
from tests.tiny_logs import content_sha256, files_of

pytestmark = pytest.mark.usefixtures("few_parts")


def test_a_row_has_its_own_features_and_its_visit_s_and_lists_stay_lists(tmp_path):
    row = one_row(tmp_path, ITEM, USER)
    assert (row["sample_id"], row["common_feature_index"]) == ("1", "ab")
    assert (row["click"], row["conversion"]) == (1, 0)
    assert (row["122"], row["101"], row["205"], row["301"]) == (
        *("3864885", "31319", "4385603", "9351665"),
    )
    assert (row["210"], row["210_value"]) == (["8", "07"], [1.0, 2.5])
    assert row["109_14"] == ["45", "4"]
    assert row["109_14_value"] == pytest.approx([2.39, 1.1])
    assert (row["124"], row["508"], row["508_value"], row["127_14"]) == (None, None, None, [])


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_the_join_is_that_of_a_dictionary(tmp_path, ending):
    """Random features on both sides, lines in any order; values of unknown fields are counted."""
    rng = np.random.default_rng(1)
    fields = [*ONE, *MANY, "999"]

    def some(most: int) -> list[Feature]:
        names = rng.choice(fields, rng.integers(0, most))
        return [(n, str(rng.integers(0, 50)), float(rng.integers(1, 9)) / 2) for n in names]

    visits = {visit: some(30) for visit in VISITS}
    rows = [(i, rng.integers(0, 2), 0, rng.choice([*VISITS, "none"]), some(9)) for i in range(300)]
    lines = {
        f"sample_skeleton_train.csv{ending}": "".join(skeleton(*row) for row in rows),
        f"common_features_train.csv{ending}": "".join(common(*line) for line in visits.items()),
    }
    land_files(tmp_path / "data", "ali-ccp", files(tmp_path, lines))
    expected = {str(row[0]): row[4] + visits[row[3]] for row in rows if row[3] != "none"}
    counts = {"no common features": len(rows) - len(expected)}
    found = rows_of(tmp_path / "data")
    assert [row["sample_id"] for row in found] == list(expected)
    unknown = again = 0
    for row in found:
        have: dict[str, list[Feature]] = {}
        for feature in expected[row["sample_id"]]:
            have.setdefault(feature[0], []).append(feature)
        unknown += len(have.pop("999", []))
        for name in MANY:
            assert row[name] == [id_ for _, id_, _ in have.get(name, [])]
            assert row[f"{name}_value"] == [value for *_, value in have.get(name, [])]
        for name in ONE:
            first = have.get(name, [(name, None, None)])[0]
            assert row[name] == first[1]
            assert name not in MEASURED or row[f"{name}_value"] == first[2]
            again += max(len(have.get(name, [])) - 1, 0)
    counts["values of fields that are not known"] = unknown
    counts["values of fields that have one already"] = again
    assert dropped(tmp_path / "data") == counts


def test_the_training_file_is_ten_days_by_visit_and_the_test_file_the_eleventh(tmp_path, project):
    """A visit is never in two parts; 5/5/1 is the paper's split."""
    visits = [f"{number:x}" for number in range(2000)]
    lines = {
        "sample_skeleton_train.csv": "".join(
            skeleton(i, 0, 0, visits[i % 2000], []) for i in range(4000)
        ),
        "common_features_train.csv": "".join(common(visit, USER) for visit in visits),
        "sample_skeleton_test.csv": "".join(
            skeleton(9000 + i, 1, 0, "0", ITEM) for i in range(100)
        ),
        "common_features_test.csv": common("0", [("122", "7", 1.0)]),
    }
    land_files(tmp_path / "data", "ali-ccp", files(tmp_path, lines))
    days = read_manifest(tmp_path / "data" / "manifest.json").days
    assert list(days) == [f"1970-01-{day:02}" for day in range(1, 12)]
    assert days["1970-01-11"].rows == 100
    halves = [
        sum(days[f"1970-01-{d:02}"].rows for d in part) for part in (range(1, 6), range(6, 11))
    ]
    assert sum(halves) == 4000
    assert halves[0] == pytest.approx(2000, abs=150)
    found = rows_of(tmp_path / "data")
    assert len({(row["common_feature_index"], row["day"]) for row in found[:-100]}) == 2000
    assert found[-1]["122"] == "7"
    params = read_params(project / "params.yaml")
    log = LogParams(
        format="ali-ccp",
        time_zone="UTC",
        label="click",
        impressions=None,
        field=("122",),
        categorical=("101", "205"),
        numeric=("508_value",),
        truth=None,
    )
    anything = DayLimits(warning=None, error=None)  # the test day has one row
    loose = {"max_null_share": 1.0, "new_value_share": anything}
    checks = params.validate_.model_copy(update=loose)
    counts = {"training_days": 5, "calibration_days": 5, "test_days": 1}
    report = tmp_path / "validation.json"
    every = {"retrain_every_days": 1, "last_day": None}
    sizes = params.split.model_copy(update=counts | every)
    validate.run(tmp_path / "data", report, tmp_path / "days", params=checks, log=log, split=sizes)
    manifest = tmp_path / "data" / "manifest.json"
    split.run(manifest, report, tmp_path / "split", params=sizes, log=log)
    found_parts = json.loads((tmp_path / "split" / "manifest.json").read_text())["parts"]
    assert found_parts["test"] == ["1970-01-11"]
    assert [len(found_parts[part]) for part in ("training", "calibration")] == [5, 5]


def test_conversions_are_those_of_clicked_impressions(tmp_path):
    """CTR: every impression; CVR: clicked ones; a conversion without a click is in neither."""
    outcomes = [(0, 0), (1, 0), (1, 1), (0, 1)]
    lines = {
        **LINES,
        "sample_skeleton_train.csv": "".join(
            skeleton(i, *outcome, VISITS[0], ITEM) for i, outcome in enumerate(outcomes)
        ),
    }
    sources = files(tmp_path, lines)
    said = land_sources("ali-ccp", tmp_path / "ctr", sources)
    assert "took 3 rows on 1 day" in said
    assert "dropped 1 (conversion without click)" in said
    assert [row["click"] for row in rows_of(tmp_path / "ctr")] == [0, 1, 1]
    land_sources("ali-ccp-cvr", tmp_path / "cvr", sources)
    rows = rows_of(tmp_path / "cvr")
    assert [row["conversion"] for row in rows] == [0, 1]
    assert "click" not in rows[0]
    assert dropped(tmp_path / "cvr") == {"conversion without click": 1, "click is not 1": 1}


def test_rows_without_features_have_nulls_and_empty_lists(tmp_path):
    row = one_row(tmp_path, [], [])
    assert {name: row[name] for name in ONE} == dict.fromkeys(ONE)
    assert [row[name] for name in MANY] == [[]] * len(MANY)


def test_blocks_slices_and_compression_do_not_change_a_byte(tmp_path, monkeypatch):
    """Nor does landing twice; every byte that is read is reported."""
    reported: list[int] = []
    sources = files(tmp_path)
    land_files(tmp_path / "data", "ali-ccp", sources, LandingOptions(report=reported.append))
    before = files_of(tmp_path / "data")
    land_files(tmp_path / "data", "ali-ccp", sources)
    assert files_of(tmp_path / "data") == before
    size = sum(path.stat().st_size for path in sources)
    assert size - 130 <= sum(reported) <= size
    monkeypatch.setattr("pipeline.data.ingest.records.ROWS", 500)
    monkeypatch.setattr("pipeline.data.ingest.ali_ccp.JOINED", 4000)
    (tmp_path / "gz").mkdir()
    zipped = files(tmp_path / "gz", {f"{name}.gz": text for name, text in LINES.items()})
    land_files(tmp_path / "other", "ali-ccp", zipped)
    assert files_of(tmp_path / "other") == before
    manifest = read_manifest(tmp_path / "data" / "manifest.json")
    assert holds(tmp_path / "data", manifest)
    for day, entry in manifest.days.items():
        assert content_sha256(read_day(tmp_path / "data", day)) == entry.content_sha256


def test_an_impression_that_is_there_twice_counts_once_by_its_id(tmp_path):
    twice = LINES["sample_skeleton_train.csv"] + skeleton(0, 1, 1, VISITS[0], ITEM)
    sources = files(tmp_path, {**LINES, "sample_skeleton_train.csv": twice})
    options = LandingOptions("ali-ccp", "sample_id", "click")
    land_files(tmp_path / "data", "ali-ccp", sources, options=options)
    assert len(rows_of(tmp_path / "data")) == 120
    assert dropped(tmp_path / "data")["sample_id came before"] == 1


def test_equal_files_may_come_where_ids_tell_their_rows_apart(tmp_path):
    again = {f"again_{name}": text for name, text in LINES.items()}
    options = LandingOptions("ali-ccp", "sample_id", "click")
    land_files(tmp_path / "data", "ali-ccp", files(tmp_path, LINES | again), options=options)
    assert len(rows_of(tmp_path / "data")) == 120
    assert dropped(tmp_path / "data")["sample_id came before"] == 120


def test_the_manifest_names_the_types_of_both_tasks():
    for name in FORMATS:
        columns = kind(name).manifest({}).columns
        assert (columns["109_14"], columns["210_value"]) == ("list<string>", "list<float>")
        assert ("click" in columns) == (name == "ali-ccp")
        json.dumps(columns)
