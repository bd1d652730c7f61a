"""The service: a real server on loopback, answers that are the predictor's, and clear refusals."""

import os
import shutil
import socket
import threading
from contextlib import contextmanager

import httpx
import numpy as np
import pytest
import uvicorn
from pipeline.serving.versions import Versions

from pipeline.core.errors import ArtifactError, ToolError
from pipeline.core.files import publish
from pipeline.serving import versions as served_versions
from pipeline.serving.app import RequestLimits, make_app, serve
from pipeline.serving.predictor import load
from pipeline.serving.sockets import listening
from tests.checkpoint.parts import rows


@contextmanager
def running(versions, limits=None):
    """A server in a thread while the block runs, and a client of it."""
    app = make_app(versions, limits or RequestLimits())
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False))
    with listening("127.0.0.1", 0) as place:
        port = place.getsockname()[1]
        thread = threading.Thread(target=server.run, args=([place],), daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
            thread.join(0.01)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            yield server, client
        server.should_exit = True
        thread.join()


@contextmanager
def served(versions, limits=None):
    """A client of a server that runs while the block does."""
    with running(versions, limits) as (_, client):
        yield client


@pytest.fixture(scope="module")
def client(made):
    with served(Versions(made[0]), RequestLimits(body_bytes=20_000, rows=100)) as one:
        yield one


def test_an_accepted_connection_does_not_wait_for_acknowledgements(made):
    with running(Versions(made[0])) as (server, client):
        client.get("/health")
        (connection,) = server.server_state.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def columns(table):
    """The columns of a request for the rows of a table."""
    return {name: table[name].to_pylist() for name in ("carrier", "origin", "distance")}


def test_the_answer_is_the_predictors(client, made):
    table = rows(64)
    answer = client.post("/score", json={"columns": columns(table)})
    scores = load(made[0]).predict(table)
    assert answer.status_code == 200
    np.testing.assert_array_equal(answer.json()["field_value_id"], scores.field_value_id)
    np.testing.assert_allclose(answer.json()["probability"], scores.probability, atol=1e-6)
    assert answer.json()["version"] == client.get("/health").json()["version"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"distance": [1.0, "far"]}, 'row 1, column distance: "far" is not a number'),
        ({"distance": [1.0]}, "column distance has 1 rows and column carrier has 2"),
        ({"carrier": ["AA", 1.5]}, "row 1, column carrier: 1.5 names no value"),
        ({"carrier": ["AA", ["x"]]}, r'row 1, column carrier: ["x"] names no value'),
        ({"carrier": "AA"}, "column carrier must be a list"),
    ],
)
def test_a_wrong_value_is_refused_by_row_and_column(client, change, sentence):
    answer = client.post("/score", json={"columns": columns(rows(2)) | change})
    assert answer.status_code == 422
    assert sentence in answer.json()["error"]


def test_what_is_no_call_is_refused_in_a_sentence(client):
    for path, status in (("/score", 405), ("/", 404), ("/scores", 404)):
        answer = client.get(path)
        assert answer.status_code == status
        assert f"GET {path} is no call of this service; POST /score, " in answer.json()["error"]


def test_a_body_far_beyond_the_limit_is_refused_and_not_cut_off(client):
    answer = client.post("/score", content=b"x" * (70 << 20))
    assert (answer.status_code, "20000 bytes" in answer.json()["error"]) == (413, True)


def test_a_client_that_asks_before_it_sends_is_answered_at_once(client):
    head = (
        b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: 30000\r\nExpect: 100-continue\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", client.base_url.port)) as connection:
        connection.sendall(head)
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_wrong_request_is_refused_in_a_sentence(client):
    for body, sentence in (
        (b"{", "the request is not JSON"),
        (b"[]", "the request must be"),
        (b'{"columns": {"carrier": []}}', "column origin is missing"),
        (b'{"columns": {"carrier": "AA"}}', "column carrier must be a list"),
    ):
        answer = client.post("/score", content=body)
        assert answer.status_code == 422
        assert sentence in answer.json()["error"]
    many = client.post("/score", json={"columns": columns(rows(101))})
    assert (many.status_code, "100 are allowed" in many.json()["error"]) == (422, True)
    long = client.post("/score", content=b"x" * 20_001)
    assert (long.status_code, "20000 bytes" in long.json()["error"]) == (413, True)
    assert client.get("/score").status_code == 405


def test_numbers_that_name_values_are_spelled_as_in_a_log(client):
    one = client.post("/score", json={"columns": columns(rows(3)) | {"carrier": [7, True, 8.0]}})
    assert one.json()["field_value_id"] == [0, 0, 0]


def test_metrics_count_rows_unseen_values_and_refusals(made):
    table = rows(50)
    with served(Versions(made[0])) as client:
        client.post("/score", json={"columns": columns(table)})
        client.post("/score", content=b"{")
        text = client.get("/metrics").text
    assert "adacalib_rows_total 50.0" in text
    unseen = table["carrier"].to_pylist().count("ZZ")
    assert f"adacalib_unseen_field_values_total {unseen}.0" in text
    assert 'adacalib_requests_total{status="422"} 1.0' in text
    assert "adacalib_score_seconds_bucket" in text


def test_a_client_that_leaves_half_way_costs_a_count_and_nothing_else(made, caplog):
    with served(Versions(made[0])) as client:
        port = client.base_url.port
        head = b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc"
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(head)
        seen = (client.get("/metrics").text for _ in range(1000))
        assert any('adacalib_requests_total{status="499"} 1.0' in text for text in seen)
        assert client.post("/score", json={"columns": columns(rows(2))}).status_code == 200
    assert "Traceback" not in caplog.text


def promote(version, folder):
    """Put a version where the service looks, the way a promotion does."""
    with publish(folder) as temporary:
        shutil.copytree(version, temporary)


def test_no_request_is_dropped_while_versions_swap(made, model):
    """Every answer is of one version, whole; both versions answer."""
    versions = Versions(model, seconds=0.02)
    body = {"columns": columns(rows(8))}
    expected = {p.version: p.predict(rows(8)).probability for p in map(load, made)}
    answers, stop = [], threading.Event()

    def ask(base_url):
        with httpx.Client(base_url=base_url, timeout=30) as own:
            while not stop.is_set():
                answers.append(own.post("/score", json=body))

    with served(versions) as client:
        askers = [threading.Thread(target=ask, args=(client.base_url,)) for _ in range(2)]
        for asker in askers:
            asker.start()
        for turn in range(6):
            promote(made[(turn + 1) % 2], model)
            wanted, looks = load(made[(turn + 1) % 2]).version, 0
            while versions.current.version != wanted:
                looks += 1
                assert looks < 1000
                stop.wait(0.02)
        stop.set()
        for asker in askers:
            asker.join()
    assert versions.swaps == 6
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.json()["version"] for answer in answers} == set(expected)
    for answer in answers:
        one = answer.json()
        np.testing.assert_allclose(one["probability"], expected[one["version"]], atol=1e-6)


def test_a_port_in_use_is_refused_before_anything_is_loaded(tmp_path):
    with listening("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ToolError, match=f"port {port} of 127.0.0.1 is in use; choose another"):
            serve(tmp_path / "no model", "127.0.0.1", port, RequestLimits())
    with pytest.raises(ArtifactError, match=r"holds no model; .* adacalib pull --to DIR brings"):
        serve(tmp_path / "no model", "127.0.0.1", port, RequestLimits())


def test_a_version_that_takes_over_or_is_refused_is_reported(made, model):
    lines = []
    versions = Versions(model, report=lines.append)
    promote(made[1], model)
    versions.look()
    (model / "model.onnx").write_bytes(b"")
    versions.look()
    second = load(made[1]).version[:12]
    assert lines[0] == f"version {second} of {model} has taken over"
    assert lines[1].startswith("refused: ")
    assert lines[1].endswith(f"; version {second} goes on")


def test_a_damaged_version_is_not_taken_and_health_says_why(made, model):
    versions = Versions(model)
    before = versions.current
    onnx = model / "model.onnx"
    whole = onnx.read_bytes()
    onnx.write_bytes(whole[:-100])
    versions.look()
    versions.look()
    assert (versions.current, versions.refused) == (before, 1)
    assert "model.onnx is not as it was written" in versions.last_refusal
    onnx.write_bytes(whole)
    versions.look()
    assert (versions.last_refusal, versions.swaps) == (None, 0)
    shutil.rmtree(model)
    versions.look()
    assert versions.current.predict(rows(2)).probability.shape == (2,)


def killed(_):
    """What the system does to a process for which there is no memory."""
    os._exit(137)


def test_a_version_whose_verification_is_killed_is_refused_and_the_next_one_taken(
    made, model, monkeypatch
):
    versions = Versions(model)
    whole = (model / "model.onnx").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(served_versions, "verified", killed)
        (model / "model.onnx").write_bytes(whole[:-100])
        versions.look()
    assert versions.refused == 1
    assert "the process that did so was killed" in versions.last_refusal
    (model / "model.onnx").write_bytes(whole)
    versions.look()
    assert versions.last_refusal is None
