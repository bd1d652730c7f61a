"""The HTTP calls of a service: /score, /health, /metrics and /openapi.json of one model."""

import asyncio
from dataclasses import dataclass
from time import perf_counter

import orjson
import pyarrow as pa
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from pipeline.core.errors import DataError
from pipeline.serving.openapi import document
from pipeline.serving.predictor import SCHEMA, Predictor, ServedScores
from pipeline.serving.requests import ARROW, inputs_of
from pipeline.serving.service_metrics import ServiceMetrics
from pipeline.serving.shadow import Shadow
from pipeline.serving.state import RequestLimits, ServiceState, Swaps

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
DISCARDED = 256 << 20  # bytes beyond the limit that are read, so that the client reads the answer
INLINE_ROWS = 1024  # fewer are scored on the loop's own thread: a hand-over costs more
LIMITS = RequestLimits()


def make_app(
    predictor: Predictor,
    limits: RequestLimits = LIMITS,
    state: ServiceState | None = None,
    shadow: Shadow | None = None,
) -> Starlette:
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
    calls = _Calls(predictor, limits, ServiceMetrics(state), state, shadow)
    if shadow:
        calls.metrics.show(shadow)
    routes = [
        Route("/score", calls.score, methods=["POST"]),
        Route("/health", calls.health),
        Route("/metrics", calls.prometheus),
        Route("/openapi.json", calls.openapi),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _no_such_call})


@dataclass(frozen=True)
class _Calls:
    predictor: Predictor
    limits: RequestLimits
    metrics: ServiceMetrics
    state: ServiceState | None
    shadow: Shadow | None

    async def score(self, request: Request) -> Response:
        try:
            body = await _body(request, self.limits.body_bytes)
        except ClientDisconnect:
            return self._refusal(499, "the client left before its request had come")
        if body is None:
            sentence = f"the request has more than {self.limits.body_bytes} bytes; send several"
            return self._refusal(413, sentence)
        began, kind = perf_counter(), request.headers.get("content-type", "").lower()
        try:
            inputs = inputs_of(body, kind, self.predictor, self.limits.rows)
            few = len(next(iter(inputs.values()))) <= INLINE_ROWS
            run = self.predictor.run
            scores = run(inputs) if few else await asyncio.to_thread(run, inputs)
        except DataError as error:
            return self._refusal(422, str(error))
        answer = _answer(scores, self.predictor.version, kind)
        self.metrics.count(scores, perf_counter() - began)
        if self.shadow:
            self.shadow.watch(body, kind, inputs, scores)
        return answer

    def _refusal(self, status: int, sentence: str) -> Response:
        self.metrics.requests.labels(str(status)).inc()
        return _json({"error": sentence}, status)

    async def health(self, _: Request) -> Response:
        swaps = self.state.swaps if self.state else Swaps()
        return _json(
            {
                "status": "ok",
                "version": self.predictor.version,
                "map": self.predictor.metadata["map"],
                "columns": self.predictor.columns,
                "last_refusal": swaps.last_refusal,
                "shadow": self.shadow.predictor.version if self.shadow else None,
            }
        )

    async def prometheus(self, _: Request) -> Response:
        return Response(self.metrics.page(), media_type=PROMETHEUS)

    async def openapi(self, _: Request) -> Response:
        return _json(document(self.predictor))


async def _no_such_call(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    calls = "POST /score, GET /health, GET /metrics and GET /openapi.json"
    sentence = f"{request.method} {request.url.path} is no call of this service; {calls} are"
    return _json({"error": sentence}, error.status_code)


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


def _answer(scores: ServedScores, version: str, kind: str) -> Response:
    if kind.startswith(ARROW):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA.with_metadata({"version": version})) as stream:
            stream.write_batch(scores.batch())
        return Response(sink.getvalue().to_pybytes(), media_type=ARROW)
    columns = {name: getattr(scores, name) for name in SCHEMA.names}
    return _json({"version": version, **columns})


def _json(content: dict[str, object], status: int = 200) -> Response:
    text = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(text, status, media_type="application/json")
