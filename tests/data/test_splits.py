"""Parts: whole days by count or by date, mature labels alone, no day twice and none left out."""

import re
from collections import Counter
from datetime import date
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.errors import NotEnoughDataError
from pipeline.data.log_store.day_rows import days_between
from pipeline.data.log_store.manifest import DayEntry, Manifest
from pipeline.data.log_store.splits import (
    LabelMaturity,
    maturity_of,
    split_by_count,
)
from pipeline.formats.days import day_name, day_number

NEW_YEAR = [f"2024-01-{day:02}" for day in range(1, 11)]


def log_of(days, zone="UTC"):
    return Manifest("tiny", zone, {day: DayEntry(1, "", {}) for day in days})


def by_count(days, counts, *, last_day=None, maturity_days=0, zone="UTC", **grid):
    maturity = maturity_of(log_of(days, zone), maturity_days, last_day)
    return split_by_count(days, counts, zone, maturity, last_day, **grid)


def test_counts_take_whole_days_in_order_and_end_with_the_last_day():
    counts = {"training": 4, "calibration": 2, "test": 1}
    splits = by_count(NEW_YEAR, counts, last_day=NEW_YEAR[8])
    assert splits == {
        "training": NEW_YEAR[2:6],
        "calibration": NEW_YEAR[6:8],
        "test": NEW_YEAR[8:9],
    }


@given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 3), st.integers(0, 4))
def test_splits_follow_each_other_without_gap_and_every_day_in_one_split(a, b, c, maturity_days):
    days = [day_name(n) for n in range(40)]
    splits = by_count(
        days, {"training": a, "calibration": b, "test": c}, maturity_days=maturity_days
    )
    together = [day for split in splits.values() for day in split]
    assert together == days[40 - 2 * maturity_days - a - b - c : 40 - maturity_days]
    assert len(splits["calibration"]) == b
    assert len(splits.get("gap", [])) == maturity_days


SIZES = st.fixed_dictionaries(
    {split: st.integers(1, 5) for split in ("training", "calibration", "test")}
)


@given(SIZES, st.integers(1, 9), st.integers(20_000, 20_030))
def test_training_days_stay_the_same_from_one_day_of_the_grid_to_the_next(counts, every, first):
    """For every last day of thirty in a row, whatever day the log begins on."""
    days, ends = [day_name(first + n) for n in range(60)], []
    for last in days[30:]:
        splits = by_count(days, counts, last_day=last, retrain_every_days=every)
        together = [day for split in splits.values() for day in split]
        assert together == days[days.index(last) + 1 - len(together) : days.index(last) + 1]
        assert [len(splits[name]) for name in ("training", "test")] == [
            counts["training"],
            counts["test"],
        ]
        waited = len(splits["calibration"]) - counts["calibration"]
        assert 0 <= waited < every
        ends.append(splits["training"][-1])
        newest = day_number(last) - counts["calibration"] - counts["test"]
        assert newest - every < day_number(ends[-1]) <= newest
    lengths = list(Counter(ends).values())
    assert ends == sorted(ends)
    assert set(lengths[1:-1]) <= {every}
    assert max(lengths) <= every
    weekdays = {date.fromisoformat(day).weekday() for day in ends}
    assert every != 7 or weekdays == {6}


@given(SIZES, st.integers(0, 3), st.none() | st.sampled_from([1]))
def test_a_base_of_every_day_is_what_there_was_before_there_was_a_grid(counts, maturity, every):
    days = [day_name(20_000 + n) for n in range(30)]
    sizes = [counts["training"], counts["calibration"], maturity, counts["test"]]
    grid = {"retrain_every_days": every} if every else {}
    splits = by_count(days, counts, maturity_days=maturity, **grid)
    ends = [30 - maturity - sum(sizes[n:]) for n in range(5)]
    assert list(splits.values()) == [days[a:b] for a, b in pairwise(ends) if a < b]


@given(st.integers(0, 40))
def test_a_base_made_between_two_days_of_the_grid_stays_until_the_grid_has_a_newer_one(asked):
    """Where it may be: one that would leave too few days for the others is not taken yet."""
    counts = {"training": 3, "calibration": 2, "test": 2}
    days = [day_name(20_000 + n) for n in range(60)]
    for last in range(30, 60):
        kinds = {"last_day": days[last], "retrain_every_days": 7}
        of_grid = by_count(days, counts, **kinds)["training"][-1]
        moved = by_count(days, counts, **kinds, training_until=days[asked])["training"][-1]
        assert moved == (max(of_grid, days[asked]) if asked <= last - 4 else of_grid)


def test_a_log_that_is_too_short_for_the_grid_is_told_what_it_needs():
    """Nine days are enough for the counts, not for training days that end on a Sunday."""
    counts = {"training": 4, "calibration": 2, "test": 1}
    assert by_count(NEW_YEAR[:9], counts)["training"][-1] == "2024-01-06"
    sentence = r"up to 2023-12-31 \(retrain_every_days: 1 .* 2024-01-06\) needs 13 days .* has 9: "
    with pytest.raises(NotEnoughDataError, match=sentence):
        by_count(NEW_YEAR[:9], counts, retrain_every_days=7)
    assert by_count(NEW_YEAR, counts, retrain_every_days=7)["training"][-1] == "2024-01-07"


def test_a_day_is_mature_when_a_whole_window_of_landed_days_lies_after_it():
    """The reference is the newest landed day, not the clock and not the last day that is used."""
    assert maturity_of(log_of(NEW_YEAR), 3) == LabelMaturity(
        3, "2024-01-10", "2024-01-07", NEW_YEAR[7:]
    )
    assert maturity_of(log_of(NEW_YEAR), 3, "2024-01-08").waiting == ["2024-01-08"]
    assert maturity_of(log_of(NEW_YEAR), 0).waiting == []


def test_the_split_ends_at_the_newest_mature_day():
    counts = {"training": 2, "calibration": 1, "test": 1}
    assert by_count(NEW_YEAR, counts, maturity_days=3)["test"] == ["2024-01-07"]
    earlier = by_count(NEW_YEAR, counts, maturity_days=1, last_day="2024-01-05")
    assert (earlier["gap"], earlier["test"]) == (["2024-01-04"], ["2024-01-05"])


def test_too_few_mature_days_are_said_with_those_that_wait():
    with pytest.raises(
        NotEnoughDataError, match=r"has 1: .*2024-01-01 \(9 days from 2024-01-02 on wait"
    ):
        by_count(NEW_YEAR, {"training": 1, "calibration": 1, "test": 1}, maturity_days=9)


@pytest.mark.parametrize(
    ("gap", "split"),
    [("2024-01-02", "training"), ("2024-01-06", "calibration"), ("2024-01-07", "test")],
)
def test_a_missing_day_is_named_with_its_split(gap, split):
    """Dev day missing."""
    days = [day_name(day_number(NEW_YEAR[0]) - n) for n in range(1, 9)] + NEW_YEAR
    days = [day for day in days if day != gap]
    counts = {"training": 4, "calibration": 2, "test": 1}
    with pytest.raises(NotEnoughDataError, match=f"the {split} day {gap} is missing"):
        by_count(days, counts, last_day="2024-01-07")


def test_too_few_days_are_counted():
    with pytest.raises(
        NotEnoughDataError, match=r"needs 3 days .* has 1: 2024-01-01\.\.2024-01-01"
    ):
        by_count(NEW_YEAR[:1], {"training": 1, "calibration": 1, "test": 1})


@given(st.integers(4, 60), st.integers(0, 3), st.integers(1, 7))
def test_counts_that_would_fit_are_named(n, maturity_days, every):
    days = [day_name(20_000 + number) for number in range(n + 2 * maturity_days)]
    counts = {"training": 60, "calibration": 28, "test": 28}
    with pytest.raises(NotEnoughDataError) as refused:
        by_count(days, counts, maturity_days=maturity_days, retrain_every_days=every)
    fewer = re.search(r"to (\d+)/(\d+)/(\d+) for example", str(refused.value))
    counts = dict(zip(counts, map(int, fewer.groups()), strict=True))
    splits = by_count(days, counts, maturity_days=maturity_days)
    assert sum(map(len, splits.values())) == n + maturity_days


@pytest.mark.parametrize("asked", [(10, 7, 3), (1, 10, 9)])
@pytest.mark.parametrize(("landed", "every"), [(21, 1), (16, 1), (23, 7)])
def test_no_count_that_would_fit_is_above_the_one_that_was_asked(asked, landed, every):
    """Labels that take two days: the counts are named as they were asked, the gap beside them."""
    days = [day_name(20_003 + number) for number in range(landed + 2)]
    counts = dict(zip(("training", "calibration", "test"), asked, strict=True))
    shape = "/".join(map(str, asked))
    with pytest.raises(NotEnoughDataError, match=rf"split {shape} .*maturity_days") as refused:
        by_count(days, counts, maturity_days=2, retrain_every_days=every)
    fewer = map(int, re.search(r"to (\d+)/(\d+)/(\d+) for", str(refused.value)).groups())
    assert all(new <= old for new, old in zip(fewer, counts.values(), strict=True))


def test_a_day_that_the_zone_left_out_is_asked_of_nobody():
    """Samoa went from 2011-12-29 to 2011-12-31."""
    days = ["2011-12-28", "2011-12-29", "2011-12-31", "2012-01-01"]
    assert days_between(days[0], days[-1], "Pacific/Apia") == days
    counts = {"training": 2, "calibration": 1, "test": 1}
    assert by_count(days, counts, zone="Pacific/Apia")["training"] == days[:2]
    assert maturity_of(log_of(days, "Pacific/Apia"), 2).newest_mature_day == "2011-12-29"
    assert len(days_between(days[0], days[-1], "UTC")) == 5
