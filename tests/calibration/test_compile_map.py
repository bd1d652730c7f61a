"""Knots are made increasing by moving them least."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.calibration.adacalib.compile_map import increasing

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
