"""Logits: stable at any size; sortable bits keep the order of floats."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from pipeline.calibration.statistics.logits import (
    from_sortable_bits,
    log_loss_from_logits,
    logit,
    sigmoid,
    softplus,
    sortable_bits,
)

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
EXTREMES = np.array([-1e30, -745.0, -120.0, -20.0, -1e-9, 0.0, 17.0, 25.0, 120.0, 1e30])


def test_sigmoid_is_the_logistic_function_and_small_probabilities_keep_their_digits():
    x = np.linspace(-700, 700, 1401)
    np.testing.assert_allclose(sigmoid(x), special.expit(x), rtol=1e-15)
    assert sigmoid(np.array([-100.0]))[0] == pytest.approx(math.exp(-100), rel=1e-12)


def test_every_finite_logit_has_a_finite_probability_softplus_and_loss():
    """H4: logits of -120 to 120 and far beyond, without warnings."""
    for values in (sigmoid(EXTREMES), softplus(EXTREMES)):
        assert np.isfinite(values).all()
    assert np.isfinite(log_loss_from_logits(EXTREMES, 1, 2)).all()


def test_logit_is_the_inverse_of_sigmoid_and_infinite_at_the_ends():
    x = np.linspace(-30, 30, 61)
    np.testing.assert_allclose(logit(sigmoid(x)), x, atol=2e-3)
    np.testing.assert_allclose(logit(np.array([1e-300, 0.25, 0.5])), [-690.7755, -1.0986123, 0])
    assert logit(np.array([0.0, 1.0])).tolist() == [-math.inf, math.inf]
    assert np.isnan(logit(np.array([-0.1, 1.1]))).all()


def test_softplus_is_the_loss_of_an_impression_without_response():
    x = np.linspace(-30, 30, 61)
    np.testing.assert_allclose(softplus(x), -np.log1p(-special.expit(x)), rtol=1e-2)
    np.testing.assert_allclose(softplus(x), np.logaddexp(0, x), rtol=1e-14)


def test_log_loss_of_an_aggregated_row_is_that_of_its_impressions():
    p = 0.2
    loss = log_loss_from_logits(logit(np.array([p])), np.array([2]), np.array([5]))
    assert loss[0] == pytest.approx(-2 * math.log(p) - 3 * math.log(1 - p), rel=1e-14)


def test_log_loss_does_not_depend_on_the_precision_of_the_input():
    """H4: the same logits as float32 and float64."""
    x = np.array([-120, -20, 17, 18, 25, 120], dtype=np.float32)
    labels = np.array([0, 1, 1, 0, 1, 1])
    single = log_loss_from_logits(x, labels, np.ones(6))
    np.testing.assert_array_equal(
        single, log_loss_from_logits(x.astype(np.float64), labels, np.ones(6))
    )
    assert single[2] > single[4] > single[5] > 0  # 17, 25 and 120 are still told apart


@given(st.lists(FLOATS, min_size=2, max_size=20))
def test_sortable_bits_compare_as_the_floats_do(values):
    x = np.array(values, dtype=np.float32)
    bits = sortable_bits(x)
    np.testing.assert_array_equal(x[:-1] < x[1:], bits[:-1] < bits[1:])
    np.testing.assert_array_equal(x[:-1] == x[1:], bits[:-1] == bits[1:])


@given(st.lists(FLOATS, max_size=20))
def test_sortable_bits_are_turned_back_into_the_floats(values):
    x = np.array(values, dtype=np.float32)
    np.testing.assert_array_equal(from_sortable_bits(sortable_bits(x)), x)


def test_both_zeros_are_one_number():
    assert len(set(sortable_bits(np.array([0.0, -0.0], dtype=np.float32)).tolist())) == 1


def test_inputs_are_left_as_they_were():
    x = np.array([-1.5, -0.0, 2.5], dtype=np.float32)
    before = x.tobytes()
    bits = sortable_bits(x)
    bits_before = bits.tobytes()
    from_sortable_bits(bits)
    assert (x.tobytes(), bits.tobytes()) == (before, bits_before)
