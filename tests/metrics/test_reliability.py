"""Equal-frequency bins never split ties; ECE and MVCE are what their sources say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netcal.metrics import ECE
from numpy.testing import assert_allclose, assert_array_equal

from pipeline.core.errors import DataError
from pipeline.metrics.counts import probability
from pipeline.metrics.reliability import distinct_outputs, ece, mvce, reliability_bins
from pipeline.metrics.sorting import sort_rows
from pipeline.metrics.ties import merge_runs
from tests.metrics.test_counts import aggregated_rows
from tests.reference import one_row_per_impression


def logit_runs(*rows):
    return merge_runs(sort_rows(*rows))


def runs_of(logit, label):
    ones = np.ones(len(logit), int)
    return logit_runs(np.asarray(logit, dtype=float), ones, np.asarray(label), 0 * ones, 1)


@given(aggregated_rows(), st.integers(1, 7))
def test_bins_of_aggregated_rows_are_those_of_rows_of_one_impression(rows, n_bins):
    logit, impressions, responses, value = rows
    label, long_logit, long_value = one_row_per_impression(impressions, responses, logit, value)
    seen = impressions > 0
    short = reliability_bins(logit_runs(*(c[seen] for c in rows), 4), n_bins)
    long = reliability_bins(
        logit_runs(long_logit, np.ones_like(label), label, long_value, 4), n_bins
    )
    for name in ("group", "bin_id", "impressions", "responses"):
        assert_array_equal(getattr(short, name), getattr(long, name))
    assert_allclose(short.expected_responses, long.expected_responses, atol=1e-12)
    assert_allclose(short.logit_sum, long.logit_sum, atol=1e-9)


def test_bins_of_distinct_logits_differ_by_one_impression_at_most(rng):
    bins = reliability_bins(runs_of(rng.normal(size=1003), rng.integers(0, 2, 1003)), 20)
    assert_array_equal(bins.bin_id, np.arange(20))
    assert set(bins.impressions) == {50, 51}


def test_bins_keep_every_sum(rng):
    logit, label = rng.normal(size=777).round(1), rng.integers(0, 2, 777)
    bins = reliability_bins(runs_of(logit, label), 10)
    assert (bins.impressions.sum(), bins.responses.sum()) == (777, label.sum())
    assert bins.expected_responses.sum() == pytest.approx(probability(logit).sum())
    assert bins.logit_sum.sum() == pytest.approx(logit.sum())


def test_tied_scores_share_a_bin_and_no_bin_is_empty():
    """H1: 90 scores at one place and 10 above, in ten bins."""
    logit = np.concatenate([np.full(90, -4.6), np.linspace(-4, -1, 10)])
    bins = reliability_bins(runs_of(logit, np.zeros(100, int)), 10)
    assert_array_equal(bins.impressions, [90, 10])
    assert_array_equal(bins.bin_id, [0, 9])


def test_each_value_has_its_own_bins(rng):
    logit, value = rng.normal(size=400), np.repeat([0, 2], 200)
    ones = np.ones(400, int)
    bins = reliability_bins(logit_runs(logit, ones, 0 * ones, value, 3), 4)
    assert_array_equal(bins.group, np.repeat([0, 2], 4))
    assert_array_equal(bins.impressions, np.full(8, 50))


def test_ece_is_that_of_netcal_on_equal_frequency_bins(rng):
    logit = rng.normal(-1, 1, 3000)
    label = (rng.random(3000) < probability(1.5 * logit)).astype(int)
    expected = ECE(bins=10, equal_intervals=False, detection=True).measure(
        probability(logit), label
    )
    assert ece(reliability_bins(runs_of(logit, label), 10)) == pytest.approx(expected, rel=0.02)


def test_ece_of_one_bin_is_the_distance_of_the_means():
    bins = reliability_bins(runs_of([0.0, 0.0, 0.0, 0.0], [1, 1, 1, 0]), 5)
    assert ece(bins) == pytest.approx(0.25)


def test_ece_and_mvce_of_nothing_are_undefined():
    nothing = runs_of([], np.zeros(0, int))
    assert np.isnan(ece(reliability_bins(nothing, 5)))
    assert np.isnan(mvce(nothing))
    assert distinct_outputs(nothing) == 0


def test_mvce_with_one_partition_is_the_overall_distance(rng):
    logit, label = rng.normal(size=500), rng.integers(0, 2, 500)
    expected = abs(label.mean() - probability(logit).mean())
    assert mvce(runs_of(logit, label), partitions=1) == pytest.approx(expected)


def test_mvce_with_a_partition_for_each_impression_is_the_mean_absolute_residual(rng):
    logit, label = rng.normal(size=500), rng.integers(0, 2, 500)
    expected = np.abs(label - probability(logit)).mean()
    assert mvce(runs_of(logit, label), partitions=9999) == pytest.approx(expected)


def test_mvce_agrees_with_shuffled_frames_cut_into_partitions(rng):
    """The way its public evaluation code goes: shuffle, cut, mean, root mean square over views."""
    logit = rng.normal(-1, 1, 20000)
    label = (rng.random(20000) < probability(logit - 0.3)).astype(int)
    residual = label - probability(logit)
    views = []
    for _ in range(40):
        parts = np.array_split(rng.permutation(residual), 100)
        views.append(np.mean([abs(part.mean()) for part in parts]) ** 2)
    expected = np.sqrt(np.mean(views))
    assert mvce(runs_of(logit, label), partitions=100, views=40) == pytest.approx(
        expected, rel=0.02
    )


@given(aggregated_rows())
def test_mvce_of_aggregated_rows_is_exactly_that_of_rows_of_one_impression(rows):
    logit, impressions, responses, _ = rows
    label, long_logit = one_row_per_impression(impressions, responses, logit)
    short = logit_runs(logit, impressions, responses, 0 * impressions, 1)
    assert_array_equal(mvce(short, 3), mvce(runs_of(long_logit, label), 3))


def test_mvce_of_weights_is_refused():
    with pytest.raises(DataError, match="whole numbers"):
        mvce(logit_runs(np.zeros(2), np.full(2, 0.5), np.zeros(2), np.zeros(2, int), 1))


def test_distinct_outputs_show_plateaus(rng):
    """H7: rounding to four decimals leaves few of 20,000 outputs."""
    logit = rng.normal(-9, 1, 20000).astype(np.float32)
    label = np.zeros(20000, int)
    assert distinct_outputs(runs_of(logit, label)) == len(np.unique(logit))
    assert distinct_outputs(runs_of(probability(logit).round(4), label)) < 100
