"""Versions and workers come and go under load, in real processes."""

import shutil
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from time import sleep

import httpx
import numpy as np
import psutil
import pytest

from pipeline.core.errors import ToolError
from pipeline.core.files import publish
from pipeline.serving.predictor import load
from pipeline.serving.state import RequestLimits
from pipeline.serving.workers import listening, serve
from tests.checkpoint.parts import rows
from tests.serving.conftest import free_port
from tests.serving.service import BODY, HERE, changed, load_on, promote, served, until

pytestmark = pytest.mark.slow


def test_no_request_is_dropped_while_versions_swap(made, model):
    """Every answer is of one version, whole; both versions answer."""
    expected = {p.version: p.predict(rows(8)).probability for p in map(load, made)}
    with served(model) as service:
        with load_on(service.client.base_url) as (answers, errors):
            for turn in (1, 2):
                promote(made[turn % 2], model)
                assert load(model).version[:12] in service.said("has taken over", turn)
        assert "adacalib_versions_taken 2.0" in service.client.get("/metrics").text
    assert errors == []
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.json()["version"] for answer in answers} == set(expected)
    for answer in answers:
        one = answer.json()
        np.testing.assert_allclose(one["probability"], expected[one["version"]], atol=1e-6)


def test_clients_that_stall_keep_no_version_answering(made, model):
    newer = load(made[1]).version
    stalls = changed("workers.LEAVE_SECONDS = 10**6")
    with served(model, "--workers", 2, adacalib=stalls) as service, ExitStack() as clients:
        address = service.client.base_url
        for _ in range(16):
            client = clients.enter_context(socket.create_connection((address.host, address.port)))
            client.sendall(b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        promote(made[1], model)
        until(lambda: said_by(service, 20) == {newer}, service.process)


def said_by(service, times):
    """The versions of so many answers, each on a connection of its own."""
    asked = (httpx.get(f"{service.client.base_url}/health") for _ in range(times))
    return {answer.json()["version"] for answer in asked}


def test_a_worker_that_hangs_is_replaced_and_requests_go_on(made):
    with served(made[0], "--workers", 2, adacalib=changed("workers.LOAD_SECONDS = 20")) as service:
        stuck = service.workers()[0]
        stuck.suspend()
        until(lambda: len({*service.workers()} - {stuck}) == 2, service.process)
        with load_on(service.client.base_url) as (answers, errors):
            while len(answers) < 50:
                sleep(0.01)
                assert service.process.poll() is None
        assert errors == []
        assert {answer.status_code for answer in answers} == {200}


def test_a_version_that_fails_its_probe_never_takes_over_and_health_says_why(made, model):
    with served(model) as service:
        version = load(model).version
        onnx = model / "model.onnx"
        whole = onnx.read_bytes()
        onnx.write_bytes(whole[:-100])
        assert version[:12] in service.said("refused: ")
        health = service.client.get("/health").json()
        assert health["version"] == version
        assert "model.onnx is not as it was written" in health["last_refusal"]
        assert service.client.post("/score", json=BODY).json()["version"] == version
        onnx.write_bytes(whole)
        service.said("has taken over")
        assert service.client.get("/health").json()["last_refusal"] is None
        assert "adacalib_versions_refused 1.0" in service.client.get("/metrics").text
        shutil.rmtree(model)
        assert service.client.post("/score", json=BODY).status_code == 200


def test_a_killed_worker_comes_back_as_the_version_before_a_refused_one(made, model):
    """Where a link says which version is served, as `adacalib pull` leaves it."""
    link, version = model.with_name("served"), load(made[0]).version
    link.symlink_to(made[0], target_is_directory=True)
    (model / "model.onnx").write_bytes(b"half a model")
    with served(link) as service:
        with publish(link) as other:
            other.symlink_to(model, target_is_directory=True)
        service.said("refused: ")
        service.workers()[0].kill()
        assert service.client.get("/health").json()["version"] == version


def test_a_service_that_has_no_model_left_ends_and_says_why(made, model):
    """Who asks is turned away and does not wait."""
    with served(model) as service:
        (model / "model.onnx").write_bytes(b"half a model")
        service.said("refused: ")
        service.workers()[0].kill()
        assert service.process.wait(120) == 1
    assert "adacalib: " in service.lines[-1]
    assert "model.onnx is not as it was written" in service.lines[-1]


def test_no_worker_stays_behind_with_the_version_before(made, model):
    """The second one to load was killed when the first one served already."""
    with served(model, "--workers", 2) as service:
        first = {*service.workers()}
        promote(made[1], model)
        until(lambda: len({*service.workers()} - first) == 2, service.process)
        max({*service.workers()} - first, key=psutil.Process.create_time).kill()
        service.said("refused: ")
        service.said("has taken over")
        said = {httpx.get(f"{service.client.base_url}/health").json()["version"] for _ in range(20)}
    assert said == {load(made[1]).version}


@pytest.mark.parametrize(
    ("end", "code"), [(signal.SIGTERM, 0), (signal.SIGHUP, 0), (signal.SIGKILL, -9)]
)
def test_a_service_ends_with_what_it_started_however_it_ends(made, end, code):
    with served(made[0], "--workers", 2) as service:
        workers = service.workers()
        assert len(workers) == 2
        service.process.send_signal(end)
        _, alive = psutil.wait_procs(workers, timeout=120)
        assert alive == []
        assert service.process.wait() == code


FAILING = changed(
    "found = [workers.ServedFolder.signature]",
    "def signature(served):",
    "    if found: return found.pop()(served)",
    "    raise OSError('the parent has failed')",
    "workers.ServedFolder.signature = signature",
)


def test_a_service_whose_parent_fails_ends_and_says_why(made):
    """Its processes do not go on without it, deaf to whoever would end it."""
    with served(made[0], adacalib=FAILING) as service:
        assert service.process.wait(120) == 1
    assert "the parent has failed" in service.lines[-1]


UNHEARD = ("nohup", "bash", "-c", 'exec "$@" 2> >(head -n 1 >&2)', "bash", *HERE)
FULL = changed(
    "def full(*_): raise OSError(28, 'No space left on device')", "state.write_json = full"
)


@pytest.mark.parametrize("program", [HERE, UNHEARD, FULL])
def test_versions_are_taken_also_where_nobody_listens_or_nothing_can_be_noted(
    made, model, program, tmp_path_factory, monkeypatch
):
    """/tmp was cleaned; stderr is a closed pipe and the terminal is lost, under nohup; or the disk
    is full."""
    notes = tmp_path_factory.mktemp("notes")
    monkeypatch.setenv("TMPDIR", str(notes))
    with served(model, adacalib=program) as service:
        if program == HERE:
            shutil.rmtree(next(notes.glob("adacalib-*")))
        if program == UNHEARD:
            for process in (*service.workers(), service.process):
                process.send_signal(signal.SIGHUP)
        promote(made[1], model)
        health, version = partial(service.client.get, "/health"), load(made[1]).version
        until(lambda: health().json()["version"] == version, service.process)
        service.process.terminate()
        assert service.process.wait(120) == 0


def test_a_version_whose_process_was_killed_is_tried_again_as_the_refusal_says(made, model):
    with served(model) as service:
        [first] = service.workers()
        promote(made[1], model)
        until(lambda: {*service.workers()} - {first}, service.process).pop().kill()
        command = service.said("refused: ").partition("? ")[2].partition(" has it")[0]
        subprocess.run(command.split(), check=True)
        service.said("has taken over")
        assert service.client.get("/health").json()["version"] == load(made[1]).version


def test_a_service_ends_also_while_a_version_is_loaded(made, model):
    with served(model, adacalib=changed("workers.LOAD_SECONDS = 10**6")) as service:
        [first] = service.workers()
        promote(made[1], model)
        until(lambda: {*service.workers()} - {first}, service.process).pop().suspend()
        service.process.terminate()
        assert service.process.wait(120) == 0


def test_an_accepted_connection_does_not_wait_for_acknowledgements():
    with (
        listening("127.0.0.1", 0) as place,
        socket.create_connection(place.getsockname()),
        place.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_more_clients_are_served_than_a_shell_lets_a_program_have_files(made):
    few = ("bash", "-c", 'ulimit -Sn 64; exec "$@"', "bash", *HERE)
    with served(made[0], adacalib=few) as service, ExitStack() as clients:
        address = "127.0.0.1", service.client.base_url.port
        for _ in range(100):
            clients.enter_context(socket.create_connection(address))
        assert service.client.get("/health").status_code == 200


def test_another_event_loop_that_is_installed_is_not_taken(made, tmp_path, monkeypatch):
    """uvloop's connections could not be ended for all that hold them."""
    (tmp_path / "uvloop.py").write_text("raise SystemExit('uvloop was asked for')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with served(made[0]) as service:
        assert service.client.get("/health").status_code == 200


def test_a_client_that_offers_another_protocol_is_answered_in_this_one(made):
    """As java.net.http does by default; the body is the request's, whatever comes after."""
    offer = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMA"}
    with served(made[0]) as service:
        for _ in range(2):
            answer = service.client.post("/score", json=BODY, headers=offer)
            assert answer.status_code == 200
        plain = service.client.post("/score", json=BODY)
    assert answer.json() == plain.json()


def test_a_port_in_use_is_refused_before_anything_is_loaded(tmp_path):
    with listening("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ToolError, match=f"port {port} of 127.0.0.1 .*choose another"):
            serve(tmp_path / "no model", "127.0.0.1", port, RequestLimits())


def test_a_folder_without_a_model_is_refused_in_a_sentence(tmp_path):
    command = [sys.executable, "-m", "pipeline.cli.main", "serve", "--port", str(free_port())]
    finished = subprocess.run(
        [*command, "--model", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 1
    assert "holds no model" in finished.stderr
    assert "Traceback" not in finished.stderr
