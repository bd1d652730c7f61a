"""Work that is done before it is asked for."""

from collections import deque
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TypeVar

T = TypeVar("T")


def prefetched(items: Generator[T, None, None], ahead: int = 1) -> Generator[T, None, None]:
    """The same items in the same order, up to `ahead` of them made in a thread before they are
    asked for; `items` is closed at the end.
    """
    with closing(items), ThreadPoolExecutor(1) as pool:
        made = deque(pool.submit(next, items, None) for _ in range(ahead))
        while (item := made.popleft().result()) is not None:
            made.append(pool.submit(next, items, None))
            yield item
