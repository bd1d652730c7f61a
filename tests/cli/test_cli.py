"""The command line: one answer, as text, as JSON or not at all; exit codes say how it ended."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from pipeline.cli.console import Voice, answer
from pipeline.cli.main import ANYWHERE, app
from pipeline.core.errors import AdaCalibError, ArtifactError
from pipeline.core.files import read_json, write_json
from pipeline.engine.reuse import PLACE, common_folder
from pipeline.registry.history import status
from pipeline.registry.staleness import changed_since
from pipeline.report.result_tables import read_results, result_lines
from tests.report.worlds import reports


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder in which the pipeline has run and the verdict was no."""
    for name in ("evaluation", "gate"):
        write_json(tmp_path / f"reports/{name}.json", reports(passed=False)[name])
    (tmp_path / "dvc.yaml").touch()
    (tmp_path / ".dvc").mkdir()
    return tmp_path


def adacalib(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The program, run in a folder."""
    program = Path(sys.executable).parent / "adacalib"
    return subprocess.run(
        [program, *words], cwd=folder, capture_output=True, text=True, check=False
    )


def test_results_are_a_table_a_json_object_or_nothing(folder):
    text, data, nothing = (
        adacalib(folder, *options, "results") for options in ([], ["--json"], ["--quiet"])
    )
    assert (text.returncode, "verdict: refuse" in text.stdout) == (0, True)  # without a log here
    words = " ".join(text.stdout.split())
    assert "cannot tell: it is 1.01" in words
    assert "it would lose +0.00040 (+0.00010 to +0.00070) in LogLoss" in words
    assert "3 to 4 days old on the test days, 5 where it serves" in words
    found = json.loads(data.stdout)
    assert found["gate"]["reasons"] == ["too few responses to tell: 30 of 1,000"]
    assert found["evaluation"]["methods"]["model"]["pcoc"] == 1.01
    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (0, "", "")


def test_no_answer_and_no_refusal_holds_a_secret_of_an_address(folder, capsys):
    address = "http://bob:hunter2@127.0.0.1:1/x.csv"
    done = adacalib(folder, "init", address)
    assert (done.returncode, "127.0.0.1:1/x.csv" in done.stderr) == (1, True)
    answer(f"read back from {address}", page=address)
    Voice.as_json = True
    answer(f"read back from {address}", page=address)
    Voice.as_json = False
    said = capsys.readouterr().out
    assert json.loads(said.partition("\n")[2])["page"] == "http://***@127.0.0.1:1/x.csv"
    assert "hunter2" not in said + done.stderr


def test_names_that_look_like_markup_are_shown_as_they_are(folder):
    gate = read_json(folder / "reports/gate.json")
    gate["reasons"] = ["PCOC of field value '[/promo] :smile: [red]x' is 2"]
    write_json(folder / "reports/gate.json", gate)
    assert gate["reasons"][0] in " ".join(adacalib(folder, "results").stdout.split())


@pytest.mark.parametrize("content", ["[]", "null", "{}", "1", '{"verdict": "pass"}'])
@pytest.mark.parametrize("name", ["evaluation", "gate"])
def test_reports_of_another_form_are_refused_in_one_sentence(folder, name, content):
    (folder / f"reports/{name}.json").write_text(content)
    with pytest.raises(ArtifactError, match=rf"reports/{name}\.json"):
        result_lines(read_results(folder), [])
    assert status(folder).startswith("Nothing is in production.\n")


def test_results_fit_a_window_of_80_columns_and_name_the_champion_and_not_production(folder):
    evaluation = reports()["evaluation"]
    gain = {"value": 0.0012, "low": None, "high": None}
    evaluation["champion"] = {
        "version": "v0.0.1", "last_day": "2024-01-01", "readable": True, "gains": {"logloss": gain},
        "same_procedure": True, "compared_days": 2,
        "served": {"days": 1, "logloss": gain, "pcoc": {"value": 1.1, "low": 0.9, "high": 1.3}},
    }  # fmt: skip
    write_json(folder / "reports/evaluation.json", evaluation)
    said = adacalib(folder, "results").stdout
    assert "champion: v0.0.1, made from days" in said
    assert "LogLoss gains +0.00120 (no interval) over it" in " ".join(said.split())
    assert "the same procedure" in said
    assert "PCOC 1.10000 (0.90000 to 1.30000) on the 1 test days" in " ".join(said.split())
    assert "production" not in said
    header = next(line for line in said.splitlines() if "method" in line)
    assert header.split() == [  # whole, on one line
        "method", "LogLoss", "deviance", "pooled", "Field-RCE", "Field-AUC", "AUC", "PCOC",
        "excess",
    ]  # fmt: skip


def test_results_say_what_was_changed_after_they_were_made(folder):
    params = {"params.yaml": {"gate": {"min_test_responses": 1000}}}
    deps = [{"path": "data", "md5": "a.dir"}, {"path": "pipeline/core/files.py", "md5": "b"}]
    write_json(folder / "dvc.lock", {"stages": {"gate": {"deps": deps, "params": params}}})
    write_json(folder / "data.dvc", {"outs": [{"path": "data", "md5": "a.dir"}]})
    write_json(folder / "params.yaml", {"gate": {"min_test_responses": 1000}})
    assert changed_since(folder) == []
    write_json(folder / "data.dvc", {"outs": [{"path": "data", "md5": "other.dir"}]})
    write_json(folder / "params.yaml", {"gate": {"min_test_responses": 10}})
    said = adacalib(folder, "results").stdout
    assert "out of date: data, gate in params.yaml changed after these results were made" in said


@pytest.mark.parametrize("text", ["<<<<<<< HEAD\nstages: {}\n", "[stages]\n"])
def test_a_lock_that_a_merge_or_a_hand_damaged_is_one_sentence(folder, text):
    (folder / "dvc.lock").write_text(text)
    finished = adacalib(folder, "results")
    assert finished.returncode == 1
    assert "dvc.lock" in finished.stderr
    assert "Traceback" not in finished.stderr


@pytest.fixture
def empty(tmp_path) -> Path:
    """A project in which nothing has run."""
    (tmp_path / "dvc.yaml").touch()
    (tmp_path / ".dvc").mkdir()
    return tmp_path


def test_outside_a_project_every_command_that_needs_one_says_so_and_writes_nothing(
    tmp_path, monkeypatch
):
    needed = [n for n in typer.main.get_command(app).commands if n not in ANYWHERE]
    wanted = {"data": ["flights"], "override": ["--reason", "x"], "pull": ["--to", "x"]}
    wanted["backtest"] = ["--from", "2024-01-01", "--to", "2024-01-02"]
    assert len(needed) > 15
    monkeypatch.chdir(tmp_path)
    for name in needed:
        refusal = CliRunner().invoke(app, [name, *wanted.get(name, [])]).exception
        assert isinstance(refusal, AdaCalibError), name
        assert "is no project" in str(refusal), name
        assert "\n" not in str(refusal), name
    refused = adacalib(tmp_path, needed[0])
    assert refused.returncode == 1
    assert len(refused.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
    assert adacalib(tmp_path, "data", "--help").returncode == 0


def test_a_report_that_is_not_here_is_not_named(folder):
    assert "report.html" not in adacalib(folder, "results").stdout
    page = folder / "artifacts/report/report.html"
    page.parent.mkdir(parents=True)
    page.touch()
    assert str(page) in adacalib(folder, "results").stdout.replace("\n", "")


def test_a_refusal_is_one_sentence_and_exit_code_1_and_a_traceback_only_on_demand(empty):
    refused = adacalib(empty, "--json", "results")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert len(refused.stderr.strip().splitlines()) == 1
    assert "reports/evaluation.json" in refused.stderr
    assert "Traceback" in adacalib(empty, "results", "--debug").stderr


def test_that_nothing_was_promoted_yet_is_an_answer_and_no_refusal(empty):
    assert adacalib(empty, "history").returncode == 1
    subprocess.run(["git", "init", "--quiet"], cwd=empty, check=True)
    told = adacalib(empty, "--json", "history")
    assert told.returncode == 0
    assert json.loads(told.stdout) == {
        "said": "no version was ever promoted; adacalib promote makes the first",
        "versions": [],
    }


def test_wrong_usage_is_exit_code_2(empty):
    assert adacalib(empty, "promot").returncode == 2
    assert adacalib(empty, "results", "--colour").returncode == 2
    for words in (["--seed", "-1"], ["--rows", "100000000000000"], ["--days", "100000000"]):
        assert adacalib(empty, "data", "simulated", *words).returncode == 2


def test_clean_removes_nothing_where_it_is_refused(empty):
    subprocess.run(["git", "init", "--quiet"], cwd=empty, check=True)
    kept = common_folder(empty / "dvc.yaml") / PLACE / "made"
    kept.parent.mkdir(parents=True)
    kept.write_text("of a day")
    assert adacalib(empty, "clean", "--yes").returncode == 1
    assert kept.exists()


def test_help_names_every_command_the_exit_codes_and_takes_no_time_to_import(tmp_path):
    shown = adacalib(tmp_path, "--help").stdout
    for word in ("data", "demo", "results", "promote", "rollback", "status", "score", "serve"):
        assert word in shown
    assert "Exit codes" in shown


def test_nothing_is_coloured_outside_a_terminal(folder):
    assert "\x1b[" not in adacalib(folder, "results").stdout
