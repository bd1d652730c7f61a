"""Sortable bits keep the order of floats of either width."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.formats.sort_keys import from_sortable_bits, sortable_bits

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
WIDTHS = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@WIDTHS
@given(values=st.lists(FLOATS, min_size=2, max_size=20))
def test_sortable_bits_compare_as_the_floats_do(dtype, values):
    x = np.array(values, dtype)
    bits = sortable_bits(x)
    np.testing.assert_array_equal(x[:-1] < x[1:], bits[:-1] < bits[1:])
    np.testing.assert_array_equal(x[:-1] == x[1:], bits[:-1] == bits[1:])


@WIDTHS
@given(values=st.lists(FLOATS, max_size=20))
def test_sortable_bits_are_turned_back_into_the_floats(dtype, values):
    x = np.array(values, dtype)
    np.testing.assert_array_equal(from_sortable_bits(sortable_bits(x)), x)


@WIDTHS
def test_both_zeros_are_one_number(dtype):
    assert len(set(sortable_bits(np.array([0.0, -0.0], dtype)).tolist())) == 1


@WIDTHS
def test_inputs_are_left_as_they_were(dtype):
    x = np.array([-1.5, -0.0, 2.5], dtype)
    before = x.tobytes()
    bits = sortable_bits(x)
    bits_before = bits.tobytes()
    from_sortable_bits(bits)
    assert (x.tobytes(), bits.tobytes()) == (before, bits_before)
