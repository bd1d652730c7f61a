"""A second version that scores what is asked and never answers: how far apart the two are."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import BoundedSemaphore
from time import monotonic
from typing import Any

import numpy as np
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from pipeline.core.errors import DataError
from pipeline.serving.predictor import Predictor, ServedScores
from pipeline.serving.requests import inputs_of
from pipeline.serving.state import ServiceState

EDGES = np.arange(-12.0, 4.5, 0.5)  # of bins, in calibrated logit
MOST_WAITING = 64  # requests; of more, the shadow does not see all
SHOWN, KEPT = 10, 1000  # field values that differ most: on the page, and of each process
SECONDS = 2.0  # between two times that a process tells the others
NICENESS = 10
UNNAMED = "(unseen or null)"


class Shadow(Collector):
    """A candidate beside the version that answers, with gauges of what the shadows of all processes
    of a service saw.

    Attributes:
        predictor: the candidate.
    """

    def __init__(
        self, predictor: Predictor, served: Predictor, state: ServiceState, limit: float
    ) -> None:
        """A candidate that has seen nothing yet.

        Args:
            predictor: it.
            served: the version that answers.
            state: of the service, with a seat.
            limit: two calibrated logits that are further apart count as beyond it.
        """
        self.predictor, self._served, self._state, self._limit = predictor, served, state, limit
        self._pool = ThreadPoolExecutor(1, initializer=os.nice, initargs=(NICENESS,))
        self._room = BoundedSemaphore(MOST_WAITING)
        self._seen = Counter(rows=0, beyond=0, unscored=0)
        self._bins = np.zeros((2, len(EDGES) + 1), np.int64)
        self._values: dict[str, list[float]] = {}
        self._told = -SECONDS

    def watch(
        self, body: bytes, kind: str, inputs: Mapping[str, np.ndarray], scores: ServedScores
    ) -> None:
        """Score a request that was answered, later and in another thread.

        Args:
            body: of the request.
            kind: its media type.
            inputs: what the version that answers made of it.
            scores: what that said.
        """

        def compare() -> None:
            try:
                own = self.predictor.run(inputs_of(body, kind, self.predictor, len(scores)))
                self._count(scores, own, self._served.field_values(inputs))
            except DataError:  # it reads a column that the request lacks
                self._seen["unscored"] += 1
            finally:
                self._room.release()
            if monotonic() - self._told > SECONDS:
                self._told = monotonic()
                self._state.tell("shadow", self.counts())

        if self._room.acquire(blocking=False):
            self._pool.submit(compare)
        else:
            self._seen["unscored"] += 1

    def _count(self, scores: ServedScores, own: ServedScores, names: np.ndarray) -> None:
        logits = scores.calibrated_logit, own.calibrated_logit
        difference = np.abs(logits[0] - logits[1])
        beyond = int((difference > self._limit).sum())
        self._seen.update(rows=len(difference), beyond=beyond)
        for side, logit in enumerate(logits):
            self._bins[side] += np.bincount(np.searchsorted(EDGES, logit), minlength=len(EDGES) + 1)
        _, first, place = np.unique(scores.field_value_id, return_index=True, return_inverse=True)
        sums = np.bincount(place, difference)
        names[scores.field_level > 0] = UNNAMED  # as many as may come
        for row, total, rows in zip(first, sums, np.bincount(place), strict=True):
            seen = self._values.setdefault(UNNAMED if names[row] is None else names[row], [0, 0.0])
            seen[0] += int(rows)
            seen[1] += float(total)

    def counts(self) -> dict[str, Any]:
        """What it has seen so far, as the other processes read it."""
        most = sorted(self._values.items(), key=lambda value: -value[1][1])[:KEPT]
        return {
            "versions": [self._served.version, self.predictor.version],
            **self._seen,
            "bins": self._bins.tolist(),
            "values": dict(most),
        }

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The gauges of this pair of versions."""
        own = self.counts()
        others = [c for c in self._state.told("shadow") if c["versions"] == own["versions"]]
        told = [*others, own]
        sums = {n: sum(counts[n] for counts in told) for n in ("rows", "beyond", "unscored")}
        share = sums["beyond"] / max(1, sums["rows"])
        for name, value, what in (
            ("rows", sums["rows"], "Rows that the shadow scored, too"),
            ("unscored_requests", sums["unscored"], "Requests that the shadow did not score"),
            ("beyond_limit_share", share, "Share of rows further apart than that"),
            ("psi", psi([counts["bins"] for counts in told]), "PSI of the two's probabilities"),
        ):
            yield GaugeMetricFamily(f"adacalib_shadow_{name}", what, value)
        what = "Mean distance in calibrated logit, of the field values with the largest sums"
        name = "adacalib_shadow_field_value_difference"
        most = GaugeMetricFamily(name, what, labels=["field_value"])
        seen, totals = Counter[str](), Counter[str]()
        for counts in told:
            seen.update({name: count for name, (count, _) in counts["values"].items()})
            totals.update({name: total for name, (_, total) in counts["values"].items()})
        for name, total in totals.most_common(SHOWN):
            most.add_metric([name], total / seen[name])
        yield most


def psi(bins: list[list[list[int]]]) -> float:
    """The population stability index of two histograms, of counts of several processes.

    A pseudo-count of a half keeps it finite.
    """
    sums = np.sum(bins, axis=0)
    shares = (sums + 0.5) / (sums + 0.5).sum(axis=1, keepdims=True)
    return float(((shares[0] - shares[1]) * np.log(shares[0] / shares[1])).sum())
