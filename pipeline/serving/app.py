"""The HTTP service: /score, /health and /metrics of the model in a folder."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import orjson
import uvicorn
from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from pipeline.core.errors import DataError
from pipeline.serving.predictor import Predictor
from pipeline.serving.requests import inputs_of
from pipeline.serving.sockets import listening
from pipeline.serving.versions import Versions, short

JSON = "application/json"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
DISCARDED = 256 << 20  # bytes beyond the limit that are read, so that the client reads the answer
INLINE_ROWS = 1024  # fewer are scored on the loop's own thread: a hand-over costs more
LATENCIES = (0.0005, 0.001, 0.002, 0.004, 0.006, 0.01, 0.02, 0.05, 0.1, 0.5)


@dataclass(frozen=True)
class RequestLimits:
    """What a request may hold.

    Attributes:
        body_bytes: of its JSON.
        rows: of its columns.
    """

    body_bytes: int = 4 << 20
    rows: int = 10_000


class ServiceMetrics:
    """Counters of one service, in a registry of their own."""

    def __init__(self, versions: Versions) -> None:
        """ServiceMetrics of a service of these versions."""
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "adacalib_requests", "Requests to /score", ["status"], registry=self.registry
        )
        self.rows = self._counter("rows", "Rows scored")
        self.unseen = self._counter("unseen_field_values", "Rows whose field value nobody has seen")
        self.out_of_range = self._counter(
            "out_of_range_scores", "Rows whose logit lies beyond the knots of its field value"
        )
        self.seconds = Histogram(
            "adacalib_score_seconds", "From a read body to an answer", buckets=LATENCIES,
            registry=self.registry,
        )  # fmt: skip
        self._gauge("versions_taken", "Newer versions taken").set_function(lambda: versions.swaps)
        self._gauge("versions_refused", "Versions that were damaged").set_function(
            lambda: versions.refused
        )

    def _gauge(self, name: str, what: str) -> Gauge:
        return Gauge(f"adacalib_{name}", what, registry=self.registry)

    def _counter(self, name: str, what: str) -> Counter:
        return Counter(f"adacalib_{name}", what, registry=self.registry)


def make_app(versions: Versions, limits: RequestLimits = RequestLimits()) -> FastAPI:
    """The service of a watched model folder.

    POST /score takes `{"columns": {NAME: [value of each row]}}` and answers with `probability`,
    `calibrated_logit`, `uncalibrated_logit` and `field_value_id` of each row and the `version`;
    what is wrong with a request is `{"error": sentence}` with 404, 405, 413 or 422.
    """
    metrics = ServiceMetrics(versions)

    @asynccontextmanager
    async def watching(_: FastAPI) -> AsyncIterator[None]:
        versions.start()
        yield
        versions.stop()

    app = FastAPI(title="AdaCalib", lifespan=watching, docs_url=None, redoc_url=None)

    @app.exception_handler(HTTPException)
    async def no_such_call(request: Request, error: HTTPException) -> Response:
        calls = "POST /score, GET /health and GET /metrics"
        sentence = f"{request.method} {request.url.path} is no call of this service; {calls} are"
        return _error(sentence, error.status_code)

    @app.post("/score")
    async def score(request: Request) -> Response:
        try:
            body = await _body(request, limits.body_bytes)
        except ClientDisconnect:
            return _refusal(metrics, 499, "the client left before its request had come")
        if body is None:
            sentence = f"the request has more than {limits.body_bytes} bytes; send several"
            return _refusal(metrics, 413, sentence)
        began = perf_counter()
        try:
            content = await _answer(body, versions.current, limits.rows, metrics)
        except DataError as error:
            return _refusal(metrics, 422, str(error))
        metrics.seconds.observe(perf_counter() - began)
        metrics.requests.labels("200").inc()
        return Response(content, media_type=JSON)

    @app.get("/health")
    async def health() -> Response:
        state = {
            "status": "ok",
            "version": versions.current.version,
            "map": versions.current.metadata["map"],
            "columns": versions.current.columns,
            "last_refusal": versions.last_refusal,
        }
        return Response(orjson.dumps(state), media_type=JSON)

    @app.get("/metrics")
    async def prometheus() -> Response:
        return Response(generate_latest(metrics.registry), media_type=PROMETHEUS)

    return app


async def _body(request: Request, limit: int) -> bytes | None:
    """The body; None where it is longer than `limit`.

    What comes beyond the limit is thrown away: a client that is cut off while it sends may never
    read why. One that asks before it sends, or announces too much even for that, is answered now.
    """
    announced = int(request.headers.get("content-length", 0))
    if announced > DISCARDED or (announced > limit and "expect" in request.headers):
        return None
    body, length = bytearray(), 0
    async for chunk in request.stream():
        length += len(chunk)
        if length > DISCARDED:
            return None
        if length <= limit:
            body += chunk
    return bytes(body) if length <= limit else None


async def _answer(
    body: bytes, predictor: Predictor, max_rows: int, metrics: ServiceMetrics
) -> bytes:
    inputs = inputs_of(body, predictor, max_rows)
    rows = len(next(iter(inputs.values())))
    if rows <= INLINE_ROWS:
        scores = predictor.run(inputs)
    else:
        scores = await asyncio.to_thread(predictor.run, inputs)
    metrics.rows.inc(rows)
    metrics.unseen.inc(int(scores.unseen.sum()))
    metrics.out_of_range.inc(int(scores.out_of_range.sum()))
    answer = {
        "version": predictor.version,
        "probability": scores.probability,
        "calibrated_logit": scores.calibrated_logit,
        "uncalibrated_logit": scores.uncalibrated_logit,
        "field_value_id": scores.field_value_id,
    }
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)


def _refusal(metrics: ServiceMetrics, status: int, sentence: str) -> Response:
    metrics.requests.labels(str(status)).inc()
    return _error(sentence, status)


def _error(sentence: str, status: int) -> Response:
    return Response(orjson.dumps({"error": sentence}), status_code=status, media_type=JSON)


def serve(
    folder: Path,
    host: str,
    port: int,
    limits: RequestLimits,
    report: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve the model in `folder` until interrupted; a model promoted into it is swapped in.

    Args:
        report: called with a line when it listens, and when a version is taken or refused.

    Raises:
        ToolError: the address is in use or cannot be listened on.
        ArtifactError: a file is missing or damaged.
    """
    with listening(host, port) as place:
        versions = Versions(folder, report=report)
        config = uvicorn.Config(make_app(versions, limits), log_level="warning", access_log=False)
        address = f"[{host}]" if ":" in host else host
        report(f"serving version {short(versions.current)} of {folder} at http://{address}:{port}")
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[place])
