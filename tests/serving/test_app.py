"""What the service answers: the predictor's scores, in every format, and clear refusals."""

import asyncio
import errno
import json
import socket
from functools import partial

import httpx
import numpy as np
import pyarrow as pa
import pytest

from pipeline.serving.app import make_app
from pipeline.serving.predictor import load
from tests.checkpoint.parts import rows
from tests.serving.service import changed, served, until


@pytest.fixture(scope="module")
def client(made):
    with served(made[0], "--max-bytes", 20_000, "--max-rows", 100) as service:
        yield service.client


def columns(table):
    """The columns of a request for the rows of a table."""
    return {name: table[name].to_pylist() for name in ("carrier", "origin", "distance")}


def test_the_answer_is_the_predictors(client, made):
    table = rows(64)
    answer = client.post("/score", json={"columns": columns(table)})
    scores = load(made[0]).predict(table)
    assert answer.status_code == 200
    np.testing.assert_array_equal(answer.json()["field_value_id"], scores.field_value_id)
    np.testing.assert_array_equal(answer.json()["unseen"], scores.unseen)
    np.testing.assert_allclose(answer.json()["probability"], scores.probability, atol=1e-6)
    assert answer.json()["version"] == client.get("/health").json()["version"]


NESTED = json.loads("[" * 500 + "]" * 500)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"distance": [1.0, "far"]}, 'row 1, column distance: "far" is not a number'),
        ({"distance": [1.0, True]}, "row 1, column distance: true is not a number"),
        ({"distance": [1.0]}, "column distance has 1 rows and column carrier has 2"),
        ({"carrier": ["AA", 1.5]}, "row 1, column carrier: 1.5 names no value"),
        ({"carrier": ["AA", ["x"]]}, r'row 1, column carrier: ["x"] names no value'),
        ({"carrier": ["AA", NESTED]}, "row 1, column carrier: [[["),
        ({"distance": [1.0, NESTED]}, "row 1, column distance: [[["),
        ({"carrier": "AA"}, "column carrier must be a list"),
    ],
)
def test_a_wrong_value_is_refused_by_row_and_column(client, change, sentence):
    answer = client.post("/score", json={"columns": columns(rows(2)) | change})
    assert answer.status_code == 422
    assert sentence in answer.json()["error"]


def test_what_is_no_call_is_refused_in_a_sentence(client):
    for path, status in (("/score", 405), ("/", 404), ("/scores", 404), ("/score/", 404)):
        answer = client.get(path)
        assert answer.status_code == status
        assert answer.headers.get("allow") == ("POST" if status == 405 else None)
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
        (b'{"more":' + b"[" * 1020 + b"]" * 1020 + b"}", "the request is not JSON"),
        (b"[]", "the request must be"),
        (b'{"columns": {"carrier": []}}', "column origin is missing"),
    ):
        answer = client.post("/score", content=body)
        assert answer.status_code == 422
        assert sentence in answer.json()["error"]
    many = client.post("/score", json={"columns": columns(rows(101))})
    assert (many.status_code, "100 are allowed" in many.json()["error"]) == (422, True)
    long = client.post("/score", content=b"x" * 20_001)
    assert (long.status_code, "20000 bytes" in long.json()["error"]) == (413, True)
    packed = client.post("/score", content=b"{}", headers={"Content-Encoding": "gzip"})
    assert (packed.status_code, "gzip" in packed.json()["error"]) == (422, True)


def test_numbers_that_name_values_are_spelled_as_in_a_log(client):
    one = client.post("/score", json={"columns": columns(rows(3)) | {"carrier": [7, True, 8.0]}})
    assert one.json()["field_value_id"] == [0, 0, 0]


ARROW = {"content-type": "application/vnd.apache.arrow.stream"}


def stream(table):
    """A table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def test_rows_come_as_columns_as_records_or_as_an_arrow_stream(client):
    table = rows(64)
    one = client.post("/score", json={"columns": columns(table)}).json()
    assert client.post("/score", json={"records": table.to_pylist()}).json() == one
    loud = {name: value.upper() for name, value in ARROW.items()}  # media types have no case
    answer = client.post("/score", content=stream(table), headers=loud)
    assert answer.headers["content-type"] == ARROW["content-type"]
    twice = client.post("/score", content=2 * stream(table), headers=ARROW)
    assert twice.status_code == 422
    said = pa.ipc.open_stream(answer.content).read_all()
    assert said.schema.metadata[b"version"].decode() == one["version"]
    assert said["calibrated_logit"].to_pylist() == one["calibrated_logit"]
    assert said["unseen"].to_pylist() == one["unseen"]


def test_a_wrong_record_or_stream_is_refused_in_a_sentence(client):
    record = rows(1).to_pylist()[0]
    lacking = {name: value for name, value in record.items() if name != "origin"}
    for body, sentence in (
        ({"records": [record, lacking]}, "row 1 lacks column origin"),
        ({"records": [record, 5]}, "row 1 is 5"),
        ({"records": [record], "columns": {}}, "the request must be"),
        ({"records": [record] * 101}, "100 are allowed"),
    ):
        answer = client.post("/score", json=body)
        assert (answer.status_code, sentence in answer.json()["error"]) == (422, True)
    places, letters = pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xff")
    no_text = pa.Array.from_buffers(pa.string(), 1, [None, places, letters])
    for body, sentence in (
        (stream(rows(1).set_column(1, "carrier", no_text)), "no whole Arrow stream"),
        (stream(rows(9))[:-300], "no whole Arrow stream"),
        (b"no stream", "no whole Arrow stream"),
        (stream(rows(1)).replace(b"origin", b"or\xffgin"), "no whole Arrow stream"),
        (stream(rows(3).drop_columns(["origin"])), "column origin is missing"),
        (stream(rows(101)), "100 are allowed"),
    ):
        answer = client.post("/score", content=body, headers=ARROW)
        assert (answer.status_code, sentence in answer.json()["error"]) == (422, True)


def test_what_nobody_foresaw_is_answered_in_json_and_counted(made, monkeypatch):
    predictor = load(made[0])
    monkeypatch.setattr(predictor, "run", lambda _: 1 / 0)
    transport = httpx.ASGITransport(make_app(predictor), raise_app_exceptions=False)

    async def ask():
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            answer = await client.post("/score", json={"columns": columns(rows(1))})
            return answer, (await client.get("/metrics")).text

    answer, metrics = asyncio.run(ask())
    assert (answer.status_code, "ZeroDivisionError" in answer.json()["error"]) == (500, True)
    assert 'adacalib_requests_total{status="500"} 1.0' in metrics


@pytest.mark.parametrize("twice", ["carrier", "columns"])
def test_a_name_that_is_there_twice_is_refused(client, twice):
    body = json.dumps({"columns": columns(rows(1))})
    name = json.dumps(twice)
    doubled = body.replace(f"{name}:", f"{name}: [], {name}:", 1)
    answer = client.post("/score", content=doubled)
    assert (answer.status_code, f"{name} is there twice" in answer.json()["error"]) == (422, True)


def test_what_is_read_may_be_asked_for_without_its_content(client):
    for path in ("/health", "/metrics"):
        answer = client.head(path)
        assert (answer.status_code, answer.content) == (200, b"")


def test_openapi_has_the_models_columns_and_requests_that_work(client):
    page = client.get("/openapi.json").json()
    content = page["paths"]["/score"]["post"]["requestBody"]["content"]["application/json"]
    in_columns, in_records = content["schema"]["oneOf"]
    assert set(in_columns["properties"]["columns"]["required"]) == {"carrier", "origin", "distance"}
    assert in_records["properties"]["records"]["items"]["properties"]["distance"]
    for example in content["examples"].values():
        assert client.post("/score", json=example["value"]).status_code == 200


def test_metrics_count_rows_unseen_values_and_refusals(made):
    """Whichever of the processes answers."""
    table = rows(50)
    with served(made[0], "--workers", 2) as service:
        for _ in range(6):
            with httpx.Client(base_url=service.client.base_url, timeout=120) as other:
                other.post("/score", json={"columns": columns(table)})
        service.client.post("/score", content=b"{")
        text = service.client.get("/metrics").text
    assert "adacalib_rows_total 300.0" in text
    unseen = 6 * table["carrier"].to_pylist().count("ZZ")
    assert f"adacalib_unseen_field_values_total {unseen}.0" in text
    assert 'adacalib_requests_total{status="422"} 1.0' in text
    assert "adacalib_score_seconds_bucket" in text


HALF = b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc"


def test_a_client_that_leaves_half_way_costs_a_count_and_nothing_else(made):
    with served(made[0]) as service:
        port = service.client.base_url.port
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(HALF)
        counted, metrics = 'total{status="499"} 1.0', partial(service.client.get, "/metrics")
        until(lambda: counted in metrics().text, service.process)
        body = {"columns": columns(rows(2))}
        assert service.client.post("/score", json=body).status_code == 200
    assert "Traceback" not in "".join(service.lines)


def test_who_comes_while_a_service_ends_is_refused_and_does_not_wait(made):
    """It does not end, as a client stalls."""
    with served(made[0], adacalib=changed("workers.LEAVE_SECONDS = 10**6")) as service:
        address = "127.0.0.1", service.client.base_url.port
        with socket.create_connection(address) as stalled:
            stalled.sendall(HALF)
            service.client.get("/health")  # so the request before has begun
            service.process.terminate()

            def refused():
                with socket.socket() as other:
                    return other.connect_ex(address) == errno.ECONNREFUSED

            until(refused, service.process)


def test_a_client_that_stalls_while_its_process_leaves_is_told_to_send_again(made):
    with (
        served(made[0], adacalib=changed("workers.LEAVE_SECONDS = 1")) as service,
        socket.create_connection(("127.0.0.1", service.client.base_url.port)) as connection,
    ):
        connection.sendall(HALF)
        service.client.get("/health")  # so the request before has begun
        service.process.terminate()
        answer = b"".join(iter(lambda: connection.recv(1000), b""))
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"send it again" in answer
    assert "Traceback" not in "".join(service.lines)
