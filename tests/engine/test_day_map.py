"""One map over days: in their order, no further ahead than threads, the first failure told."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.engine.day_map import map_days
from pipeline.formats.days import day_name
from pipeline.formats.sort_keys import usable_threads

DAYS = [day_name(number) for number in range(20_000, 20_012)]


@given(st.lists(st.sampled_from(DAYS), unique=True))
def test_every_day_comes_back_once_with_what_was_made_of_it_in_the_order_asked_for(days):
    assert list(map_days(str.upper, days, "look")) == [(day, day.upper()) for day in days]


def test_days_that_are_done_early_wait_for_those_before_them():
    """The first day ends only when a later one has, where there is a thread for that one."""
    other_done = threading.Event()

    def work(day: str) -> str:
        if day == DAYS[0] and usable_threads() > 1:
            assert other_done.wait(300)
        if day == DAYS[1]:
            other_done.set()
        return day

    assert [day for day, _ in map_days(work, DAYS, "look")] == DAYS


@pytest.mark.parametrize("first", [0, 1, 5, len(DAYS) - 1])
def test_the_exception_of_the_first_day_that_fails_is_raised_after_the_days_before_it(first):
    """Whichever fails first in time."""

    def work(day: str) -> int:
        if day >= DAYS[first]:
            raise ValueError(f"day {day}")
        return DAYS.index(day)

    came = []
    with pytest.raises(ValueError, match=f"^day {DAYS[first]}$"):
        came.extend(made for _, made in map_days(work, DAYS, "look"))
    days = map_days(work, DAYS, "look")
    assert [next(days)[1] for _ in range(first)] == list(range(first))
    with pytest.raises(ValueError, match=f"^day {DAYS[first]}$"):
        next(days)


def test_no_more_days_are_begun_than_threads_and_the_one_that_waits_to_be_taken():
    """So memory does not grow with the days: counted where the caller holds each day."""
    begun = []

    def work(day: str) -> str:
        begun.append(day)
        return day

    most = 0
    for taken, (day, _) in enumerate(map_days(work, DAYS, "look"), 1):
        assert day in begun
        most = max(most, len(begun) - taken)
        assert len(begun) <= taken + usable_threads()
    assert 0 < most <= usable_threads()
    assert sorted(begun) == DAYS


def test_work_on_several_days_goes_on_at_once():
    """As many as threads meet; fewer could not pass."""
    threads = usable_threads()
    meeting = threading.Barrier(threads)
    days = DAYS[:threads]
    assert [day for day, _ in map_days(lambda _: meeting.wait(300), days, "look")] == days
