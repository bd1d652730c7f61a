"""What a landing refuses before it writes: no response, a typo, a folder that is no project."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.core.errors import DataError
from pipeline.data.ingest.file_reader import land_files
from pipeline.data.log_store.landing import LandingOptions
from tests.data.logs import HEADER, mapping, written
from tests.tiny_logs import files_of


def test_a_response_that_is_none_is_refused_by_line_where_the_label_is_known(tmp_path):
    """A missing one may still come; with impressions a row may have several."""
    path = written(tmp_path / "log.csv", HEADER + "0,a,1,1\n1,a,1,\n2,a,1,2\n")
    known = LandingOptions("mine", None, "click")
    with pytest.raises(DataError, match=r"log\.csv, line 4: column click is 2: "):
        land_files(tmp_path / "data", mapping(), [path], options=known)
    assert not (tmp_path / "data").exists()
    for options in (LandingOptions(), LandingOptions("mine", None, "click", "price")):
        land_files(tmp_path / "data", mapping(), [path], options=options)


def test_a_typo_in_a_mapping_is_told_before_what_the_folder_holds(tmp_path):
    path = written(tmp_path / "log.csv", HEADER + "0,a,1,1\n")
    land_files(tmp_path / "data", mapping(), [path])
    with pytest.raises(DataError, match="column clik is missing"):
        land_files(tmp_path / "data", mapping(columns={"clik": "int8"}), [path])


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
