"""adacalib online: one command from a log to a table, a page or JSON."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from pipeline.cli.main import app
from pipeline.core.errors import AdaCalibError
from tests.cli.test_cli import adacalib
from tests.online.test_analysis import drawn_log
from tests.source_tree import ROOT

OPTIONS = [
    *("--from", "2026-03-03", "--to", "2026-03-09", "--arm", "arm", "--control", "old"),
    *("--column", "responses=clicks"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A project with a log of an experiment beside it."""
    place = tmp_path_factory.mktemp("project")
    for name in ("dvc.yaml", "params.yaml"):
        shutil.copy(ROOT / name, place)
    (place / ".dvc").mkdir()
    drawn_log(1.3).rename(columns={"item": "carrier"}).to_parquet(place / "log.parquet")
    return place


def test_an_analysis_is_a_table_with_a_page_or_a_json_object(folder):
    text = adacalib(folder, "online", "log.parquet", "--unit", "unit", *OPTIONS)
    assert text.returncode == 0, text.stderr
    assert "response rate" in text.stdout
    assert (folder / "artifacts/online.html").is_file()
    versions = [word for v in ("old", "new") for word in ("--probability", f"{v}=p_{v}")]
    more = ["--unit", "unit", "--page", "other.html", *versions]
    found = json.loads(adacalib(folder, "--json", "online", "log.parquet", *OPTIONS, *more).stdout)
    assert found["effects"][0]["significant"]
    assert len(found["calibration"]) == 4
    assert found["page"] == str((folder / "other.html").resolve())


@pytest.mark.parametrize(
    "wrong",
    [
        ["log.parquet", "--unit", "nobody"],
        ["absent.parquet", "--unit", "unit"],
        ["log.parquet", "--unit", "unit", "--share", "half"],
        ["log.parquet", "--unit", "unit", "--column", "worth=value"],
        ["log.parquet", "--unit", "unit", "--share", "2026-03-05=0.5"],
        ["log.parquet", "--unit", "unit", "--share", "2026-02-20=0.5"],
        ["log.parquet", "--unit", "unit", "--probability", "v=p_old", "--probability", "v=p_new"],
    ],
)
def test_a_refusal_is_one_sentence_and_writes_no_page(folder, wrong, monkeypatch):
    monkeypatch.chdir(folder)
    words = ["online", *wrong, *OPTIONS, "--page", "none.html"]
    refused = CliRunner().invoke(app, words)
    assert isinstance(refused.exception, AdaCalibError)
    assert "\n" not in str(refused.exception)
    assert refused.output == ""
    assert not (folder / "none.html").exists()
