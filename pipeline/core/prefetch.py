"""Work that is done before it is asked for."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import repeat, takewhile
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


def made_ahead(
    make: Callable[[Item], Made], items: Iterable[Item], threads: int, ahead: int = 0
) -> Generator[Made, None, None]:
    """What is made of items, in their order, in threads.

    Args:
        make: a function of one item.
        items: are asked for in the caller's thread.
        threads: so many are made at a time.
        ahead: so many are begun before the first one is waited for; 0: as there are threads.
    """
    pending: deque[Future[Made]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for item in items:
            pending.append(pool.submit(make, item))
            if len(pending) > (ahead or threads):
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def prefetched(items: Generator[Item, None, None], ahead: int = 1) -> Generator[Item, None, None]:
    """The same items in the same order, up to `ahead` of them made in a thread before they are
    asked for; `items` is closed at the end.
    """
    made = made_ahead(lambda _: next(items, None), repeat(None), 1, ahead)
    with closing(items), closing(made):
        yield from takewhile(lambda item: item is not None, made)
