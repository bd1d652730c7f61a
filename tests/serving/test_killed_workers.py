"""Workers are killed under load: what they held is answered, and nothing is left behind."""

import json
import shutil
import subprocess
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from time import sleep

import httpx
import psutil
import pytest

from tests.serving.conftest import free_port
from tests.serving.service import load_on, served, until
from tests.whole_walk import ROOT

pytestmark = pytest.mark.slow


NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


@contextmanager
def before(service, folder):
    """The address of an nginx as the example has it, before a service."""
    here, port = service.client.base_url, free_port()
    site = (ROOT / "examples/nginx.conf").read_text()
    site = site.replace("127.0.0.1:8080", f"127.0.0.1:{here.port}").replace(":8000;", f":{port};")
    log, kinds = folder / "error.log", ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {log}; events {{}} "
        f"http {{ access_log off; {places} {site} }}"
    )
    with subprocess.Popen([NGINX, "-e", log, "-c", folder / "nginx.conf"]) as process:
        try:
            until(lambda: answers(f"http://127.0.0.1:{port}/health"), process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def answers(address):
    """Whether something answers there."""
    with suppress(httpx.HTTPError):
        return httpx.get(address).is_success


def kill_a_worker(service, answers):
    """Kill one of two workers under load; return when there are two again."""
    first = service.workers()
    while len(answers) < 50:
        sleep(0.01)
    first[0].kill()
    until(lambda: len({*service.workers()} - {first[0]}) == 2, service.process)


@pytest.fixture(scope="module")
def two_workers(made):
    """A service of two workers, which tests may kill."""
    with served(made[0], "--workers", 2) as service:
        yield service


def test_a_killed_worker_is_replaced_and_costs_at_most_what_it_held(two_workers):
    with load_on(two_workers.client.base_url) as (answers, errors):
        kill_a_worker(two_workers, answers)
    assert errors == []
    said = [answer.status_code for answer in answers]
    assert {200} <= {*said} <= {200, 503}
    assert said.count(503) <= 3
    assert two_workers.client.get("/health").status_code == 200


def test_who_waits_for_a_killed_worker_is_told_and_others_are_let_go(made):
    """One has asked, one is sending, one was answered, one has said nothing."""
    with served(made[0]) as service:
        address = service.client.base_url.host, service.client.base_url.port
        asks, sends, answered, silent = (HTTPConnection(*address, timeout=120) for _ in range(4))
        silent.connect()
        sends.putrequest("POST", "/score")
        sends.putheader("content-length", "9")
        sends.endheaders(b"{")
        for one in (answered, asks):
            one.request("GET", "/health")
            assert one.getresponse().read()
        [worker] = service.workers()
        worker.suspend()
        asks.request("GET", "/health")
        worker.kill()
        for one in (asks, sends):
            response = one.getresponse()
            assert response.status == 503
            assert list(json.loads(response.read())) == ["error"]
        assert [one.sock.recv(1) for one in (answered, silent)] == [b"", b""]
        for one in (asks, sends, answered, silent):
            one.close()
        assert service.client.get("/health").status_code == 200


def test_connections_that_end_leave_nothing_with_the_parent(made):
    with served(made[0]) as service:
        parent = psutil.Process(service.process.pid)
        for _ in range(3):
            service.client.get("/health")
        files = parent.num_fds()
        for _ in range(100):
            httpx.get(f"{service.client.base_url}/health")
        until(lambda: parent.num_fds() <= files, service.process)


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
def test_behind_nginx_a_killed_worker_costs_nothing(two_workers, tmp_path):
    with before(two_workers, tmp_path) as address:
        with load_on(address) as (answers, errors):
            kill_a_worker(two_workers, answers)
        assert errors == []
        assert {answer.status_code for answer in answers} == {200}
