"""Intervals: field values resampled whole, days left out in turn, the wider of the two quoted."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit
from scipy.stats import bootstrap

from pipeline.core.errors import DataError
from pipeline.metrics.calibration import deviance_terms, field_rce_terms, log_loss_terms, pcoc_terms
from pipeline.metrics.counts import ResponseCounts, Terms
from pipeline.metrics.significance import (
    MIN_DAYS,
    Resampling,
    field_value_bootstrap,
    field_value_interval,
    gain_interval,
)

STATISTICS = [log_loss_terms, deviance_terms, field_rce_terms]
NOISE = (0.4, 0.3)
"""How far the two simulated methods' logits are off, as a standard deviation over values."""


def two_methods(rng, days, values, shock=0.0):
    """Counts [days, V] of two methods on values drawn from one population, day by day.

    Volumes have a heavy tail; `shock` is the standard deviation of a day's own shift of all logits.
    """
    volume = np.minimum((rng.pareto(1.5, values) + 1) * 100, 60_000) / days
    impressions = rng.poisson(np.tile(volume, (days, 1)))
    true = rng.normal(-3, 0.8, values)
    rate = expit(true + rng.normal(0, shock, (days, 1)))
    responses = rng.binomial(impressions, rate)
    return tuple(
        counts_of(impressions, responses, true + rng.normal(0, noise, values)) for noise in NOISE
    )


def counts_of(impressions, responses, logit):
    p = expit(logit)
    loss = -(responses * np.log(p) + (impressions - responses) * np.log1p(-p))
    return ResponseCounts(impressions, responses, impressions * p, impressions * p * (1 - p), loss)


def test_the_value_of_an_interval_is_the_pooled_metric(rng):
    worse, better = two_methods(rng, 7, 100)
    for statistic in STATISTICS:
        pooled = [float(statistic(c.sum(axis=0)).ratio()) for c in (worse, better)]
        assert field_value_interval(statistic, worse).value == pytest.approx(pooled[0])
        gain = gain_interval(statistic, better, worse)
        assert gain.value == pytest.approx(pooled[0] - pooled[1])
        assert gain.low < gain.value < gain.high


def test_a_method_gains_nothing_against_itself(rng):
    counts, _ = two_methods(rng, 7, 100)
    gain = gain_interval(deviance_terms, counts, counts)
    assert (gain.value, gain.low, gain.high) == (0, 0, 0)


def test_pairing_makes_the_gain_surer_than_its_parts(rng):
    worse, better = two_methods(rng, 3, 200)
    gain, alone = (
        gain_interval(log_loss_terms, better, worse),
        field_value_interval(log_loss_terms, worse),
    )
    assert gain.high - gain.low < 0.3 * (alone.high - alone.low)


def test_the_same_seed_gives_the_same_interval_and_another_seed_another(rng):
    counts, _ = two_methods(rng, 3, 50)
    one, again, other = (
        field_value_interval(field_rce_terms, counts, Resampling(seed=seed)) for seed in (1, 1, 2)
    )
    assert one == again
    assert one != other


def test_days_in_another_order_give_the_same_interval(rng):
    worse, better = two_methods(rng, 7, 60, shock=0.4)
    gain = gain_interval(log_loss_terms, better, worse)
    order = rng.permutation(7)
    turned = [
        ResponseCounts(*(getattr(c, n)[order] for n in ResponseCounts.__dataclass_fields__))
        for c in (better, worse)
    ]
    again = gain_interval(log_loss_terms, *turned)
    assert_allclose([again.low, again.high], [gain.low, gain.high])


def test_the_bootstrap_is_that_of_scipy_for_many_equal_values(rng):
    """With equal denominators the metric is a mean; the small-sample widening is small here."""
    sample = rng.exponential(size=400)
    low, high = field_value_bootstrap((Terms(sample, np.ones(400)),), Resampling(replicates=9999))
    expected = bootstrap((sample,), np.mean, method="percentile", rng=1).confidence_interval
    assert_allclose([low, high], expected, rtol=0.02)


def test_few_values_widen_the_interval_as_students_t_does(rng):
    sample = rng.normal(size=6)
    low, high = field_value_bootstrap(
        (Terms(sample + 9, np.ones(6)),), Resampling(replicates=50000)
    )
    half = 2.571 * sample.std(ddof=1) / np.sqrt(6)
    assert high - low == pytest.approx(2 * half, rel=0.1)


def test_one_value_that_holds_nearly_everything_gives_no_interval_over_values():
    counts = two_methods(np.random.default_rng(1), 3, 3)[0]
    counts.impressions[:, 0] *= 1000
    interval = field_value_interval(log_loss_terms, counts)
    assert np.isnan([interval.low, interval.high]).all()
    assert np.isfinite(interval.value)


def test_a_metric_that_hangs_on_few_values_gives_no_interval_over_values(rng):
    """A sample without any of the values that have responses leaves Field-RCE undefined."""
    impressions = np.full((3, 400), 10)
    responses = np.zeros((3, 400), int)
    responses[0, :2] = 1
    interval = field_value_interval(
        field_rce_terms, counts_of(impressions, responses, np.zeros(400))
    )
    assert np.isnan([interval.low, interval.high]).all()


def test_a_metric_that_is_not_finite_has_no_interval():
    """An expectation of exactly 0 with a response has an infinite deviance."""
    counts = counts_of(np.full((6, 3), 9), np.full((6, 3), 1), np.array([-1.0, -2.0, -3.0]))
    counts.expected_responses[:, 0] = 0
    interval = field_value_interval(deviance_terms, counts)
    assert interval.value == np.inf
    assert np.isnan([interval.low, interval.high]).all()
    assert np.isnan(
        field_value_interval(deviance_terms, counts_of(*np.full((2, 6, 3), 0), 0.0)).value
    )


def test_below_five_days_nothing_is_claimed_over_days(rng):
    few, _ = two_methods(rng, MIN_DAYS - 1, 50, shock=1.0)
    enough, _ = two_methods(rng, MIN_DAYS, 50, shock=1.0)
    assert field_value_interval(log_loss_terms, few).over == "field values"
    assert field_value_interval(log_loss_terms, few).days == MIN_DAYS - 1
    assert field_value_interval(log_loss_terms, enough).over == "days"


def test_the_jackknife_of_a_mean_over_equal_days_is_students_interval(rng):
    """One field value and equal days: PCOC's jackknife has a closed form."""
    expected = rng.normal(50, 5, (8, 1))
    counts = ResponseCounts(
        np.full((8, 1), 1000), np.full((8, 1), 50), expected, expected, expected
    )
    interval = field_value_interval(pcoc_terms, counts)
    half = 2.364624 * (expected / 50).std(ddof=1) / np.sqrt(8)
    assert interval.over == "days"
    assert_allclose(
        [interval.low, interval.high], expected.mean() / 50 + np.array([-half, half]), rtol=1e-6
    )


def test_counts_without_days_or_of_other_shape_are_refused(rng):
    counts, other = two_methods(rng, 3, 5)
    with pytest.raises(DataError, match="days, field values"):
        field_value_interval(log_loss_terms, counts.sum(axis=0))
    with pytest.raises(DataError, match="days, field values"):
        gain_interval(log_loss_terms, counts, other.take(np.arange(4)))


def test_resampling_in_parts_changes_nothing(rng, monkeypatch):
    counts, _ = two_methods(rng, 3, 50)
    whole = field_value_interval(log_loss_terms, counts)
    monkeypatch.setattr("pipeline.metrics.significance.CHUNK", 50 * 7)
    parts = field_value_interval(log_loss_terms, counts)
    assert_allclose([parts.low, parts.high], [whole.low, whole.high], rtol=1e-12)


def gains_in_the_population(days, shock, draws):
    """What the better method gains over very many values, averaged over draws of the days."""
    gains = []
    for seed in range(draws):
        pair = two_methods(np.random.default_rng([1, seed]), days, 50_000, shock)
        values = [[float(s(c.sum(axis=0)).ratio()) for s in STATISTICS] for c in pair]
        gains.append(np.subtract(*values))
    return np.mean(gains, axis=0)


@pytest.mark.slow
@pytest.mark.parametrize(("days", "shock", "draws"), [(3, 0.0, 4), (7, 0.0, 4), (7, 0.4, 20)])
def test_intervals_of_paired_gains_cover_what_they_say(days, shock, draws):
    """Nominal 95 %: over other values and labels, from five days on also over days with shocks."""
    truth = gains_in_the_population(days, shock, draws)
    hits = np.zeros(len(STATISTICS))
    for seed in range(100):
        worse, better = two_methods(np.random.default_rng(seed), days, 250, shock)
        how = Resampling(replicates=400, seed=seed)
        gains = [gain_interval(statistic, better, worse, how) for statistic in STATISTICS]
        hits += [gain.low <= true <= gain.high for gain, true in zip(gains, truth, strict=True)]
    assert (hits >= 90).all()


@pytest.mark.slow
def test_a_row_bootstrap_of_field_rce_misses_its_own_value():
    """Why values are resampled whole: drawing single rows adds label noise to every value."""
    missed = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        counts = two_methods(rng, 1, 250)[1].sum(axis=0)
        rate = counts.responses / np.maximum(counts.impressions, 1)
        again = rng.binomial(counts.impressions, rate, (300, 250))
        drawn = ResponseCounts(
            *np.broadcast_arrays(counts.impressions, again, *[counts.expected_responses] * 3)
        )
        low, high = np.quantile(field_rce_terms(drawn).ratio(), [0.025, 0.975])
        missed += not low <= float(field_rce_terms(counts).ratio()) <= high
    assert missed >= 15
