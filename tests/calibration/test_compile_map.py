"""A day's map: line and shape at the knots, made increasing by moving knots least."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from pipeline.calibration.adacalib.shapes import Shape, serving_map
from pipeline.calibration.baselines import increasing
from pipeline.calibration.prior.day_forecast import DayForecast

POINTS = st.lists(st.tuples(st.floats(-8, 8), st.floats(0.01, 1000)), min_size=1, max_size=12)


@given(POINTS, st.floats(0.01, 0.5))
def test_every_slope_is_at_least_the_least_slope(points, least):
    values, weights = (np.array(column) for column in zip(*points, strict=True))
    knots = np.cumsum(np.linspace(0.1, 1.0, len(values)))
    repaired = increasing(knots, values, weights, least)
    assert (np.diff(repaired) >= least * np.diff(knots) - 1e-9).all()


def test_the_knot_of_more_weight_moves_less_and_those_in_order_not_at_all():
    values = np.log(np.array([0.01, 0.05, 0.02, 0.08]))
    repaired = increasing(np.arange(4.0), values, np.array([1.0, 100.0, 1.0, 1.0]), 0.05)
    moved = np.abs(repaired - values)
    assert (np.diff(repaired) > 0).all()
    assert moved[1] < moved[2]
    np.testing.assert_allclose(moved[[0, 3]], 0, atol=1e-12)


def test_values_that_increase_enough_come_back_bit_for_bit():
    knots, values = np.array([0.0, 1.0, 3.0]), np.array([0.1, 0.4, 2.0])
    assert increasing(knots, values, np.ones(3), 0.05) is values


def forecast(level, slope, variance):
    """One field value's line about the logit -2, with a level that is not certain."""
    covariance = np.array([[[variance, 0.0], [0.0, 0.0]]])
    return DayForecast(np.array([[level, slope]]), covariance, np.array([-2.0]))


def shape(heights):
    """Heights at knots from -4 on, one apart."""
    knots = np.arange(len(heights)) - 4.0
    return Shape(knots[None], np.array([heights], dtype=float), np.ones((1, len(heights))))


def test_a_map_is_line_and_shape_at_its_knots_and_the_line_beyond():
    served, moved = serving_map(forecast(-2.5, 0.8, 0.0), shape([0.1, 0.3, 0.2]), 0.05)
    at = np.array([-9.0, -4.0, -3.0, -2.0, 1.0])
    line = -2.5 + 0.8 * (at + 2.0)
    expected = line + np.array([0.1, 0.1, 0.3, 0.2, 0.2])
    np.testing.assert_allclose(served(at, np.zeros(5, int)), expected, atol=1e-12)
    assert moved == 0


def test_a_level_that_is_not_certain_has_the_logit_of_its_mean_probability():
    served, _ = serving_map(forecast(-2.5, 1.0, 0.6), shape([0.0, 0.0, 0.0]), 0.05)
    draws = np.random.default_rng(1).normal(-2.5, 0.6**0.5, 1_000_000)
    mean = expit(served(np.array([-2.0]), np.array([0])))[0]
    assert mean == pytest.approx(expit(draws).mean(), rel=5e-3)


def test_a_line_that_falls_is_served_with_the_least_slope():
    served, moved = serving_map(forecast(-2.5, -0.7, 0.0), shape([0.0, 0.0, 0.0]), 0.05)
    at = np.linspace(-20, 20, 400)
    assert (np.diff(served(at, np.zeros(400, int))) >= 0.9 * 0.05 * 40 / 399).all()
    assert moved >= 2
