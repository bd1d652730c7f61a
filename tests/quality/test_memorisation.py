"""Training rows that a model knows by heart have steeper rates than fresh ones."""

import math

import numpy as np
import pytest

from pipeline.quality.memorisation import memorisation
from pipeline.scores import Scores


def day(seed, slope=1.0, shift=0.0, rows=20_000, impressions=1):
    """A day whose responses follow slope × logit − 2 + shift."""
    draw = np.random.default_rng(seed)
    logit = draw.normal(size=rows).astype(np.float32)
    chance = 1 / (1 + np.exp(2.0 - shift - slope * logit))
    many = np.full(rows, impressions, np.int32)
    value = draw.integers(0, 5, rows).astype(np.int32)
    return Scores(logit, value, many, draw.binomial(many, chance).astype(np.int32), many, 5)


def test_training_days_like_fresh_ones_show_nothing():
    found = memorisation(day(1), [day(seed) for seed in range(2, 6)])
    assert found["low"] < 0 < found["high"]
    assert found["training_days"] == 4


@pytest.mark.parametrize("slope", [1.5, 2.0])
def test_the_number_is_by_how_much_training_days_are_steeper(slope):
    found = memorisation(day(1), [day(seed, slope=slope) for seed in range(2, 6)])
    assert found["low"] < slope - 1 < found["high"]
    assert found["high"] - found["low"] < 0.4


def test_a_season_that_shifts_all_rates_alike_is_no_memorisation():
    found = memorisation(day(1), [day(seed, shift=0.8) for seed in range(2, 6)])
    assert found["low"] < 0 < found["high"]


def test_the_order_and_grouping_of_training_rows_change_nothing():
    first, second = day(2), day(3)
    both = memorisation(day(1), [first, second])
    assert memorisation(day(1), [second, first])["by_bin"] == both["by_bin"]


@pytest.mark.parametrize("training", [[], [day(2, rows=0)]])
def test_without_training_rows_nothing_is_told(training):
    assert math.isnan(memorisation(day(1), training)["steeper"])


def test_a_constant_score_tells_nothing():
    rows = day(1)
    constant = Scores(
        np.zeros_like(rows.uncalibrated_logit),
        rows.field_value_id,
        rows.impressions,
        rows.responses,
        rows.day,
        5,
    )
    assert math.isnan(memorisation(constant, [rows])["steeper"])
