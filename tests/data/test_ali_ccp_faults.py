"""Ali-CCP: what is wrong in its files is reported in one sentence, and nothing is landed."""

import pytest

from pipeline.core.errors import DataError
from pipeline.data.ingest.ali_ccp import land_files
from pipeline.data.ingest.sources import land
from pipeline.data.log_store.contract import check_day
from pipeline.data.log_store.day_rows import read_day
from pipeline.data.log_store.manifest import read_manifest
from tests.data.ali_ccp_files import ITEM, LINES, USER, VISITS, common, files, rows_of, skeleton
from tests.tiny_logs import tiny_log_params

pytestmark = pytest.mark.usefixtures("few_parts")

BAD = {
    "x,1,0,ab,1,101\x021\x031.0,5\n": "Expected 6 columns, got 7",
    "1,1,0,ab\n": "Expected 6 columns, got 4",
    "1,2,0,ab,0,\n": "click is neither 0 nor 1",
    "1,0,,ab,0,\n": "conversion is neither 0 nor 1",
    "1,1,0,ab,3,101\x021\x031.0\n": "says 3 features, its list holds 1",
    "1,1,0,ab,2,\n": "says 2 features, its list holds 0",
    "1,1,0,ab,0,101\x021\x031.0\n": "says 0 features, its list holds 1",
    "1,1,0,ab,many,101\x021\x031.0\n": "many",
    "1,1,0,ab,1,101\x021\n": "not spelled field ^B id ^C value",
    "1,1,0,ab,1,101\x031\x021.0\n": "not spelled field ^B id ^C value",
    "1,1,0,ab,2,101\x021\x031.0\x01\n": "not spelled field ^B id ^C value",
    "1,1,0,ab,1,101\x02\x031.0\n": "each is there",
    "1,1,0,ab,1,\x021\x031.0\n": "each is there",
    "1,1,0,ab,1,101\x021\x03one\n": "the value is a number",
    "1,1,0,ab,1,101\x021\x03\n": "the value is a number",
    "1,1,0,ab,1,101\x021\x03nan\n": "the value is a number",
    "1,1,0,ab,1,101\x02\xff\x031.0\n": "UTF-8",
}


@pytest.mark.parametrize(("line", "reason"), list(BAD.items()))
def test_a_line_that_is_not_of_the_format_is_named(tmp_path, line, reason):
    """Also after an empty line, and nothing is landed."""
    good = skeleton(0, 0, 0, VISITS[0], ITEM)
    path = tmp_path / "sample_skeleton_train.csv"
    path.write_bytes((good * 3 + "\n").encode() + line.encode("latin-1") + good.encode())
    other = tmp_path / "common_features_train.csv"
    other.write_text(LINES[other.name])
    with pytest.raises(DataError) as error:
        land_files(tmp_path / "data", "ali-ccp", [path, other])
    assert str(error.value).startswith(f"{path}, line 5: ")
    assert reason in str(error.value)
    assert sorted(tmp_path.glob("[!.]*")) == [other, path]


def test_a_damaged_line_of_the_common_features_is_named(tmp_path):
    lines = {**LINES, "common_features_train.csv": common("ab", USER) + ",1,101\x021\x031.0\n"}
    with pytest.raises(DataError, match=r"common_features_train.csv, line 2: .* is empty"):
        land_files(tmp_path / "data", "ali-ccp", files(tmp_path, lines))


def test_an_index_that_is_there_twice_counts_once_and_is_refused_where_it_differs(tmp_path):
    lines = {
        "sample_skeleton_train.csv": skeleton(1, 0, 0, "ab", ITEM),
        "common_features_train.csv": common("ab", USER) * 2,
    }
    land_files(tmp_path / "data", "ali-ccp", files(tmp_path, lines))
    assert len(rows_of(tmp_path / "data")) == 1
    lines["common_features_train.csv"] += common("ab", USER[:1])
    with pytest.raises(DataError, match="index ab is there twice, with different features"):
        land_files(tmp_path / "data", "ali-ccp", files(tmp_path, lines))


def test_files_that_are_missing_or_equal_are_named(tmp_path):
    sources = files(tmp_path)
    with pytest.raises(DataError, match="common_features_train is not among the files"):
        land_files(tmp_path / "data", "ali-ccp", sources[:1])
    with pytest.raises(DataError, match=r"log\.csv is named neither sample_skeleton_"):
        land_files(tmp_path / "data", "ali-ccp", [*sources, tmp_path / "log.csv"])
    with pytest.raises(DataError, match="does not exist"):
        land_files(tmp_path / "data", "ali-ccp", [tmp_path / "1_sample_skeleton_train", sources[1]])
    again = tmp_path / "again_sample_skeleton_train.csv"
    again.write_bytes(sources[0].read_bytes())
    with pytest.raises(DataError, match="holds the same bytes as"):
        land_files(tmp_path / "data", "ali-ccp", [*sources, again])
    with pytest.raises(DataError, match="ali-ccp is read from files"):
        land("ali-ccp", tmp_path / "data")


def test_the_user_group_is_a_field_and_a_list_is_refused_as_a_feature_in_one_sentence(tmp_path):
    land_files(tmp_path / "data", "ali-ccp", files(tmp_path))
    day = min(read_manifest(tmp_path / "data" / "manifest.json").days)
    table = read_day(tmp_path / "data", day)
    contract = tiny_log_params(field=("122",), categorical=("205",), numeric=("508_value",))
    facts = check_day(table, day, contract)
    assert (facts.field_values, facts.nulls["508_value"]) == (1, len(table))
    for wrong in {"categorical": ("109_14",)}, {"numeric": ("109_14_value",)}:
        with pytest.raises(DataError, match=rf"day {day}, column 109_14\w*: type list<"):
            check_day(table, day, contract.model_copy(update=wrong))
