"""New field values: those that no recent day has."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.data.log_store.contract import ValueNovelty
from pipeline.encoding.vocabulary import ValueCounts


def facts_of(days: list[list[str | None]], recent_days: int) -> list[int]:
    recent = ValueNovelty(recent_days)
    counted = [ValueCounts(pa.array(day, pa.string())) for day in days]
    return [recent.add(of_day.counts) for of_day in counted]


def test_rows_with_new_values_are_counted_and_those_without_value_are_not():
    """ "001" and "1" are two values."""
    found = facts_of([["1", None], ["001", "001", "1", None], ["001", "2"]], 14)
    assert found == [1, 2, 1]


def test_a_value_not_seen_for_long_is_new_again():
    assert facts_of([["a"], ["b"], ["b"], ["a"], ["a"]], 2) == [1, 1, 0, 1, 0]


@given(st.lists(st.lists(st.sampled_from([*"abcd", None]), max_size=6), max_size=8))
def test_new_is_what_a_search_in_the_days_before_says(days):
    for position, found in enumerate(facts_of(days, 3)):
        known = {value for day in days[max(position - 3, 0) : position] for value in day}
        rows = [value for value in days[position] if value is not None]
        assert found == sum(value not in known for value in rows)
