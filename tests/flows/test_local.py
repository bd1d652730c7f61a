"""A server and worker of this folder: what cannot start says so, and others are left alone."""

import json
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psutil
import pytest

from flows.local import down, end_orphaned_runs, up
from pipeline.core.errors import AdaCalibError, ToolError
from pipeline.core.files import write_json
from tests.flows.conftest import SECONDS, free_port, known_database
from tests.read_only import read_only


@pytest.fixture
def project_of_its_own(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny project as the working folder, with Prefect's files in it."""
    monkeypatch.chdir(checkout)
    monkeypatch.setenv("PREFECT_HOME", str(checkout / ".prefect"))
    return checkout


ASK = """
import flows, sys, urllib.request
from pipeline.cli.doctor import diagnoses
print(urllib.request.urlopen(sys.argv[1]).status, [said for name, _, said in diagnoses()][7])
"""


@pytest.mark.parametrize("spared", ["", "example.org", "*"])
def test_a_proxy_stands_before_no_server_of_this_machine(project_of_its_own, spared):
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'[{"status": "ONLINE"}]'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever).start()
        url = f"http://127.0.0.1:{server.server_port}"
        named = {"http_proxy": "http://127.0.0.1:9", "no_proxy": spared, "PREFECT_API_URL": url}
        command = [sys.executable, "-c", ASK, url]
        said = subprocess.run(
            command, env=os.environ | named, capture_output=True, text=True, check=False
        )
        server.shutdown()
    assert said.stdout == f"200 server {url}, 1 worker\n", said.stderr


def test_a_port_that_is_taken_is_refused_and_nothing_is_started(project_of_its_own):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        sentence = f"port {port} of 127.0.0.1 .*: make up PORT=4300$"
        with pytest.raises(ToolError, match=sentence):
            up(port)
    assert not (project_of_its_own / ".prefect/local.json").exists()


def test_a_secret_among_the_parameters_that_would_be_deployed_is_refused(project_of_its_own):
    declared = Path("prefect.yaml").read_text()
    source = '{source: "https://bob:hunter2@example.org/{day}.csv"}'
    Path("prefect.yaml").write_text(declared.replace("parameters: {}", f"parameters: {source}", 1))
    with pytest.raises(AdaCalibError, match=r"https://\*\*\*@example.org"):
        up(free_port())
    assert not (project_of_its_own / ".prefect/local.json").exists()


@pytest.mark.slow
def test_a_server_that_is_gone_is_told_with_what_runs_without_one(project_of_its_own):
    """As after a restart of the machine; then as where the note of it was damaged, too."""

    def run(*words: str) -> str:
        command = [sys.executable, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    note = project_of_its_own / ".prefect/local.json"
    write_json(note, {"url": f"http://127.0.0.1:{free_port()}", "processes": {}})
    assert "python -m flows.local down" in run("-m", "flows.watch")
    assert run("-m", "flows.local", "down") == "nothing was up\n"
    assert run("-c", "import os, flows; print(os.environ.get('PREFECT_API_URL'))") == "None\n"
    note.write_text("{")
    assert "local.json is not JSON" in (said := run("-m", "flows.watch"))
    assert ("Traceback" in said, "make up" in said) == (False, True)


@pytest.mark.slow
def test_a_server_that_ends_at_once_is_quoted_with_its_last_words(project_of_its_own, monkeypatch):
    monkeypatch.setenv("PREFECT_API_REQUEST_TIMEOUT", "no number")
    refused = subprocess.run(
        [sys.executable, "-m", "flows.local", "up", "--port", str(free_port())],
        check=False,
        capture_output=True,
        text=True,
    )
    assert refused.returncode == 1
    assert refused.stderr.startswith("up: the Prefect server did not start; the last that it wrote")
    assert "no number" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    assert not (project_of_its_own / ".prefect/local.json").exists()


@pytest.mark.slow
def test_several_first_starts_at_once_from_one_cold_home_all_run(project_of_its_own):
    """One makes the database, the other waits; none of their servers is left."""
    command = [sys.executable, "-m", "flows.stages", "validate"]
    several = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    ended = [process.communicate(timeout=2 * SECONDS) for process in several]
    assert [process.returncode for process in several] == [0] * 2, [words for _, words in ended]
    assert any("waiting for the start of a server" in words for _, words in ended)
    assert not list((project_of_its_own / ".prefect").glob("server-*"))


STOPPED_AT_THE_END = """
import atexit, signal
from flows.local import some_server
signal.signal(signal.SIGALRM, signal.default_int_handler)
with some_server():
    atexit.register(signal.setitimer, signal.ITIMER_REAL, 0.1)
"""


@pytest.mark.slow
def test_a_run_that_is_stopped_while_its_server_ends_leaves_neither_words_nor_files(
    prefect_server, tmp_path
):
    named = known_database(prefect_server, tmp_path / "home")
    command = [sys.executable, "-c", STOPPED_AT_THE_END]
    done = subprocess.run(command, env=os.environ | named, capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")
    assert not list((tmp_path / "home").glob("server-*"))


def test_down_leaves_another_process_alone_that_has_the_number_now(project_of_its_own):
    mine = {"id": os.getpid(), "began": psutil.Process().create_time() - 60}
    state = {"url": "http://127.0.0.1:1", "processes": {"server": mine}}
    (project_of_its_own / ".prefect").mkdir()
    (project_of_its_own / ".prefect/local.json").write_text(json.dumps(state))
    assert down() == "nothing was up"
    assert not (project_of_its_own / ".prefect/local.json").exists()


def test_other_programs_of_the_machine_are_no_runs():
    """One whose last word is -m, for example."""
    nowhere = f"http://127.0.0.1:{free_port()}/api"
    with subprocess.Popen(["sh", "-m"], stdin=subprocess.PIPE):
        end_orphaned_runs(nowhere)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["home", "checkout"])
def test_a_place_that_may_not_be_written_is_named_in_one_sentence(
    prefect_server, project_of_its_own, place
):
    """Prefect's home, made by another user, and a checkout on a disk that takes nothing."""
    home = project_of_its_own / ".prefect" if place == "home" else project_of_its_own.parent / "own"
    home.mkdir()
    command = [sys.executable, "-m", "flows.refresh", "--day", "2013-09-29"]
    own = os.environ | {"PREFECT_HOME": str(home)}
    own |= {"PREFECT_API_URL": prefect_server.api} if place == "checkout" else {}
    with read_only(home if place == "home" else project_of_its_own):
        refused = subprocess.run(command, check=False, capture_output=True, text=True, env=own)
    assert refused.returncode == 1
    lines = [line for line in refused.stderr.splitlines() if line.startswith("refresh: ")]
    assert len(lines) == 1
    assert str(home if place == "home" else project_of_its_own) in lines[0]
    assert "Traceback" not in refused.stderr
