"""One map over days: the same function of every day, several at a time, in the order of days."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from pipeline.core.progress import WorkProgress
from pipeline.formats.sort_keys import usable_threads

Result = TypeVar("Result")


def map_days(
    work: Callable[[str], Result], days: Sequence[str], title: str
) -> Iterator[tuple[str, Result]]:
    """Each of `days` with what `work` makes of it, in their order, by as many threads as there are
    processors.

    No more days are under way than threads, and one that waits to be taken: what does not depend on
    the number of days does not grow with it.

    Args:
        work: a function of a day alone.
        days: in the order in which they come back.
        title: what is done, a verb, for the progress.

    Raises:
        Exception: what `work` raises, for the first day that fails.
    """
    begun: deque[tuple[str, Future[Result]]] = deque()

    def first() -> tuple[str, Result]:
        day, result = begun.popleft()
        made = result.result()
        progress.advance(1)
        return day, made

    threads = usable_threads()
    with ThreadPoolExecutor(threads) as pool, WorkProgress(title, len(days), "days") as progress:
        for day in days:
            begun.append((day, pool.submit(work, day)))
            if len(begun) > threads:
                yield first()
        while begun:
            yield first()
