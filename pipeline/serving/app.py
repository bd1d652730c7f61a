"""The HTTP calls of a service: /score, /health, /metrics and /openapi.json of one model."""

import asyncio
from time import perf_counter

import numpy as np
import orjson
import pyarrow as pa
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from pipeline.core.errors import DataError
from pipeline.serving.openapi import score_call
from pipeline.serving.predictor import SCHEMA, Predictor, ServedScores
from pipeline.serving.requests import ARROW, inputs_of
from pipeline.serving.service_metrics import ServiceMetrics
from pipeline.serving.shadow import Shadow, ShadowGauges
from pipeline.serving.state import RequestLimits, ServiceState, Swaps

JSON = "application/json"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
DISCARDED = 256 << 20  # bytes beyond the limit that are read, so that the client reads the answer
INLINE_ROWS = 1024  # fewer are scored on the loop's own thread: a hand-over costs more
READ = ["GET", "HEAD"]
LIMITS = RequestLimits()


def make_app(
    predictor: Predictor,
    limits: RequestLimits = LIMITS,
    state: ServiceState | None = None,
    shadow: Shadow | None = None,
) -> FastAPI:
    """The calls of a model's service.

    POST /score takes rows as `pipeline.serving.requests` says and answers with the columns of
    `SCHEMA` and the `version`, in the request's format; what is wrong with a request is
    `{"error": sentence}` with 404, 405, 413 or 422.

    Args:
        predictor: the model.
        limits: of a request.
        state: what this process shares with others of its service; None: it is alone.
        shadow: a second version that sees every request.
    """
    metrics = ServiceMetrics(state)
    if shadow and state:
        metrics.show(ShadowGauges(shadow, predictor, state))
    app = FastAPI(
        title="AdaCalib", version=predictor.version[:12], docs_url=None, redoc_url=None
    )  # fmt: skip

    @app.exception_handler(HTTPException)
    async def no_such_call(request: Request, error: HTTPException) -> Response:
        calls = "POST /score, GET /health, GET /metrics and GET /openapi.json"
        sentence = f"{request.method} {request.url.path} is no call of this service; {calls} are"
        return _error(sentence, error.status_code)

    @app.post("/score", openapi_extra=score_call(predictor))
    async def score(request: Request) -> Response:
        try:
            body = await _body(request, limits.body_bytes)
        except ClientDisconnect:
            return _refusal(metrics, 499, "the client left before its request had come")
        if body is None:
            sentence = f"the request has more than {limits.body_bytes} bytes; send several"
            return _refusal(metrics, 413, sentence)
        began = perf_counter()
        kind = request.headers.get("content-type", "")
        try:
            inputs = inputs_of(body, kind, predictor, limits.rows)
            scores = await _scores(inputs, predictor)
        except DataError as error:
            return _refusal(metrics, 422, str(error))
        metrics.count(scores)
        answer = _answer(scores, predictor.version, kind)
        metrics.seconds.observe(perf_counter() - began)
        metrics.requests.labels("200").inc()
        if shadow:
            shadow.watch(body, kind, inputs, scores)
        return answer

    @app.api_route("/health", methods=READ)
    async def health() -> Response:
        swaps = state.swaps if state else Swaps()
        watched = shadow.predictor.version if shadow else None
        return Response(
            orjson.dumps(_health(predictor, swaps) | {"shadow": watched}), media_type=JSON
        )

    @app.api_route("/metrics", methods=READ)
    async def prometheus() -> Response:
        return Response(metrics.page(), media_type=PROMETHEUS)

    return app


def _health(predictor: Predictor, swaps: Swaps) -> dict[str, object]:
    return {
        "status": "ok",
        "version": predictor.version,
        "map": predictor.metadata["map"],
        "columns": predictor.columns,
        "last_refusal": swaps.last_refusal,
    }


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


async def _scores(inputs: dict[str, np.ndarray], predictor: Predictor) -> ServedScores:
    if len(next(iter(inputs.values()))) <= INLINE_ROWS:
        return predictor.run(inputs)
    return await asyncio.to_thread(predictor.run, inputs)


def _answer(scores: ServedScores, version: str, kind: str) -> Response:
    if kind.startswith(ARROW):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA.with_metadata({"version": version})) as stream:
            stream.write_batch(scores.batch())
        return Response(sink.getvalue().to_pybytes(), media_type=ARROW)
    columns = {name: getattr(scores, name) for name in SCHEMA.names}
    content = orjson.dumps({"version": version, **columns}, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(content, media_type=JSON)


def _refusal(metrics: ServiceMetrics, status: int, sentence: str) -> Response:
    metrics.requests.labels(str(status)).inc()
    return _error(sentence, status)


def _error(sentence: str, status: int) -> Response:
    return Response(orjson.dumps({"error": sentence}), status_code=status, media_type=JSON)
