"""Items that are made ahead: in order, on one thread, and none is left behind."""

import threading

import pytest

from pipeline.core.work import prefetched


def test_items_are_made_ahead_in_order_on_another_thread_and_no_further():
    made = []

    def items():
        for item in range(1, 10):
            made.append(threading.current_thread())
            yield item

    ahead = prefetched(items(), 3)
    assert next(ahead) == 1
    assert list(ahead) == list(range(2, 10))
    assert len(set(made)) == 1
    assert threading.current_thread() not in made


def test_a_reader_that_leaves_early_leaves_no_thread():
    before = threading.active_count()
    ahead = prefetched((item for item in range(1, 100)), 3)
    assert next(ahead) == 1
    ahead.close()
    assert threading.active_count() == before


def test_what_goes_wrong_ahead_is_told_in_its_place():
    def items():
        yield 1
        raise ValueError("no more")

    ahead = prefetched(items(), 3)
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="no more"):
        next(ahead)


def test_a_stop_while_the_thread_starts_is_told_as_a_stop(monkeypatch):
    """As a signal does it that arrives between the thread's start and the pool's note of it."""
    begun, left, start = threading.Event(), threading.Event(), threading.Thread.start

    def items():
        begun.set()
        try:
            yield threading.Event().wait(0.2)
        finally:
            left.set()

    def interrupted(thread):
        start(thread)
        assert begun.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(prefetched(items()))
    assert left.is_set()
