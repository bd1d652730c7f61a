"""Signals that end a process: what was begun is let go of, and no step stops half-way."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupt_on_signals() -> None:
    """Have a service manager's stop and a lost terminal interrupt this process as Ctrl+C does.

    What is ignored, as nohup has it, stays so.
    """
    for number in ENDING:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


@contextmanager
def deaf_children() -> Iterator[None]:
    """Have what is started meanwhile end by Ctrl+C or a kill of whoever started it alone: a service
    manager's stop goes to every process of a service at once.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let a few steps that belong together come to their end: a signal that comes meanwhile takes
    effect after them. In threads none does anyway.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[signal.Signals] = []
    ours = [number for number in ENDING if signal.getsignal(number) is not None]  # not C's
    before = {n: signal.signal(n, lambda n, _: came.append(signal.Signals(n))) for n in ours}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in came[:1]:
            signal.raise_signal(number)
