"""Work done ahead in a thread, so that reading, parsing and writing overlap."""

from collections.abc import Generator, Iterable
from contextlib import suppress
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any, TypeVar

Item = TypeVar("Item")
WAIT = 0.1  # seconds between looks whether anybody still wants more


def prefetched(items: Iterable[Item], depth: int = 2) -> Generator[Item, None, None]:
    """The same items in the same order, made in a thread that is at most `depth` + 1 ahead.

    An error in the thread is raised where its item was due. When the consumer closes this
    generator the thread ends, and with it `items`.
    """
    queue: Queue[tuple[str, Any]] = Queue(depth)
    enough = Event()
    thread = Thread(target=_work, args=(items, queue, enough), daemon=True)
    thread.start()
    try:
        while True:
            kind, item = queue.get()
            if kind == "end":
                return
            if kind == "error":
                raise item
            yield item
    finally:
        enough.set()
        thread.join()
        with suppress(Empty):
            while True:
                queue.get_nowait()


def _work(items: Iterable[Any], queue: Queue[tuple[str, Any]], enough: Event) -> None:
    try:
        for item in items:
            if not _offered(queue, ("item", item), enough):
                break
        _offered(queue, ("end", None), enough)
    except BaseException as error:  # whatever it is, the consumer gets it
        _offered(queue, ("error", error), enough)
    finally:
        if isinstance(items, Generator):
            items.close()


def _offered(queue: Queue[tuple[str, Any]], message: tuple[str, Any], enough: Event) -> bool:
    while not enough.is_set():
        try:
            queue.put(message, timeout=WAIT)
        except Full:
            continue
        return True
    return False
