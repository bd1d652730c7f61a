"""Long work: what it says on stderr, and what is done before it is asked for."""

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from datetime import timedelta
from itertools import repeat, takewhile
from threading import Condition
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

Item = TypeVar("Item")
PATIENCE = 2.0  # seconds without a bar: work that is done by then needs none
SILENCE = 60.0  # seconds between lines where there is no bar


class WorkProgress(AbstractContextManager["WorkProgress"]):
    """A context in which work of known size advances; the bar is gone when it ends.

    Args:
        title: what is done, a verb.
        total: how much there is, in `unit`.
        unit: plural, for example rows.
    """

    def __init__(self, title: str, total: int, unit: str) -> None:
        self._console = Console(file=sys.stderr, quiet="ADACALIB_QUIET" in os.environ)
        self._title, self._total, self._unit = title, total, unit
        self._done, self._start = 0, time.monotonic()
        self._said = self._start
        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[pace]}")
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task(title, total=total, pace="")

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def advance(self, amount: int) -> None:
        """`amount` more is done."""
        self._done += amount
        now = time.monotonic()
        if self._console.is_terminal:
            if now - self._start > PATIENCE:
                self._bar.start()  # or it has begun
            self._bar.update(self._task, completed=self._done, total=self._total, pace=self.pace())
        elif now - self._said > SILENCE:
            share = f"{self._done:,} of {self._total:,} {self._unit}"
            self.line(f"{self._title}: {share}, {self.pace()}")

    def leave_out(self, amount: int) -> None:
        """`amount` need not be done."""
        self._total -= amount

    def pace(self) -> str:
        """How much is done a second, and the time left at that pace."""
        rate = self._done / max(time.monotonic() - self._start, 1e-9)
        left = max(self._total - self._done, 0) / max(rate, 1e-9)
        return f"{rate:,.0f} {self._unit}/s, {timedelta(seconds=round(left))} left"

    def line(self, text: str) -> None:
        """Say `text` on a line of its own."""
        self._said = time.monotonic()
        self._console.print(text, soft_wrap=True, highlight=False, markup=False)


def followed(items: Iterable[Item], title: str, total: int, unit: str) -> Iterator[Item]:
    """The items, one after the other, with a bar for the work between them.

    Args:
        items: as many as `total`.
        title: what is done, a verb.
        unit: plural, what an item is.
    """
    with WorkProgress(title, total, unit) as progress:
        for item in items:
            yield item
            progress.advance(1)


Made = TypeVar("Made")


def in_order(
    begun: Iterable[Callable[[], Made]], ahead: Callable[[], int]
) -> Generator[Made, None, None]:
    """What work gives, in the order in which it is begun.

    Args:
        begun: begins work when it is asked for the next item, which waits for its result.
        ahead: how much of it is begun before the first result is waited for.
    """
    pending: deque[Callable[[], Made]] = deque()
    for result in begun:
        pending.append(result)
        if len(pending) > ahead():
            yield pending.popleft()()
    while pending:
        yield pending.popleft()()


def made_ahead(
    make: Callable[[Item], Made], items: Iterable[Item], threads: int, ahead: int = 0
) -> Generator[Made, None, None]:
    """What is made of items, in their order, in threads.

    None goes on after the end: a thread that an interrupt met at its start is not known to the
    executor, which would not wait for it.

    Args:
        make: a function of one item.
        items: are asked for in the caller's thread.
        threads: so many are made at a time.
        ahead: so many are begun before the first one is waited for; 0: as there are threads.
    """
    gate, at_work, closed = Condition(), 0, False

    def counted(item: Item) -> Made:
        nonlocal at_work
        with gate:
            if closed:
                raise CancelledError
            at_work += 1
        try:
            return make(item)
        finally:
            with gate:
                at_work -= 1
                gate.notify_all()

    try:
        with ThreadPoolExecutor(threads) as pool:
            begun = (pool.submit(counted, item).result for item in items)
            yield from in_order(begun, lambda: ahead or threads)
    finally:
        with gate:
            closed = True
            gate.wait_for(lambda: not at_work)


def prefetched(items: Generator[Item, None, None], ahead: int = 1) -> Generator[Item, None, None]:
    """The same items in the same order, up to `ahead` of them made in a thread before they are
    asked for; `items` is closed at the end.
    """
    made = made_ahead(lambda _: next(items, None), repeat(None), 1, ahead)
    with closing(items), closing(made):
        yield from takewhile(lambda item: item is not None, made)
