"""The refresh of a day: what it lands, runs, commits, promotes, and says."""

import errno
import logging
import subprocess
import sys
from base64 import b64decode
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from flows.backfill import backfill
from flows.evidence import verdict_text
from flows.promotion import promote, rollback
from flows.refresh import refresh
from flows.worktree import git_output, share
from pipeline.core.files import read_json
from pipeline.params.params_file import read_params, set_values
from pipeline.registry.history import UNNAMED, last_refresh
from pipeline.registry.verdicts import Production, production
from pipeline.report.result_tables import METRICS, metric_table
from tests.flows.conftest import Server, add_remotes, refuse_first_push, save, until

STAGES = ("validate", "merge", "gate")
GATE = {
    "passed": False,
    "reasons": ["only 287 responses; collect more days"],
    "checks": [
        {"name": "gain", "passed": True, "sentence": "the gain is 0.01"},
        {
            "name": "test responses",
            "passed": False,
            "sentence": "only 287 responses; collect more days",
        },
    ],
}


def test_the_verdict_asks_every_question_what_failed_first_and_its_sentences_are_whole():
    lines = verdict_text("2013-09-30", GATE).splitlines()
    assert lines[0] == "# 2013-09-30: refused"
    assert lines[2:] == [
        "- test responses **no**: only 287 responses; collect more days",
        "- gain **yes**: the gain is 0.01",
    ]


def test_an_undefined_metric_is_shown_as_such():
    metrics = {key: None for _, key, _ in METRICS} | {"logloss": 0.25}
    (row,) = metric_table({"methods": {"model": metrics}})
    assert row["method"] == "what ships"
    assert (row["LogLoss"], row["Field-RCE"], row["AUC"]) == ("0.25000", "undefined", "undefined")


def test_a_day_older_than_production_is_skipped_before_anything_is_landed(history, monkeypatch):
    held = Production("v0.0.3", "c" * 40, "2013-10-29", "2013-10-28", "a" * 64)
    monkeypatch.setattr("flows.refresh.production", lambda _: held)
    monkeypatch.setattr("flows.refresh.bring", None)
    monkeypatch.setattr("flows.refresh.get_run_logger", lambda: logging.getLogger("refresh"))
    monkeypatch.setattr("flows.refresh.notify", lambda news: None)
    state = refresh.fn("2013-09-29", str(history))
    assert (state.type.value, state.name) == ("COMPLETED", "Skipped")
    assert "v0.0.3 in production was made from days up to 2013-10-28" in state.message


def test_a_run_that_no_schedule_starts_needs_its_day(tmp_path):
    command = [sys.executable, "-m", "flows.refresh"]
    refused = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "--day YYYY-MM-DD" in " ".join(refused.stderr.replace("│", " ").split())


def test_a_full_disk_ends_the_day_in_one_sentence(history, monkeypatch):
    def write(*_):
        raise OSError(errno.ENOSPC, "No space left on device", "params.yaml")

    monkeypatch.setattr("flows.refresh._attempt", write)
    monkeypatch.setattr("flows.refresh.notify", lambda news: None)
    state = refresh.fn("2013-09-29", str(history))
    assert state.is_failed()
    sentence = "No space left on device: 'params.yaml'; make room or give the right, run again"
    assert state.message == f"[Errno {errno.ENOSPC}] {sentence}"
    assert last_refresh(history).endswith(sentence)


def deployments(project: Path) -> dict:
    """The deployments of prefect.yaml by name."""
    declared = YAML(typ="safe").load((project / "prefect.yaml").read_text())
    return {deployment["name"]: deployment for deployment in declared["deployments"]}


def test_refresh_is_scheduled_with_a_time_zone_and_never_runs_twice_at_once(project):
    declared = deployments(project)["refresh"]
    assert [set(schedule) for schedule in declared["schedules"]] == [{"cron", "timezone"}]
    assert "$ADACALIB_TIME_ZONE" in declared["schedules"][0]["timezone"]
    assert declared["concurrency_limit"] == {"limit": 1, "collision_strategy": "ENQUEUE"}


def test_what_is_deployed_names_no_folder_of_a_machine(project):
    text = (project / "prefect.yaml").read_text()
    assert "{{ $ADACALIB_HOME }}" in text
    assert str(project) not in text
    assert set(deployments(project)) == {"refresh", "backfill", "promote", "rollback", "watch"}


def test_the_entry_points_of_the_deployments_are_flows(project):
    from prefect.flows import load_flow_from_entrypoint

    for name, deployment in deployments(project).items():
        assert load_flow_from_entrypoint(deployment["entrypoint"]).name == name


def run_names(server, parent_id) -> dict[str, tuple[str, str]]:
    """State and message of every flow run below another, by the flow run's name."""
    runs = server.ask("flow_runs/filter", flow_runs={"parent_flow_run_id": {"any_": [parent_id]}})
    return {run["name"]: (run["state_name"], run["state"]["message"]) for run in runs}


def everything_kept(checkout: Path, server: Server) -> bytes:
    """All that a run leaves behind: git's objects, files, Prefect's database and logs."""
    batch = ["git", "cat-file", "--batch-all-objects", "--batch", "--buffer"]
    objects = subprocess.run(batch, cwd=checkout, capture_output=True, check=True).stdout
    places = [checkout / ".git", checkout / ".release", server.project / ".prefect"]
    files = [file for place in places for file in place.rglob("*") if file.is_file()]
    return objects + b"".join(file.read_bytes() for file in files)


def events_of(server: Server) -> set[str]:
    """The names of the newest events; the server records them some time after it took them."""
    return {event["event"] for event in server.ask("events/filter", limit=50)["events"]}


@pytest.mark.slow
def test_a_day_is_landed_run_committed_pushed_and_promoted_and_nothing_shows_a_secret(
    checkout, prefect_server, monkeypatch
):
    """A push that fails half way is finished by the next run, one commit a day."""
    monkeypatch.setenv("CHEAP_TOKEN", "k3pt-qu1et-of-a-stage")
    monkeypatch.setenv("ADACALIB_NOTIFY", "json://k3pt-qu1et-user@127.0.0.1:9/k3pt-qu1et-path")
    monkeypatch.setattr("flows.worktree.share", share.with_options(retries=0))
    bare = refuse_first_push(add_remotes(checkout), checkout.parent / "stored")
    before = (
        git_output(checkout, "status", "--porcelain"),
        git_output(checkout, "rev-parse", "HEAD"),
    )
    state = refresh("2013-09-29", str(checkout), return_state=True)
    assert state.is_failed()
    assert state.message.startswith("2013-09-29 is committed here but not pushed: git remote 'orig")
    first = run_names(prefect_server, str(state.state_details.flow_run_id))
    assert first == dict.fromkeys(STAGES, ("Ran", "it had not run before"))
    assert git_output(checkout, "log", "-1", "--format=%s", "release") == "day=2013-09-29"
    assert read_params(checkout / ".release/params.yaml").split.last_day == "2013-09-29"
    assert production(checkout) is None

    report = checkout / ".release/artifacts/report/report.html"
    report.parent.mkdir()
    for page, text in {"report.html": f"<p>{UNNAMED}", "reliability.svg": "<svg></svg>"}.items():
        report.with_name(page).write_text(text)
    again = refresh("2013-09-29", str(checkout), return_state=True)
    assert (again.type.value, again.name) == ("COMPLETED", "Promoted"), again.message
    assert again.message.startswith("v0.0.1 is in production")
    second = run_names(prefect_server, str(again.state_details.flow_run_id))
    assert set(second.values()) == {("Cached", "nothing changed")}
    assert git_output(checkout, "rev-list", "--count", "main..release") == "1"
    assert git_output(bare, "log", "-1", "--format=%s", "release") == "day=2013-09-29"
    assert int((bare / "held").read_text().split()[0]) > 0  # data went first
    assert production(checkout).last_day == "2013-09-29"
    assert (
        git_output(checkout, "status", "--porcelain"),
        git_output(checkout, "rev-parse", "HEAD"),
    ) == before

    artifacts = {a["key"]: a["data"] for a in prefect_server.ask("artifacts/latest/filter")}
    assert artifacts["verdict"].startswith("# 2013-09-29: passed")
    assert "0.25000" in artifacts["metrics"]
    assert "2013-09-29" in artifacts["trend"]
    assert b64decode(artifacts["reliability"].partition("base64,")[2]) == b"<svg></svg>"
    kept = report.parent.with_name("report-2013-09-29") / "report.html"  # the next day's is another
    assert (artifacts["pages-2013-09-29"], kept.read_text()) == (
        f"- [report]({kept.as_uri()}): `{kept}`",
        f"<p>2013-09-29, commit {git_output(bare, 'rev-parse', 'release')[:10]}",
    )
    logs = [log["message"] for log in prefect_server.ask("logs/filter", sort="TIMESTAMP_DESC")]
    assert "merge is at work with ***" in logs
    until(lambda: {"adacalib.failed", "adacalib.promoted"} <= events_of(prefect_server))
    assert b"k3pt-qu1et" not in everything_kept(checkout, prefect_server)

    # An older day never follows a newer one, and one that never came is a state, no crash.
    older = refresh("2013-09-28", str(checkout), return_state=True)
    assert (older.type.value, older.name) == ("COMPLETED", "Skipped")
    assert "2013-09-28 was skipped: the release branch is at 2013-09-29" in older.message
    late = refresh("2013-10-05", str(checkout), source="no-{day}", return_state=True)
    assert (late.type.value, late.name) == ("FAILED", "Late")
    assert late.message == "2013-10-05 has not landed: there is no file no-2013-10-05"
    assert production(checkout).version == "v0.0.1"
    assert last_refresh(checkout).startswith("The last refresh, of 2013-10-05, ended ")

    # There is nothing before the first version to roll back to.
    back = rollback(None, str(checkout), return_state=True)
    assert back.is_failed()
    assert "nothing was in production before v0.0.1" in back.message


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server")
def test_a_refused_day_is_committed_reported_and_not_promoted(checkout):
    set_values(checkout / "params.yaml", {"gate.min_test_responses": 5000})
    save(checkout)
    state = refresh("2013-09-29", str(checkout), return_state=True)
    assert (state.type.value, state.name) == ("COMPLETED", "Refused"), state.message
    said, reason = state.message.splitlines()
    assert said.startswith("2013-09-29 stays out of production")
    assert ".release" in said  # where override and promote are about this model
    assert reason == "- the test days have 1000 responses, too few"
    assert git_output(checkout, "log", "-1", "--format=%s", "release") == "day=2013-09-29"
    assert production(checkout) is None

    by_hand = promote(str(checkout), return_state=True)
    assert by_hand.is_failed()
    assert "the verdict is no, production stays as it is" in by_hand.message

    # Days of the past are made beside it; what is made is not made again.
    release = git_output(checkout, "rev-parse", "release")
    filled = backfill("2013-09-28", "2013-09-28", str(checkout), return_state=True)
    assert filled.name == "Backfilled", filled.message
    assert filled.message.splitlines()[1].startswith("2013-09-28: refused: the test days have 1000")
    again = backfill("2013-09-28", "2013-09-28", str(checkout), return_state=True)
    assert again.message.splitlines() == ["1 days", "2013-09-28: made before"]
    late = backfill("2030-01-01", "2030-01-01", str(checkout), return_state=True)
    assert late.message.endswith("; land it, or leave it out")
    assert git_output(checkout, "log", "-1", "--format=%s", "backfill") == "day=2013-09-28"
    assert git_output(checkout, "rev-parse", "release") == release
    assert production(checkout) is None


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server")
def test_a_stage_that_refuses_ends_the_day_with_its_sentence_and_nothing_is_committed(checkout):
    set_values(checkout / "params.yaml", {"log.label": "unheard_of"})
    save(checkout)
    state = refresh("2013-09-29", str(checkout), return_state=True)
    assert state.is_failed()
    expected = "validate: no column unheard_of on day 2013-01-01; land the day again"
    assert state.message == expected
    assert git_output(checkout, "rev-list", "--count", "main..release") == "0"
    assert not (checkout / ".release/reports/gate.json").exists()
    assert read_json(checkout / "data/manifest.json")["format"] == "flights"
