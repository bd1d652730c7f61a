"""Over simulated tests with unlike users: false alarms, coverage and broken randomisation."""

import pytest
from scipy.stats import binom

from bench.online import LIFT, METRICS, Simulated, alarms, broken, coverage, naive_alarms

pytestmark = pytest.mark.slow


def by_chance(logs: int, share: float) -> tuple[float, float]:
    """Between which shares 99.99 % of such experiments lie, if each log has this chance."""
    low, high = binom.interval(0.9999, logs, share)
    return low / logs, high / logs


@pytest.mark.parametrize(("logs", "pre"), [(400, False), (200, True)])
def test_of_tests_without_an_effect_5_percent_alarm_by_each_metric(logs, pre):
    found = alarms(Simulated(logs, units=1000), pre)
    low, high = by_chance(logs, 0.05)
    assert {m: share for m, share in found.items() if m != "any" and not low < share < high} == {}
    assert found["any"] < high  # Holm's: at most 5 % of any


def test_a_ramp_makes_no_alarms_although_later_users_click_more():
    found = alarms(Simulated(200, units=1000, shares=(0.1, 0.5)), pre=False)
    low, high = by_chance(200, 0.05)
    assert all(low < found[metric] < high for metric in METRICS)


def test_impressions_taken_for_independent_alarm_too_often():
    assert naive_alarms(Simulated(500, units=1000))["CTR"] > by_chance(500, 0.05)[1]


@pytest.mark.parametrize("pre", [False, True])
def test_a_planted_effect_lies_in_its_interval_in_95_percent_of_tests(pre):
    found = coverage(Simulated(200, units=1000, lift=LIFT), pre)
    low, high = by_chance(200, 0.95)
    assert {metric: held for metric, (held, _) in found.items() if not low < held < high} == {}


def test_a_pre_period_narrows_every_interval_of_the_money():
    tests = Simulated(20, units=1000, lift=LIFT)
    wide, narrow = coverage(tests, pre=False), coverage(tests, pre=True)
    assert all(narrow[m][1] < wide[m][1] for m in ("CTR", "eCPM", "revenue per unit"))


def test_lost_rows_of_one_arm_withhold_the_effects_and_sound_tests_keep_them():
    assert broken(Simulated(20, units=20_000, lost=0.1)) > 0.95
    assert broken(Simulated(500, units=100)) < by_chance(500, 0.001)[1]
