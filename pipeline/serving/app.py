"""The HTTP calls of a service: /score, /health, /metrics and /openapi.json of one model.

Counters of a service, added up over its processes.
"""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, values
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from pipeline.core.errors import DataError
from pipeline.serving.predictor import SCHEMA, Predictor, ServedScores
from pipeline.serving.requests import ARROW, document, inputs_of
from pipeline.serving.shadow import Shadow
from pipeline.serving.state import RequestLimits, ServiceState, Swaps

LATENCIES = (0.0005, 0.001, 0.002, 0.004, 0.006, 0.01, 0.02, 0.05, 0.1, 0.5)
ROWS = {
    "adacalib_rows": "Rows scored",
    "adacalib_unseen_field_values": "Rows whose field value nobody has seen",
    "adacalib_out_of_range_scores": "Rows whose logit lies beyond the knots of its field value",
}


class ServiceMetrics(Collector):
    """Counters of one process, and a page of all of them, with the versions that came."""

    def __init__(self, state: ServiceState | None, shadow: Shadow | None) -> None:
        """Begin to count.

        Args:
            state: of the service, with a seat; each process counts in a file there, and one that
                takes the seat of another that has ended counts on. None: it is the service alone.
            shadow: whose gauges are on the page, too.
        """
        own = self._shown = CollectorRegistry()
        if state:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(state.folder)
            values.ValueClass = values.MultiProcessValue(lambda: state.seat)
            self._shown = CollectorRegistry()
            MultiProcessCollector(self._shown, str(state.folder))
            self._state = state
            self._shown.register(self)
        if shadow:
            self._shown.register(shadow)
        self.requests = Counter("adacalib_requests", "Requests to /score", ["status"], registry=own)
        self._counts = {name: Counter(name, what, registry=own) for name, what in ROWS.items()}
        levels = "Rows by whose map answered: 0 their own, k the k-th parent's"
        self._levels = Counter("adacalib_field_level_rows", levels, ["level"], registry=own)
        name, what = "adacalib_score_seconds", "From a read body to an answer"
        self._seconds = Histogram(name, what, buckets=LATENCIES, registry=own)

    def count(self, scores: ServedScores, seconds: float) -> None:
        """Count an answer with scores, and the time that it took."""
        self.requests.labels("200").inc()
        self._seconds.observe(seconds)
        seen = len(scores), int(scores.unseen.sum()), int(scores.out_of_range.sum())
        for counter, number in zip(self._counts.values(), seen, strict=True):
            counter.inc(number)
        for level, number in enumerate(np.bincount(scores.field_level).tolist()):
            self._levels.labels(str(level)).inc(number)

    def page(self) -> bytes:
        """All counters as Prometheus reads them."""
        return generate_latest(self._shown)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The numbers of versions."""
        swaps = self._state.swaps
        taken, refused = "Newer versions taken", "Versions that did not take over"
        yield GaugeMetricFamily("adacalib_versions_taken", taken, swaps.taken)
        yield GaugeMetricFamily("adacalib_versions_refused", refused, swaps.refused)


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
    `{"error": sentence}` with 404, 405, 408, 413 or 422.

    Args:
        predictor: the model.
        limits: of a request.
        state: what this process shares with others of its service; None: it is alone.
        shadow: a second version that sees every request.
    """
    calls = _Calls(predictor, limits, ServiceMetrics(state, shadow), state, shadow)
    routes = [
        Route("/score", calls.score, methods=["POST"]),
        Route("/health", calls.health),
        Route("/metrics", calls.prometheus),
        Route("/openapi.json", calls.openapi),
    ]
    handlers = {HTTPException: _no_such_call, Exception: calls.failed}
    service = Starlette(routes=routes, exception_handlers=handlers)
    service.router.redirect_slashes = False  # /score/ is no call
    return service


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
        except asyncio.CancelledError:  # this process leaves and has waited for it
            return self._refusal(408, "the request did not come to its end in time; send it again")
        if body is None:
            sentence = f"the request has more than {self.limits.body_bytes} bytes; send several"
            return self._refusal(413, sentence)
        packing = request.headers.get("content-encoding", "identity").lower()
        if packing != "identity":
            return self._refusal(422, f"the body is packed as {packing}; send it unpacked")
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

    async def failed(self, _: Request, error: Exception) -> Response:
        kind = type(error).__name__
        return self._refusal(500, f"the service failed ({kind}); its standard error says where")

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
                "shadow_refusal": self.state.shadow_refusal if self.state else None,
            }
        )

    async def prometheus(self, _: Request) -> Response:
        return Response(self.metrics.page(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def openapi(self, _: Request) -> Response:
        return _json(document(self.predictor))


async def _no_such_call(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    calls = "POST /score, GET /health, GET /metrics and GET /openapi.json"
    sentence = f"{request.method} {request.url.path} is no call of this service; {calls} are"
    return _json({"error": sentence}, error.status_code, error.headers)


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
    return _json({"version": version, **scores.columns()})


def _json(content: dict[str, object], status: int = 200, headers: Any = None) -> Response:
    text = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(text, status, headers, media_type="application/json")
