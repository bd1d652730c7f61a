"""The serving table inside a checkpoint, and where a map falls."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.checkpoint.serving_table import falls
from pipeline.formats.maps import PiecewiseLinearMap, from_knots, identity_map, shared_map
from tests.checkpoint.parts import bent_map

VALUES = [None, "a", "b"]


def three(knots: list[float], values: list[float], left: float, right: float) -> PiecewiseLinearMap:
    """A map whose third field value has the given shape and whose others are the identity."""
    flat = np.array([0.0])
    return from_knots(
        [flat, flat, np.array(knots)],
        [flat, flat, np.array(values)],
        np.array([1, 1, left]),
        np.array([1, 1, right]),
    )


def probed_falls(serving_map: PiecewiseLinearMap, n: int = 10_000) -> set[int]:
    """Field value ids that decrease on a grid of logits, by looking at every logit."""
    grid = np.linspace(-12, 12, n)
    return {
        value
        for value in range(serving_map.n_field_values)
        if (np.diff(serving_map(grid, np.full(n, value))) < -1e-9).any()
    }


def test_bin_rates_out_of_order_are_named_with_value_and_knots():
    """Rates 0.01, 0.05, 0.02, 0.08."""
    rates = np.array([0.01, 0.05, 0.02, 0.08])
    serving_map = three([-4, -3, -2, -1], list(np.log(rates / (1 - rates))), 1, 1)
    assert falls(serving_map, VALUES) == [
        "the calibrated logit of field value 'b' falls by 0.947 between the knots -3 and -2"
    ]


@pytest.mark.parametrize(
    ("left", "right", "place"),
    [(-0.5, 1, "between the knots -inf and 0"), (1, -0.5, "between the knots 1 and inf")],
)
def test_a_falling_end_is_found_beyond_the_outer_knots(left, right, place):
    assert falls(three([0, 1], [0, 1], left, right), VALUES) == [
        f"the calibrated logit of field value 'b' falls by 0.5 {place}"
    ]


def test_a_step_down_at_a_knot_is_found():
    values = three([0, 1], [0, 1], 1, 1).segment_values.copy()
    values[2, 2] -= 0.25
    serving_map = replace(three([0, 1], [0, 1], 1, 1), segment_values=values)
    assert falls(serving_map, VALUES) == [
        "the calibrated logit of field value 'b' falls by 0.25 at the knot 1"
    ]


def test_the_row_of_unseen_values_is_looked_at_too():
    assert "unseen values" in falls(identity_falling_at_zero(), VALUES)[0]


def identity_falling_at_zero() -> PiecewiseLinearMap:
    slopes = identity_map(3).segment_slopes.copy()
    slopes[0] = -1
    return replace(identity_map(3), segment_slopes=slopes)


@pytest.mark.parametrize(
    "serving_map",
    [
        identity_map(3),
        bent_map(3),
        three([0, 1], [2, 2], 0, 0),
        shared_map(np.array([0.0, 1.0]), np.array([0.0, 1.0]), 0.1, 1.0, 3),
    ],
)
def test_what_never_falls_is_not_blamed_plateaus_included(serving_map):
    assert falls(serving_map, VALUES) == []
    assert probed_falls(serving_map) == set()


@given(st.integers(0, 10_000))
def test_a_scan_of_ten_thousand_logits_finds_no_fall_that_is_not_named(seed):
    draw = np.random.default_rng(seed)
    knots = [np.sort(draw.choice(np.arange(-8, 8), 4, replace=False)) * 1.0 for _ in VALUES]
    values = [np.sort(draw.normal(size=4)) for _ in VALUES]
    if seed % 3:
        values[seed % len(values)][1:3] += draw.normal(size=2)
    serving_map = from_knots(knots, values, *(draw.random(3) - 0.1 * (seed % 2) for _ in "lr"))
    named = {
        VALUES.index(None if "unseen" in s else s.split("'")[1]) for s in falls(serving_map, VALUES)
    }
    assert probed_falls(serving_map) <= named
    within = {v for v in range(3) if serving_map.segment_slopes[v, [0, 4]].min() >= 0}
    assert named & within == probed_falls(serving_map) & within
