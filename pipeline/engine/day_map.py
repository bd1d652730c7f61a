"""One map over days: the same function of every day, several at a time, in the order of days."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from pipeline.core.progress import WorkProgress
from pipeline.engine.cluster import DASK, Workers, width_of
from pipeline.formats.sort_keys import usable_threads

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_days(
    work: Callable[[Item], Result], days: Sequence[Item], title: str, unit: str = "days"
) -> Iterator[tuple[Item, Result]]:
    """Each of `days`, or of other items, with what `work` makes of it, in their order, by as many
    threads as there are processors; where ADACALIB_DASK names worker processes, by those.

    No more days are under way than threads, and one that waits to be taken: what does not depend on
    the number of days does not grow with it.

    Args:
        work: a function of a day alone; what it closes over travels to worker processes.
        days: in the order in which they come back.
        title: what is done, a verb, for the progress.
        unit: plural, what an item is.

    Raises:
        AdaCalibError: the worker processes ended or cannot be reached.
        Exception: what `work` raises, for the first day that fails.
    """
    begun: deque[tuple[Item, Callable[[], Result]]] = deque()

    def first() -> tuple[Item, Result]:
        item, result = begun.popleft()
        made = result()
        progress.advance(1)
        return item, made

    with _pool(work, title) as (begin, width), WorkProgress(title, len(days), unit) as progress:
        for item in days:
            begun.append((item, begin(item)))
            if len(begun) > width():
                yield first()
        while begun:
            yield first()


def processes() -> int | None:
    """How many worker processes' threads there are; None: threads of this process do the work."""
    return width_of(os.environ[DASK]) if os.environ.get(DASK) else None


@contextmanager
def _pool(
    work: Callable[[Item], Result], title: str
) -> Iterator[tuple[Callable[[Item], Callable[[], Result]], Callable[[], int]]]:
    """What begins the work on an item, and how many are worked on at a time."""
    if place := os.environ.get(DASK):
        yield Workers(place, work, title).begin, lambda: width_of(place)
        return
    threads, gate, at_work, closed = usable_threads(), threading.Condition(), 0, False

    def counted(item: Item) -> Result:
        nonlocal at_work
        with gate:
            if closed:
                raise CancelledError
            at_work += 1
        try:
            return work(item)
        finally:
            with gate:
                at_work -= 1
                gate.notify_all()

    try:
        with ThreadPoolExecutor(threads) as pool:
            yield lambda item: pool.submit(counted, item).result, lambda: threads
    finally:  # a thread that an interrupt met at its start is not known to the pool, and goes on
        with gate:
            closed = True
            gate.wait_for(lambda: not at_work)
