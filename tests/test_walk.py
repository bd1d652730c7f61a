"""The walk as people take it: a log lands, dvc repro runs every stage, the verdict is read."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from pipeline.__main__ import main
from pipeline.core.files import read_json
from pipeline.params.params_file import STAGES, set_values
from tests.whole_walk import copy_code, walk

ROOT = Path(__file__).parent.parent
PROGRAMS = Path(sys.executable).parent
DAG = YAML(typ="safe", pure=True).load((ROOT / "dvc.yaml").read_text())["stages"]
COMMANDS = {stage: DAG[stage]["cmd"].split() for stage in STAGES}
SMALL = {
    "log.format": "simulated",
    "log.time_zone": "UTC",
    "log.label": "click",
    "log.field": ["item_id"],
    "log.categorical": ["item_id", "slot", "device", "hour", "weekday"],
    "log.numeric": ["affinity", "price"],
    "log.truth": "true_probability",
    "split.last_day": None,
    "split.retrain_every_days": 1,
    "split.training_days": 10,
    "split.calibration_days": 6,
    "split.test_days": 5,
    "train_base.epochs": 2,
    "train_base.hidden_sizes": [64, 32, 16],
    "calibrate.steps": 40,
    "gate.min_test_responses": 300,
    "gate.max_pcoc_error": 0.3,  # five small days cannot tell more
}


def call(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A program of this environment, run in a folder."""
    environment = os.environ | {
        "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
        "PYTHONPATH": str(folder),
        "DVC_NO_ANALYTICS": "1",
    }
    program = [str(PROGRAMS / command[0]), *command[1:]]
    return subprocess.run(
        program, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def walked(tmp_path_factory) -> Path:
    """The project's files in a folder of their own, after a walk on a small simulated log."""
    folder = copy_code(tmp_path_factory.mktemp("walk") / "project")
    set_values(folder / "params.yaml", SMALL)
    size = ("--rows", "40000", "--days", "21", "--field-values", "20")
    landed = call(folder, "adacalib", "data", "simulated", *size)
    assert landed.returncode == 0, landed.stderr
    finished = call(folder, "dvc", "repro")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return folder


def outputs(folder: Path) -> dict[str, bytes]:
    """Every byte that the stages wrote."""
    files = [f for top in ("artifacts", "reports") for f in (folder / top).rglob("*")]
    return {str(f.relative_to(folder)): f.read_bytes() for f in files if f.is_file()}


@pytest.mark.slow
def test_the_verdict_on_a_log_that_needs_calibration_is_a_pass(walked):
    gate = json.loads((walked / "reports/gate.json").read_text())
    assert gate["passed"], gate["reasons"]
    evaluation = read_json(walked / "reports/evaluation.json")
    excess = evaluation["truth"]["excess_logloss"]
    assert excess["model"] < 0.6 * excess["uncalibrated"]


@pytest.mark.slow
def test_metrics_show_what_people_compare_and_nothing_else(walked):
    """Whoever runs two experiments reads one screen, of figures that mean something."""
    shown = json.loads(call(walked, "dvc", "metrics", "show", "--json").stdout)[""]["data"]
    found = {path: report["data"] for path, report in shown.items() if report.get("data")}
    assert list(found) == ["reports/gate.json"]
    figures = found["reports/gate.json"]["metrics"]
    methods = read_json(walked / "reports/evaluation.json")["methods"]
    for name in ("uncalibrated", "model"):
        for metric in ("logloss", "daily_field_deviance", "pcoc"):
            assert figures[name][metric] == pytest.approx(methods[name][metric], abs=5e-7)
    assert len(found["reports/gate.json"]) < 6


@pytest.mark.slow
def test_a_second_run_executes_no_stage(walked):
    finished = call(walked, "dvc", "repro")
    assert finished.returncode == 0
    assert "Running stage" not in finished.stdout


@pytest.mark.slow
def test_the_same_inputs_give_the_same_bytes_in_another_folder(walked, tmp_path):
    """No time stamp, host, path or run id in what is tracked, nor what a process did before."""
    folder = tmp_path / "elsewhere"
    shutil.copytree(walked, folder, ignore=shutil.ignore_patterns("artifacts", "reports", ".dvc"))
    walk(folder, "report")
    assert set(outputs(folder)) == set(outputs(walked))
    differing = [n for n, b in outputs(folder).items() if b != outputs(walked)[n]]
    assert differing == []


@pytest.mark.slow
def test_results_names_the_verdict_and_the_report(walked):
    shown = call(walked, "adacalib", "results")
    assert shown.returncode == 0
    assert "verdict: pass" in shown.stdout
    assert "report.html" in shown.stdout
    assert (walked / "artifacts/report/report.html").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda f: shutil.rmtree(f / "data"), "data"),
        (lambda f: next((f / "data").glob("day=*03/*")).write_bytes(b"PAR1"), "2025-01-03"),
        (lambda f: (f / "params.yaml").write_text("logs: 1\n"), "logs is unknown"),
        (lambda f: set_values(f / "params.yaml", {"log.label": "clock"}), "clock"),
        (lambda f: set_values(f / "params.yaml", {"split.test_days": 500}), "500"),
    ],
    ids=["no data", "a truncated file", "a typo", "a missing column", "too few days"],
)
def test_bad_input_is_one_sentence_and_leaves_everything_as_it_was(
    walked, tmp_path, monkeypatch, damage, sentence
):
    """At the public face; in this process, which great-expectations is loaded in already."""
    folder = tmp_path / "damaged"
    shutil.copytree(walked, folder, ignore=shutil.ignore_patterns("pipeline", ".dvc"))
    damage(folder)
    before = outputs(folder)
    monkeypatch.chdir(folder)
    said = next(filter(None, map(refusal, ("validate", "split"))))
    assert sentence in said
    assert len(said.splitlines()) == 1
    assert outputs(folder) == before


def refusal(stage: str) -> str | None:
    """The sentence with which a stage ends, None where it ends well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", COMMANDS[stage][2:])
        before = signal.getsignal(signal.SIGTERM)
        try:
            main()
        except SystemExit as ended:  # a text is written as it is, and is exit code 1
            return str(ended.code)
        finally:
            signal.signal(signal.SIGTERM, before)
    return None


def test_an_unknown_stage_is_refused_with_the_names_of_all():
    refused = subprocess.run(
        [sys.executable, "-m", "pipeline", "evaluat"], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 1
    assert all(stage in refused.stderr for stage in STAGES)


def test_a_stage_with_wrong_paths_says_which_it_takes():
    refused = subprocess.run(
        [sys.executable, "-m", "pipeline", "gate", "a"], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 1
    assert "gate takes the paths" in refused.stderr
