"""Knot values moved least until the line through them increases."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import isotonic_regression

from pipeline.calibration.monotone import increasing, isotonic_fit

numbers = st.floats(-20, 20, allow_nan=False)
sequences = st.lists(st.tuples(numbers, st.floats(0.1, 100)), min_size=1, max_size=30)


@given(sequences)
def test_pooling_is_scikit_learns_isotonic_regression(points):
    values, weights = (np.array(column) for column in zip(*points, strict=True))
    expected = isotonic_regression(values, sample_weight=weights)
    np.testing.assert_allclose(isotonic_fit(values, weights), expected, atol=1e-9)


@given(sequences, st.floats(0.01, 0.5))
def test_every_slope_is_at_least_the_least_slope(points, least):
    values, weights = (np.array(column) for column in zip(*points, strict=True))
    knots = np.cumsum(np.linspace(0.1, 1.0, len(values)))
    repaired = increasing(knots, values, weights, least)
    assert (np.diff(repaired) >= least * np.diff(knots) - 1e-9).all()


def test_values_that_increase_enough_come_back_bit_for_bit():
    knots, values = np.array([0.0, 1.0, 3.0]), np.array([0.1, 0.4, 2.0])
    assert increasing(knots, values, np.ones(3), 0.05) is values


def test_the_rates_of_h8_become_increasing_and_the_heavier_knot_moves_less():
    """H8"""
    values = np.log(np.array([0.01, 0.05, 0.02, 0.08]))
    knots = np.arange(4.0)
    repaired = increasing(knots, values, np.array([1.0, 100.0, 1.0, 1.0]), 0.05)
    assert (np.diff(repaired) > 0).all()
    moved = np.abs(repaired - values)
    assert moved[1] < moved[2]
    assert moved[[0, 3]].max() == 0


def test_inputs_are_left_as_they_were():
    knots, values, weights = np.arange(3.0), np.array([2.0, 1.0, 0.0]), np.ones(3)
    increasing(knots, values, weights, 0.05)
    assert values.tolist() == [2.0, 1.0, 0.0]
