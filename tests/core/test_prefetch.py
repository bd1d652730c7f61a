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
