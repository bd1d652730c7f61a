"""What a landing refuses before it writes: no response, a typo, a folder that is no project."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.core.errors import DataError
from pipeline.data.ingest.file_reader import land_files
from pipeline.data.log_store.landing import LandingOptions
from tests.data.logs import HEADER, mapping, refusal, written
from tests.tiny_logs import files_of


def test_a_response_that_is_none_is_refused_by_line_where_the_label_is_known(tmp_path):
    """A missing one may still come; with impressions a row may have several."""
    path = written(tmp_path / "log.csv", HEADER + "0,a,1,1\n1,a,1,\n2,a,1,2\n")
    known = LandingOptions("mine", None, "click")
    with pytest.raises(DataError, match=r"log\.csv, line 4: column click is 2: "):
        land_files(tmp_path / "data", mapping(), [path], options=known)
    text = mapping(columns={"click": "text"})
    with pytest.raises(DataError, match=r"log\.csv, line 2: column click: "):
        land_files(tmp_path / "data", text, [path], options=known)
    assert not (tmp_path / "data").exists()
    for options in (LandingOptions(), LandingOptions("mine", None, "click", "price")):
        land_files(tmp_path / "data", mapping(), [path], options=options)


@pytest.mark.parametrize("said", ["n/a", "NA", "--", "null", "\\N"])
def test_a_response_that_says_that_it_is_missing_is_no_no(tmp_path, said):
    """It counts as one only where the mapping lists it among all texts there are."""
    path = written(tmp_path / "log.csv", f"{HEADER}0,yes,1,0\n1,no,1,0\n2,{said},1,0\n")
    clicked = {"rule": "equals", "of": "item", "values": ("yes",)}
    rules = {"columns": {"price": "float64", "item": "text"}, "made": {"clicked": clicked}}
    known = LandingOptions("mine", None, "clicked")
    with pytest.raises(DataError, match=r"log\.csv, line 4: column item is "):
        land_files(tmp_path / "data", mapping(**rules), [path], options=known)
    assert not (tmp_path / "data").exists()
    null, kept = {"nulls": ("", said)}, {"keep": {"item": ("yes", "no", said)}}
    for n, more in enumerate([null, kept, null | {"drop_null": ("item",)}]):
        land_files(tmp_path / f"data{n}", mapping(**rules, **more), [path], options=known)
    land_files(tmp_path / "other", mapping(**rules), [path], options=LandingOptions())


def test_a_typo_in_a_mapping_is_told_before_what_the_folder_holds(tmp_path):
    path = written(tmp_path / "log.csv", HEADER + "0,a,1,1\n")
    land_files(tmp_path / "data", mapping(), [path])
    with pytest.raises(DataError, match="column clik is missing"):
        land_files(tmp_path / "data", mapping(columns={"clik": "int8"}), [path])


def test_what_is_null_on_one_day_is_null_on_all(tmp_path):
    """Other spellings are refused, and the same in any order are not."""
    paths = [
        written(tmp_path / f"{day}.csv", HEADER + f"{86400 * day},--,1,1\n") for day in range(3)
    ]
    land_files(tmp_path / "data", mapping(nulls=("", "--")), [paths[0]])
    before = files_of(tmp_path / "data")
    with pytest.raises(DataError, match="what is null on one day would be a value on another"):
        land_files(tmp_path / "data", mapping(), [paths[1]])
    assert files_of(tmp_path / "data") == before
    rules = mapping(nulls=("--", ""), number_nulls=("", "NA"))
    manifest = land_files(tmp_path / "data", rules, [paths[2]]).manifest
    assert len(manifest.days) == 2
    assert manifest.reading["number_nulls"] == ("", "NA")


@pytest.mark.parametrize("words", [["flights"], ["simulated"], ["my.yaml", "log.csv"]])
@pytest.mark.parametrize("has_params", [False, True])
def test_landing_outside_a_project_is_refused_and_writes_nothing(
    tmp_path, project, words, has_params
):
    if has_params:
        shutil.copyfile(project / "params.yaml", tmp_path / "params.yaml")
    before = files_of(tmp_path)
    program = Path(sys.executable).parent / "adacalib"
    command = [program, "data", *words]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert said.returncode == 1
    (sentence,) = said.stderr.splitlines()
    assert sentence.startswith("adacalib: ")
    assert files_of(tmp_path) == before


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz"])
def test_a_line_in_another_encoding_is_named(tmp_path, name):
    rows = b"0,a,1,0\n" * 200_000
    text = HEADER.encode() + rows + b"0,\x81,1,0\n" + rows
    assert f"{name}, line 200002" in refusal(tmp_path, mapping(encoding="cp1252"), text, name)
    rules = mapping(encoding="utf-16")  # without the mark of its byte order
    assert name in refusal(tmp_path, rules, HEADER.encode("utf-16-be"), name)
