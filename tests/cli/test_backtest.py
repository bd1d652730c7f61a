"""The back-test: the pipeline at several last days, in a copy; done once, pooled as sums."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from pipeline.cli.backtest import pooled, table
from pipeline.cli.main import app
from pipeline.cli.workspace import share_data
from pipeline.core.errors import AdaCalibError
from pipeline.metrics.significance import Resampling
from pipeline.params.params_file import set_values
from pipeline.registry.tools.programs import git
from tests.tiny_logs import files_of, tiny_day, write_log

PROGRAMS = Path(sys.executable).parent
DAYS = [f"2024-01-{day:02}" for day in range(1, 11)]
TINY = {
    "log.format": "tiny",
    "log.time_zone": "UTC",
    "log.label": "click",
    "log.field": ["item"],
    "log.categorical": ["item"],
    "log.numeric": ["price"],
    "split.last_day": None,
}
CHEAP = """
import json, sys
from pathlib import Path
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from ruamel.yaml import YAML

day = YAML(typ="safe", pure=True).load(Path("params.yaml").read_text())["split"]["last_day"]
if day == "2024-01-05":
    sys.exit("gate: the day 2024-01-05 has no rows")
ones = np.ones(2)
losses = {"uncalibrated": 3.0, "adacalib": 2.0, "model": 2.0}
rows = [
    {"method": name, "field_value_id": i, "impressions": 10, "responses": 1,
     "expected_responses": 1.0, "expected_variance": 0.9, "log_loss": loss * (i + 1)}
    for name, loss in losses.items() for i in (0, 1)
]
sums = Path("artifacts/evaluation")
sums.mkdir(parents=True, exist_ok=True)
pq.write_table(pa.Table.from_pylist(rows), sums / "counts.parquet")
Path("artifacts/model").mkdir(exist_ok=True)
field = {"base": {"field": {"values": [None, "item " + day]}}}
Path("artifacts/model/manifest.json").write_text(json.dumps(field))
gain = {"logloss": {"value": 0.1, "low": 0.05, "high": 0.2}}
evaluation = {
    "first_day": day, "rows": 20, "impressions": 8, "responses": 2,
    "methods": {name: {"logloss": 3 * loss / 20} for name, loss in losses.items()},
    "gains": {"adacalib": gain, "model": gain},
}
Path("reports").mkdir(exist_ok=True)
Path("reports/evaluation.json").write_text(json.dumps(evaluation))
Path("reports/gate.json").write_text(json.dumps({"verdict": "refuse", "reasons": ["too few"]}))
"""
DAG = """
stages:
  gate:
    cmd: python cheap.py
    deps: [cheap.py, data]
    params: [log, split]
    outs: [artifacts/evaluation, artifacts/model]
    metrics:
      - reports/evaluation.json: {cache: false}
      - reports/gate.json: {cache: false}
"""


@pytest.fixture
def checkout(project, tmp_path) -> Path:
    """A project of one cheap stage with ten landed days, under git."""
    folder = tmp_path / "checkout"
    for name in ("params.yaml", ".gitignore", ".dvcignore", ".dvc/config"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(project / name, folder / name)
    set_values(folder / "params.yaml", TINY)
    (folder / "cheap.py").write_text(CHEAP)
    (folder / "dvc.yaml").write_text(DAG)
    write_log(folder / "data", {day: tiny_day() for day in DAYS})
    git(folder, "init", "--quiet", "-b", "main")
    git(folder, "add", "--all")
    return folder


def backtest(folder: Path, first: str, last: str, step: int = 1, *options: str):
    """adacalib backtest in a folder."""
    command = [sys.executable, "-m", "pipeline.cli.main", *options, "backtest"]
    return subprocess.run(
        [*command, "--from", first, "--to", last, "--step", str(step)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_origins_are_run_once_in_a_copy_and_refusals_are_listed(checkout):
    before = files_of(checkout)
    first = backtest(checkout, DAYS[2], DAYS[7], 2, "--json")
    assert first.returncode == 1
    found = json.loads(first.stdout)
    assert [origin["origin"] for origin in found["origins"]] == DAYS[2:8:2]
    assert found["origins"][1]["refused"] == "gate: the day 2024-01-05 has no rows"
    assert found["origins"][0]["verdict"] == "refuse"
    assert found["pooled"]["impressions"] == 16  # of the log, whatever its rows stand for
    assert found["pooled"]["logloss"]["adacalib"] == pytest.approx(0.3)
    assert found["pooled"]["gains"]["adacalib"]["value"] == pytest.approx(0.15)
    assert first.stderr.count("Running stage") == 3
    assert "2024-01-05 has no rows" in first.stderr.splitlines()[-1]
    copy = checkout / "demo/backtest"  # as a kill may leave it
    (copy / "dvc.lock").write_bytes((copy / "dvc.lock").read_bytes()[:20])
    (copy / ".dvc/tmp/rwlock").write_text("")
    again = backtest(checkout, DAYS[2], DAYS[7], 2, "--json")
    assert again.stdout == first.stdout
    assert again.stderr.count("Running stage") == 1  # the one that was refused
    after = files_of(checkout)
    assert {n: b for n, b in after.items() if not n.startswith("demo/")} == before


@pytest.mark.parametrize(
    ("values", "days", "sentence"),
    [
        ({}, (DAYS[5], DAYS[2]), "--from 2024-01-06 is after --to 2024-01-03"),
        ({}, ("2024-1-3", DAYS[5]), "a day is spelled YYYY-MM-DD"),
        ({}, (DAYS[5], "2024-01-12"), "the origin 2024-01-12 is after 2024-01-10"),
        ({"log.maturity_days": 3}, (DAYS[5], DAYS[8]), "is after 2024-01-07, the newest day"),
    ],
)
def test_what_cannot_be_back_tested_is_refused_before_anything_is_made(
    checkout, values, days, sentence, monkeypatch
):
    set_values(checkout / "params.yaml", values)
    monkeypatch.chdir(checkout)
    words = ["backtest", "--from", days[0], "--to", days[1], "--step", "1"]
    refused = CliRunner().invoke(app, words)
    assert isinstance(refused.exception, AdaCalibError)
    assert sentence in str(refused.exception)
    assert "\n" not in str(refused.exception)
    assert refused.output == ""
    assert not (checkout / "demo").exists()


def sums_of(method: str, values: list[str], losses: list[float]) -> pd.DataFrame:
    """The sums of one method at one origin."""
    columns = {
        "impressions": 10,
        "responses": 1,
        "expected_responses": 1.0,
        "expected_variance": 1.0,
        "log_loss": losses,
    }
    keys = [(method, value) for value in values]
    return pd.DataFrame(columns, pd.MultiIndex.from_tuples(keys, names=["method", "field_value"]))


def test_pooling_adds_sums_by_the_text_of_field_values_and_divides_at_the_end():
    """Ids are each origin's own, so values meet by their text; more impressions weigh more."""
    losses = [({"uncalibrated": [4.0, 6.0], "model": [3.0, 6.0]}, ["a", "b"])]
    losses += [({"uncalibrated": [2.0], "model": [2.0]}, ["b"])]
    origins = [
        pd.concat([sums_of(method, values, loss) for method, loss in of_origin.items()])
        for of_origin, values in losses
    ]
    found = pooled(origins, Resampling(0.95, 200, 1))
    assert found["logloss"] == {"model": 11 / 30, "uncalibrated": 12 / 30}
    assert found["gains"]["model"]["value"] == pytest.approx(1 / 30)
    assert found["origins"] == 2


def test_the_table_says_undefined_where_nothing_is_known():
    origin = {
        "origin": DAYS[0],
        "impressions": 10,
        "responses": 0,
        "logloss": {"uncalibrated": 0.25, "model": None},
        "gains": {"model": {"value": None, "low": None, "high": None}},
        "verdict": "refuse",
    }
    text = table({"origins": [origin, {"origin": DAYS[1], "refused": "no rows"}], "pooled": None})
    assert "2500.0" in text
    assert "undefined" in text
    assert (
        "2 origins: 0 passed, 1 refused by the gate, 1 could not run\n2024-01-02: no rows" in text
    )


def test_no_table_is_made_of_no_origin():
    text = table({"origins": [{"origin": DAYS[1], "refused": "no rows"}], "pooled": None})
    assert text == (
        "1 origins: 0 passed, 0 refused by the gate, 1 could not run\n2024-01-02: no rows"
    )


def test_shared_data_is_whole_and_does_not_follow_a_new_landing(tmp_path):
    source = write_log(tmp_path / "data", {DAYS[0]: tiny_day(2)})
    share_data(source, tmp_path / "copy")
    held = files_of(tmp_path / "copy")
    assert held == files_of(source)
    shutil.rmtree(source)
    write_log(tmp_path / "data", {DAYS[0]: tiny_day(4)})
    assert files_of(tmp_path / "copy") == held
    share_data(source, tmp_path / "copy")
    assert files_of(tmp_path / "copy") == files_of(source)
