"""Equal-frequency bins never split ties; ECE is what its source says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from netcal.metrics import ECE
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit

from pipeline.metrics.ranking import distinct_outputs, ece, merge_ties, reliability_bins
from tests.metrics.test_counts import aggregated_rows
from tests.reference import one_row_per_impression


def ties_among(*rows):
    return merge_ties(*rows)


def ties_of(logit, label):
    ones = np.ones(len(logit), int)
    return ties_among(np.asarray(logit, dtype=float), ones, np.asarray(label), 0 * ones, 1)


@given(aggregated_rows(), st.integers(1, 7))
def test_bins_of_aggregated_rows_are_those_of_rows_of_one_impression(rows, n_bins):
    logit, impressions, responses, value = rows
    label, long_logit, long_value = one_row_per_impression(impressions, responses, logit, value)
    seen = impressions > 0
    short = reliability_bins(ties_among(*(c[seen] for c in rows), 4), n_bins)
    long = reliability_bins(
        ties_among(long_logit, np.ones_like(label), label, long_value, 4), n_bins
    )
    for name in ("group", "bin_id", "impressions", "responses"):
        assert_array_equal(getattr(short, name), getattr(long, name))
    assert_allclose(short.expected_responses, long.expected_responses, atol=1e-12)
    assert_allclose(short.logit_sum, long.logit_sum, atol=1e-9)


def test_bins_of_distinct_logits_differ_by_one_impression_at_most(rng):
    bins = reliability_bins(ties_of(rng.normal(size=1003), rng.integers(0, 2, 1003)), 20)
    assert_array_equal(bins.bin_id, np.arange(20))
    assert set(bins.impressions) == {50, 51}


def test_bins_keep_every_sum(rng):
    logit, label = rng.normal(size=777).round(1), rng.integers(0, 2, 777)
    bins = reliability_bins(ties_of(logit, label), 10)
    assert (bins.impressions.sum(), bins.responses.sum()) == (777, label.sum())
    assert bins.expected_responses.sum() == pytest.approx(expit(logit).sum())
    assert bins.logit_sum.sum() == pytest.approx(logit.sum())


def test_tied_scores_share_a_bin_and_no_bin_is_empty():
    """90 scores at one place and 10 above, in ten bins."""
    logit = np.concatenate([np.full(90, -4.6), np.linspace(-4, -1, 10)])
    bins = reliability_bins(ties_of(logit, np.zeros(100, int)), 10)
    assert_array_equal(bins.impressions, [90, 10])
    assert_array_equal(bins.bin_id, [0, 9])


def test_each_value_has_its_own_bins(rng):
    logit, value = rng.normal(size=400), np.repeat([0, 2], 200)
    ones = np.ones(400, int)
    bins = reliability_bins(ties_among(logit, ones, 0 * ones, value, 3), 4)
    assert_array_equal(bins.group, np.repeat([0, 2], 4))
    assert_array_equal(bins.impressions, np.full(8, 50))


def test_ece_is_that_of_netcal_on_equal_frequency_bins(rng):
    logit = rng.normal(-1, 1, 3000)
    label = (rng.random(3000) < expit(1.5 * logit)).astype(int)
    expected = ECE(bins=10, equal_intervals=False, detection=True).measure(expit(logit), label)
    assert ece(reliability_bins(ties_of(logit, label), 10)) == pytest.approx(expected, rel=0.02)


def test_ece_of_one_bin_is_the_distance_of_the_means():
    bins = reliability_bins(ties_of([0.0, 0.0, 0.0, 0.0], [1, 1, 1, 0]), 5)
    assert ece(bins) == pytest.approx(0.25)


def test_ece_of_nothing_is_undefined():
    nothing = ties_of([], np.zeros(0, int))
    assert np.isnan(ece(reliability_bins(nothing, 5)))
    assert distinct_outputs(nothing) == 0


def test_distinct_outputs_show_plateaus(rng):
    """Rounding to four decimals leaves few of 20,000 outputs."""
    logit = rng.normal(-9, 1, 20000).astype(np.float32)
    label = np.zeros(20000, int)
    assert distinct_outputs(ties_of(logit, label)) == len(np.unique(logit))
    assert distinct_outputs(ties_of(expit(logit).round(4), label)) < 100
