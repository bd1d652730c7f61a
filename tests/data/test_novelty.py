"""New field values: those that no recent day has."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.data.log_store.contract import FieldFacts, ValueNovelty
from pipeline.encoding.vocabulary import ValueCounts


def facts_of(days: list[list[str | None]], recent_days: int) -> list[FieldFacts]:
    recent = ValueNovelty(recent_days)
    counted = [ValueCounts(pa.array(day, pa.string())) for day in days]
    return [recent.add(of_day.counts, of_day.nulls) for of_day in counted]


def test_rows_with_new_values_and_without_value_are_counted():
    """ "001" and "1" are two values."""
    found = facts_of([["1", None], ["001", "001", "1", None], ["001", "2"]], 14)
    assert found == [FieldFacts(1, 1), FieldFacts(1, 2), FieldFacts(0, 1)]


def test_a_value_not_seen_for_long_is_new_again():
    assert [f.new for f in facts_of([["a"], ["b"], ["b"], ["a"], ["a"]], 2)] == [1, 1, 0, 1, 0]


@given(st.lists(st.lists(st.sampled_from([*"abcd", None]), max_size=6), max_size=8))
def test_new_is_what_a_search_in_the_days_before_says(days):
    for position, found in enumerate(facts_of(days, 3)):
        known = {value for day in days[max(position - 3, 0) : position] for value in day}
        rows = [value for value in days[position] if value is not None]
        assert found.new == sum(value not in known for value in rows)
