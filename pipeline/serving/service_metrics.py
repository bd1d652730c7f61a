"""Counters of a service, added up over its processes."""

import os
from collections.abc import Iterator

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, values
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from pipeline.serving.predictor import ServedScores
from pipeline.serving.state import ServiceState

LATENCIES = (0.0005, 0.001, 0.002, 0.004, 0.006, 0.01, 0.02, 0.05, 0.1, 0.5)
REQUESTS, SECONDS = "adacalib_requests", "adacalib_score_seconds"
ROWS = {
    "adacalib_rows": "Rows scored",
    "adacalib_unseen_field_values": "Rows whose field value nobody has seen",
    "adacalib_out_of_range_scores": "Rows whose logit lies beyond the knots of its field value",
}


class ServiceMetrics(Collector):
    """Counters of one process, and a page of all of them, with the versions that came."""

    def __init__(self, state: ServiceState | None = None) -> None:
        """Begin to count.

        Args:
            state: of the service, with a seat; each process counts in a file there, and one that
                takes the seat of another that has ended counts on. None: it is the service alone.
        """
        own = self._shown = CollectorRegistry()
        if state:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(state.folder)
            values.ValueClass = values.MultiProcessValue(lambda: state.seat)
            self._shown = CollectorRegistry()
            MultiProcessCollector(self._shown, str(state.folder))
            self._state = state
            self._shown.register(self)
        self.requests = Counter(REQUESTS, "Requests to /score", ["status"], registry=own)
        self._counts = {name: Counter(name, what, registry=own) for name, what in ROWS.items()}
        levels = "Rows by whose map answered: 0 their own, k the k-th parent's"
        self._levels = Counter("adacalib_field_level_rows", levels, ["level"], registry=own)
        self._seconds = Histogram(
            SECONDS, "From a read body to an answer", buckets=LATENCIES, registry=own
        )

    def count(self, scores: ServedScores, seconds: float) -> None:
        """Count an answer with scores, and the time that it took."""
        self.requests.labels("200").inc()
        self._seconds.observe(seconds)
        seen = len(scores), int(scores.unseen.sum()), int(scores.out_of_range.sum())
        for counter, number in zip(self._counts.values(), seen, strict=True):
            counter.inc(number)
        for level, number in enumerate(np.bincount(scores.field_level).tolist()):
            self._levels.labels(str(level)).inc(number)

    def show(self, collector: Collector) -> None:
        """Put more on the page."""
        self._shown.register(collector)

    def page(self) -> bytes:
        """All counters as Prometheus reads them."""
        return generate_latest(self._shown)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The numbers of versions."""
        swaps = self._state.swaps
        taken, refused = "Newer versions taken", "Versions that did not take over"
        yield GaugeMetricFamily("adacalib_versions_taken", taken, swaps.taken)
        yield GaugeMetricFamily("adacalib_versions_refused", refused, swaps.refused)
