"""The refresh of a day: what it lands, runs, commits, promotes, and says."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from flows.evidence import metric_table, verdict_text
from flows.promotion import promote, rollback
from flows.refresh import refresh
from flows.worktree import said
from pipeline.files import read_json
from pipeline.params import read_params, set_values
from pipeline.release.promotion import production
from pipeline.report.terminal import METRICS
from tests.flows.conftest import save

GATE = {
    "passed": False,
    "reasons": ["only 287 responses; collect more days"],
    "checks": [
        {"name": "test responses", "passed": False, "sentence": "only 287 responses"},
        {"name": "gain", "passed": True, "sentence": "the gain is 0.01"},
    ],
}


def test_the_verdict_leads_with_its_reasons():
    lines = verdict_text("2013-09-30", GATE).splitlines()
    assert lines[0] == "# 2013-09-30: refused"
    assert lines[2] == "- only 287 responses; collect more days"
    assert lines[-2:] == [
        "| test responses | failed | only 287 responses |",
        "| gain | passed | the gain is 0.01 |",
    ]


def test_an_undefined_metric_is_shown_as_such():
    metrics = {key: None for _, key, _ in METRICS} | {"logloss": 0.25}
    (row,) = metric_table({"methods": {"model": metrics}})
    assert row["method"] == "what ships"
    assert (row["LogLoss"], row["Field-RCE"], row["AUC"]) == ("0.25000", "undefined", "undefined")


def deployments(project: Path) -> dict:
    """The deployments of prefect.yaml by name."""
    declared = YAML(typ="safe").load((project / "prefect.yaml").read_text())
    return {deployment["name"]: deployment for deployment in declared["deployments"]}


def test_refresh_is_scheduled_with_a_time_zone_and_never_runs_twice_at_once(project):
    declared = deployments(project)["refresh"]
    assert [set(schedule) for schedule in declared["schedules"]] == [{"cron", "timezone"}]
    assert (
        declared["schedules"][0]["timezone"] == read_params(project / "params.yaml").log.time_zone
    )
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


def run_names(client, parent_id) -> dict[str, tuple[str, str]]:
    """State and message of every flow run below another, by the flow run's name."""
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId

    below = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[parent_id]))
    runs = client.read_flow_runs(flow_run_filter=below)
    return {run.name: (run.state.name, run.state.message) for run in runs}


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server")
def test_a_day_is_landed_run_stage_by_stage_committed_and_promoted(checkout):
    from prefect.client.orchestration import get_client

    before = said(checkout, "status", "--porcelain"), said(checkout, "rev-parse", "HEAD")
    state = refresh("2013-09-29", str(checkout), return_state=True)
    assert (state.type.value, state.name) == ("COMPLETED", "Promoted"), state.message
    assert state.message.startswith("v0.0.1 is in production")
    assert said(checkout, "log", "-1", "--format=%s", "release") == "day=2013-09-29"
    assert read_params(checkout / ".release/params.yaml").log.last_day == "2013-09-29"
    assert production(checkout).last_day == "2013-09-29"
    assert (said(checkout, "status", "--porcelain"), said(checkout, "rev-parse", "HEAD")) == before

    with get_client(sync_client=True) as client:
        first = run_names(client, state.state_details.flow_run_id)
        artifacts = {artifact.key: artifact for artifact in client.read_artifacts()}
        logs = [log.message for log in client.read_logs()]
    assert set(first) == {"validate", "merge", "evaluate", "gate"}
    assert set(first.values()) == {("Ran", "it had not run before")}
    assert artifacts["verdict"].data.startswith("# 2013-09-29: passed")
    assert "0.25000" in artifacts["metrics"].data
    assert "merge is at work" in logs

    # The same day again changes nothing.
    again = refresh("2013-09-29", str(checkout), return_state=True)
    assert again.name == "Promoted"
    assert "is this model" in again.message
    with get_client(sync_client=True) as client:
        second = run_names(client, again.state_details.flow_run_id)
    assert set(second.values()) == {("Cached", "nothing changed")}
    assert said(checkout, "rev-list", "--count", "main..release") == "1"

    # An older day never follows a newer one.
    older = refresh("2013-09-28", str(checkout), return_state=True)
    assert (older.type.value, older.name) == ("COMPLETED", "Skipped")
    assert older.message.startswith("2013-09-28 was skipped: the release branch is at 2013-09-29")
    assert production(checkout).version == "v0.0.1"

    # There is nothing before the first version to roll back to.
    back = rollback(None, str(checkout), return_state=True)
    assert back.is_failed()
    assert "there is no way back to an earlier version" in back.message


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server")
def test_a_refused_day_is_committed_reported_and_not_promoted(checkout):
    set_values(checkout / "params.yaml", {"gate.min_test_responses": 5000})
    save(checkout)
    state = refresh("2013-09-29", str(checkout), return_state=True)
    assert (state.type.value, state.name) == ("COMPLETED", "Refused"), state.message
    assert state.message.splitlines() == [
        "2013-09-29 stays out of production",
        "- the test days have 1000 responses, too few",
    ]
    assert said(checkout, "log", "-1", "--format=%s", "release") == "day=2013-09-29"
    assert production(checkout) is None

    by_hand = promote(str(checkout), return_state=True)
    assert by_hand.is_failed()
    assert "the verdict is no, production stays as it is" in by_hand.message


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server")
def test_a_stage_that_refuses_ends_the_day_with_its_sentence_and_nothing_is_committed(checkout):
    set_values(checkout / "params.yaml", {"log.label": "unheard_of"})
    save(checkout)
    state = refresh("2013-09-29", str(checkout), return_state=True)
    assert state.is_failed()
    expected = "validate: no column unheard_of on day 2013-01-01; land the day again"
    assert state.message == expected
    assert said(checkout, "rev-list", "--count", "main..release") == "0"
    assert not (checkout / ".release/reports/gate.json").exists()
    assert read_json(checkout / "data/manifest.json")["format"] == "flights"
