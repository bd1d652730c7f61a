"""The alarm: rare on sound days whatever their shocks, and loud where rates have moved."""

import numpy as np
import pytest

from pipeline.metrics.counts import ResponseCounts
from pipeline.metrics.significance import sound_day, watched

EXPECTED = np.array([1000.0, 300, 200, 150, 100, 80, 50, 40, 30, 20, 10])


def days(random: np.random.Generator, n: int, shock: float, factor: float = 1.0) -> ResponseCounts:
    """Responses of groups on days whose rates are off by a common lognormal shock each."""
    away = np.exp(random.normal(-shock * shock / 2, shock, (n, len(EXPECTED))))
    observed = random.poisson(EXPECTED * away * factor)
    expected = np.broadcast_to(EXPECTED, observed.shape)
    return ResponseCounts(expected * 10, observed, expected, expected, expected)


def day_of(counts: ResponseCounts, place: int) -> ResponseCounts:
    """The counts of one day."""
    return ResponseCounts(*(column[place] for column in vars(counts).values()))


@pytest.mark.parametrize("shock", [0.0, 0.1, 0.3])
def test_of_two_thousand_sound_days_hardly_more_raise_an_alarm_than_is_stated(shock):
    """With one in a hundred stated twenty are expected; thirty-five are three deviations more."""
    random, raised = np.random.default_rng(7), 0
    for _ in range(2000):
        raised += sound_day(
            days(random, 28, shock), day_of(days(random, 1, shock), 0), 0.01
        ).beyond.any()
    assert raised <= 35


def test_rates_that_moved_by_more_than_days_do_raise_one():
    random = np.random.default_rng(8)
    found = sound_day(days(random, 28, 0.1), day_of(days(random, 1, 0.1, factor=0.4), 0), 1 / 365)
    assert found.beyond[0]
    assert found.pcoc[0] > found.high[0] > 1 > found.low[0]


def test_beyond_is_where_pcoc_lies_outside_its_ends():
    random = np.random.default_rng(9)
    for factor in (0.2, 0.6, 1.0, 1.6, 3.0):
        found = sound_day(days(random, 14, 0.1), day_of(days(random, 1, 0.1, factor), 0), 0.05)
        outside = (found.pcoc < found.low) | (found.pcoc > found.high)
        np.testing.assert_array_equal(found.beyond, outside)


def test_a_few_days_say_nothing_of_the_next():
    random = np.random.default_rng(10)
    found = sound_day(days(random, 4, 0.1), day_of(days(random, 1, 0.1, factor=9.0), 0), 0.05)
    assert not found.beyond.any()
    assert np.isnan(found.low).all()


def test_all_field_values_together_are_watched_first():
    counts = days(np.random.default_rng(11), 3, 0.0)
    both = watched(counts, np.array([4, 2]))
    np.testing.assert_array_equal(both.responses[:, 0], counts.responses.sum(axis=1))
    np.testing.assert_array_equal(both.responses[:, 1:], counts.responses[:, [4, 2]])
