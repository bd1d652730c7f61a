"""The mean gain over test sets that share field values, days and labels."""

import numpy as np
import pytest

from bench.pooled_gain import Pair, mean_gain
from pipeline.metrics.calibration import deviance_terms, field_rce_terms, log_loss_terms
from pipeline.metrics.counts import ResponseCounts
from pipeline.metrics.significance import Resampling, gain_interval
from tests.metrics.test_significance import counts_of, two_methods

STATISTICS = [log_loss_terms, deviance_terms, field_rce_terms]


@pytest.fixture
def rng():
    """Random numbers, the same in every run."""
    return np.random.default_rng(20220131)


def pair_of(rng, days=7, values=100, *, first_day=0, first_value=0, shock=0.0):
    method, reference = two_methods(rng, days, values, shock)
    return Pair(first_day + np.arange(days), first_value + np.arange(values), method, reference)


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("days", [3, 7])
def test_one_set_has_the_interval_of_a_single_comparison(rng, statistic, days):
    pair = pair_of(rng, days)
    ours = mean_gain(statistic, [pair])
    usual = gain_interval(statistic, pair.method, pair.reference)
    assert (ours.over, ours.days) == (usual.over, usual.days)
    assert (ours.value, ours.low, ours.high) == pytest.approx((usual.value, usual.low, usual.high))


@pytest.mark.parametrize("days", [3, 7])
def test_the_same_set_twice_is_no_surer_than_once(rng, days):
    """Seeds of a base model share all labels."""
    pair = pair_of(rng, days)
    once, twice = (mean_gain(deviance_terms, [pair] * n) for n in (1, 2))
    assert (twice.low, twice.high) == pytest.approx((once.low, once.high))


def test_sets_without_a_common_field_value_or_day_make_each_other_surer(rng):
    pairs = [pair_of(rng, 7, 200, first_day=7 * i, first_value=200 * i) for i in range(4)]
    widths = [i.high - i.low for i in (mean_gain(log_loss_terms, [p]) for p in pairs)]
    together = mean_gain(log_loss_terms, pairs)
    assert together.high - together.low < 0.7 * np.mean(widths)
    assert together.days == 28


def test_the_mean_is_over_sets_whatever_their_size(rng):
    pairs = [pair_of(rng, 2, 50), pair_of(rng, 6, 300)]
    gains = [gain_interval(log_loss_terms, p.method, p.reference).value for p in pairs]
    assert mean_gain(log_loss_terms, pairs).value == pytest.approx(np.mean(gains))


def test_field_values_are_told_by_their_number_not_by_their_place(rng):
    one = pair_of(rng, 3, 40)
    order = rng.permutation(40)
    moved = Pair(one.days, one.values[order], one.method.take(order), one.reference.take(order))
    twice, mixed = (mean_gain(deviance_terms, [one, other]) for other in (one, moved))
    assert (mixed.low, mixed.high) == pytest.approx((twice.low, twice.high))


def test_a_set_of_one_day_says_nothing_about_days(rng):
    """It takes part in the mean and in the draws of field values, and cannot lose its only day."""
    week, day = pair_of(rng, 7, 100, shock=0.5), pair_of(rng, 1, 100, first_day=90)
    assert np.isfinite(mean_gain(log_loss_terms, [week, day]).low)


def test_a_metric_that_is_undefined_in_a_set_has_no_mean(rng):
    pair = pair_of(rng, 2, 20)
    nothing = np.zeros((2, 20), dtype=np.int64)
    silent = counts_of(pair.method.impressions, nothing, np.full(20, -3.0))
    gain = mean_gain(field_rce_terms, [pair, Pair(pair.days, pair.values, silent, silent)])
    assert np.isnan([gain.value, gain.low, gain.high]).all()


def test_intervals_of_windows_that_share_values_and_days_hold_the_true_gain(rng):
    """95 % nominal: two windows of 10 days that share 5, the same 80 values, two seeds each."""
    inside, runs = 0, 60
    many = [overlapping(rng) for _ in range(400)]
    true = np.mean([np.mean([gain_of(p) for p in pairs]) for pairs in many])
    for pairs in many[:runs]:
        gain = mean_gain(log_loss_terms, pairs, Resampling(replicates=200))
        inside += gain.low <= true <= gain.high
    assert inside >= 0.88 * runs


def gain_of(pair):
    totals = [c.sum() for c in (pair.reference, pair.method)]
    return float((totals[0].log_loss - totals[1].log_loss) / totals[0].impressions)


def overlapping(rng):
    method, reference = two_methods(rng, 15, 80)
    windows = [slice(0, 10), slice(5, 15)]
    return [
        Pair(np.arange(15)[w], np.arange(80), _days(method, w), _days(reference, w))
        for w in windows
        for _ in range(2)
    ]


def _days(counts, window):
    columns = ("impressions", "responses", "expected_responses", "expected_variance", "log_loss")
    return ResponseCounts(*(getattr(counts, name)[window] for name in columns))
