"""Counts are additive, need no clip, and do not care how rows are cut, ordered or typed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit
from sklearn.metrics import log_loss as sklearn_log_loss

from pipeline.metrics.calibration import log_loss_terms
from pipeline.metrics.counts import ResponseCounts, count_responses
from tests.reference import one_row_per_impression

COLUMNS = list(ResponseCounts.__dataclass_fields__)


def assert_counts_equal(a, b, rtol=1e-12):
    for name in COLUMNS:
        assert_allclose(getattr(a, name), getattr(b, name), rtol=rtol, atol=1e-12, err_msg=name)


@st.composite
def aggregated_rows(draw, values=4):
    """Logits on a coarse grid (ties are common), impressions, responses and field values."""
    n = draw(st.integers(1, 25))
    logit = draw(st.lists(st.integers(-12, 12), min_size=n, max_size=n))
    impressions = draw(st.lists(st.integers(0, 6), min_size=n, max_size=n))
    responses = [draw(st.integers(0, many)) for many in impressions]
    value = draw(st.lists(st.integers(0, values - 1), min_size=n, max_size=n))
    return np.array(logit) / 4, np.array(impressions), np.array(responses), np.array(value)


@given(aggregated_rows())
def test_aggregated_rows_count_like_rows_of_one_impression(rows):
    logit, impressions, responses, value = rows
    label, long_logit, long_value = one_row_per_impression(impressions, responses, logit, value)
    long = count_responses(long_logit, np.ones_like(label), label, long_value, 4)
    assert_counts_equal(count_responses(logit, impressions, responses, value, 4), long)


@given(aggregated_rows(), st.floats(0.1, 10))
def test_weights_scale_every_count(rows, weight):
    logit, impressions, responses, value = rows
    plain = count_responses(logit, impressions, responses, value, 4)
    weighted = count_responses(logit, impressions * weight, responses * weight, value, 4)
    for name in COLUMNS:
        assert_allclose(getattr(weighted, name), weight * getattr(plain, name), atol=1e-9)


@given(aggregated_rows(), st.integers(0, 25))
def test_counts_of_two_days_add_up_to_the_counts_of_both(rows, cut):
    first, second = ([column[part] for column in rows] for part in (slice(cut), slice(cut, None)))
    days = count_responses(*first, 4), count_responses(*second, 4)
    both = ResponseCounts(*(sum(getattr(day, name) for day in days) for name in COLUMNS))
    assert_counts_equal(both, count_responses(*rows, 4))


def test_counts_by_day_sum_to_the_counts_of_all_days(rng):
    logit, value, day = rng.normal(size=500), rng.integers(0, 7, 500), rng.integers(0, 3, 500)
    label = rng.integers(0, 2, 500)
    rows = logit, np.ones(500, int), label
    by_day = count_responses(*rows, day * 7 + value, 21).reshape(3, 7)
    assert_counts_equal(by_day.sum(axis=0), count_responses(*rows, value, 7))
    assert_counts_equal(by_day.sum().reshape(1), count_responses(*rows, value * 0, 1))


def test_whole_counts_do_not_depend_on_the_order_of_rows(rng):
    rows = (
        rng.normal(size=300),
        rng.integers(0, 9, 300),
        rng.integers(0, 1, 300),
        rng.integers(0, 5, 300),
    )
    order = rng.permutation(300)
    counts = count_responses(*rows, 5)
    shuffled = count_responses(*(column[order] for column in rows), 5)
    assert_array_equal(counts.impressions, shuffled.impressions)
    assert_array_equal(counts.responses, shuffled.responses)
    assert_counts_equal(counts, shuffled)


def test_log_loss_is_that_of_scikit_learn(rng):
    logit, label = rng.normal(-2, 2, 2000), rng.integers(0, 2, 2000)
    weight = rng.integers(1, 9, 2000)
    counts = count_responses(logit, weight, label * weight, np.zeros(2000, int), 1)
    expected = sklearn_log_loss(label, expit(logit), sample_weight=weight)
    assert log_loss_terms(counts).ratio() == pytest.approx(expected, rel=1e-12)


def test_log_loss_works_on_a_day_without_responses():
    """A test day with one class has a LogLoss."""
    counts = count_responses(
        np.array([-2.0, -3.0]), np.array([5, 5]), np.zeros(2, int), np.zeros(2, int), 1
    )
    assert log_loss_terms(counts).ratio() == pytest.approx(
        -np.log1p(-expit(np.array([-2.0, -3.0]))).mean()
    )


def test_log_loss_without_rows_is_undefined():
    none = np.zeros(0, int)
    assert np.isnan(
        log_loss_terms(count_responses(none.astype(float), none, none, none, 3)).ratio()
    )


EXTREME = np.array([-120.0, -20.0, 17.0, 18.0, 25.0, 120.0])


@pytest.mark.parametrize("label", [0, 1])
def test_extreme_logits_cost_what_they_say(label):
    """Nothing is clipped; a response at logit −120 costs 120 nats, at 120 next to nothing."""
    labels = np.full(6, label)
    counts = count_responses(EXTREME, np.ones(6, int), labels, np.arange(6), 6)
    wrong = EXTREME * (1 - 2 * label)
    assert_allclose(counts.log_loss, np.logaddexp(0, wrong), rtol=1e-14)
    assert (counts.log_loss > 0).all()
    assert np.isfinite(counts.expected_responses).all()


@pytest.mark.parametrize("label", [0, 1])
def test_float32_and_float64_copies_have_one_log_loss(label):
    """18.02 against 7.97 is what a clip that depends on the dtype does."""
    rows = np.ones(6, int), np.full(6, label), np.zeros(6, int), 1
    single = log_loss_terms(count_responses(EXTREME.astype(np.float32), *rows)).ratio()
    double = log_loss_terms(count_responses(EXTREME, *rows)).ratio()
    assert single == pytest.approx(double, rel=1e-9)


def test_inputs_are_left_as_they_were(rng):
    rows = rng.normal(size=50), np.full(50, 3), rng.integers(0, 3, 50), rng.integers(0, 4, 50)
    before = [column.copy() for column in rows]
    for column in rows:
        column.flags.writeable = False
    count_responses(*rows, 4)
    for column, copy in zip(rows, before, strict=True):
        assert_array_equal(column, copy)
