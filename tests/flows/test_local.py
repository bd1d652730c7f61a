"""A real server and worker: what is deployed runs by itself, and down stops all of it."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
from ruamel.yaml import YAML

from flows.local import down, up
from flows.slots import day_before
from flows.worktree import said
from pipeline.errors import ToolError
from pipeline.release.promotion import production
from tests.flows.conftest import save

SECONDS = 300  # on a busy machine; half a minute on an idle one


@pytest.fixture
def project_of_its_own(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny project as the working folder, with Prefect's files in it."""
    monkeypatch.chdir(checkout)
    monkeypatch.setenv("PREFECT_HOME", str(checkout / ".prefect"))
    return checkout


def every_few_seconds(prefect_yaml: Path) -> None:
    """Let `refresh` be due every few seconds instead of once a day."""
    yaml = YAML()
    declared = yaml.load(prefect_yaml)
    declared["deployments"][0]["schedules"] = [{"interval": 15, "timezone": "America/New_York"}]
    yaml.dump(declared, prefect_yaml)


def free_port() -> int:
    """A port of the loopback address that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def command(action: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """`python -m flows.local`, run as a person would."""
    return subprocess.run(
        [sys.executable, "-m", "flows.local", action, *options],
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


@pytest.fixture
def server(project_of_its_own: Path) -> Iterator[str]:
    """The address of the API of a server that has everything deployed; stopped whatever happens."""
    every_few_seconds(project_of_its_own / "prefect.yaml")
    save(project_of_its_own)
    port = free_port()
    try:
        started = command("up", "--port", str(port))
        assert f"Prefect is at http://127.0.0.1:{port}, a worker" in started.stdout, started.stderr
        yield f"http://127.0.0.1:{port}/api"
    finally:
        down()


def ask(api: str, what: str, **query: Any) -> list[dict[str, Any]]:
    """The answer of a Prefect server to a filter."""
    request = urllib.request.Request(
        f"{api}/{what}/filter", json.dumps(query).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def finished_run(api: str) -> dict[str, Any]:
    """The first run of the deployed refresh that has ended."""
    ended = {"type": {"any_": ["COMPLETED", "FAILED", "CRASHED"]}}
    query = {
        "flows": {"name": {"any_": ["refresh"]}},
        "flow_runs": {"state": ended},
        "sort": "EXPECTED_START_TIME_ASC",
    }
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if runs := ask(api, "flow_runs", **query):
            return runs[0]
        time.sleep(1)
    logs = [log["message"] for log in ask(api, "logs")]
    raise AssertionError(f"no refresh ended within {SECONDS} s: {logs[-20:]}")


@pytest.mark.slow
def test_a_scheduled_refresh_completes_by_itself_and_down_stops_everything(
    server, project_of_its_own
):
    run = finished_run(server)
    assert (run["state_type"], run["state_name"]) == ("COMPLETED", "Promoted"), run["state"][
        "message"
    ]
    assert run["auto_scheduled"]
    scheduled = datetime.fromisoformat(run["expected_start_time"])
    day = day_before(scheduled, "America/New_York")
    assert f"day={day}" in said(project_of_its_own, "log", "--format=%s", "release").splitlines()
    assert production(project_of_its_own).last_day == day

    below = {"parent_flow_run_id": {"any_": [run["id"]]}}
    stages = {r["name"]: r["state_name"] for r in ask(server, "flow_runs", flow_runs=below)}
    assert stages == dict.fromkeys(["validate", "merge", "evaluate", "gate"], "Ran")
    (deployed,) = ask(server, "deployments", deployments={"name": {"any_": ["refresh"]}})
    assert str(project_of_its_own) not in json.dumps(deployed)

    started = json.loads((project_of_its_own / ".prefect/local.json").read_text())["processes"]
    family = [psutil.Process(entry["id"]) for entry in started.values()]
    family += [child for process in family for child in process.children(recursive=True)]
    assert command("down").stdout == "stopped: worker, server\n"
    assert not [process for process in family if process.is_running()]
    assert command("down").stdout == "nothing was up\n"


def test_a_port_that_is_taken_is_refused_and_nothing_is_started(project_of_its_own):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ToolError, match=f"port {port} of 127.0.0.1 cannot be used"):
            up(port)
    assert not (project_of_its_own / ".prefect/local.json").exists()


@pytest.mark.slow
def test_a_server_that_ends_at_once_is_told_with_the_place_of_its_last_words(
    project_of_its_own, monkeypatch
):
    monkeypatch.setenv("PREFECT_SERVER_DATABASE_CONNECTION_URL", "no database")
    refused = command("up", "--port", str(free_port()))
    assert refused.returncode == 1
    assert refused.stderr.startswith("up: the Prefect server did not start; see its last words in ")
    assert not (project_of_its_own / ".prefect/local.json").exists()


def test_down_leaves_another_process_alone_that_has_the_number_now(project_of_its_own):
    mine = {"id": os.getpid(), "began": psutil.Process().create_time() - 60}
    state = {"url": "http://127.0.0.1:1", "processes": {"server": mine}}
    (project_of_its_own / ".prefect").mkdir()
    (project_of_its_own / ".prefect/local.json").write_text(json.dumps(state))
    assert down() == "nothing was up"
    assert not (project_of_its_own / ".prefect/local.json").exists()
