"""A real server and worker: what is deployed runs by itself, and down stops all of it.

The last test that uses the session's server, because it stops it.
"""

import json
import time
from datetime import datetime
from typing import Any

import psutil
import pytest

from flows.arrival import day_before
from flows.worktree import git_output
from pipeline.registry.verdicts import production
from tests.flows.conftest import SECONDS, Server


def finished_run(server: Server) -> dict[str, Any]:
    """The first scheduled run of the deployed refresh that has ended."""
    query = {
        "flows": {"name": {"any_": ["refresh"]}},
        "deployments": {"name": {"any_": ["refresh"]}},
        "flow_runs": {"state": {"type": {"any_": ["COMPLETED", "FAILED", "CRASHED"]}}},
        "sort": "EXPECTED_START_TIME_ASC",
    }
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        runs = server.ask("flow_runs/filter", **query)
        if scheduled := [run for run in runs if run["auto_scheduled"]]:
            return scheduled[0]
        time.sleep(1)
    logs = [log["message"] for log in server.ask("logs/filter")]
    raise AssertionError(f"no refresh ended within {SECONDS} s: {logs[-20:]}")


@pytest.mark.slow
def test_a_scheduled_refresh_completes_by_itself_and_down_stops_everything(prefect_server):
    server, project = prefect_server, prefect_server.project
    (deployed,) = server.ask("deployments/filter", deployments={"name": {"any_": ["refresh"]}})
    assert str(project) not in json.dumps(deployed)
    server.ask(f"deployments/{deployed['id']}/resume_deployment")

    run = finished_run(server)
    ended = (run["state_type"], run["state_name"])
    assert ended == ("COMPLETED", "Promoted"), run["state"]["message"]
    day = day_before(datetime.fromisoformat(run["expected_start_time"]), "America/New_York")
    assert f"day={day}" in git_output(project, "log", "--format=%s", "release").splitlines()
    assert production(project).last_day == day

    below = {"parent_flow_run_id": {"any_": [run["id"]]}}
    stages = {r["name"]: r["state_name"] for r in server.ask("flow_runs/filter", flow_runs=below)}
    assert stages == dict.fromkeys(["validate", "merge", "gate"], "Ran")

    started = json.loads((project / ".prefect/local.json").read_text())["processes"]
    family = [psutil.Process(entry["id"]) for entry in started.values()]
    family += [child for process in family for child in process.children(recursive=True)]
    assert server.command("down").stdout == "stopped: worker, server\n"
    assert not [process for process in family if process.is_running()]
    assert server.command("down").stdout == "nothing was up\n"
