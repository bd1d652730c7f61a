"""Training rows that a model knows by heart have steeper rates than fresh ones."""

import math
from dataclasses import replace

import numpy as np
import pytest

from pipeline.formats.scores import Scores
from pipeline.quality.memorisation import memorisation


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
def test_the_number_is_by_how_much_training_days_rise_more_over_a_deviation_of_the_score(slope):
    found = memorisation(day(1), [day(seed, slope=slope) for seed in range(2, 6)])
    assert found["steeper"] == pytest.approx(slope - 1, abs=0.1)
    assert found["high"] - found["low"] < 0.4


def test_the_scale_of_the_score_does_not_matter():
    """A score that hardly varies can hardly be memorised, however steep a line through it is."""
    wide, training = day(1), day(2, slope=1.5)
    narrow, narrower = (
        replace(rows, uncalibrated_logit=rows.uncalibrated_logit / 64) for rows in (wide, training)
    )
    assert memorisation(narrow, [narrower])["steeper"] == pytest.approx(
        memorisation(wide, [training])["steeper"], rel=1e-6
    )


def test_a_season_that_shifts_all_rates_alike_is_no_memorisation():
    found = memorisation(day(1), [day(seed, shift=0.8) for seed in range(2, 6)])
    assert found["low"] < 0 < found["high"]


def test_the_order_and_grouping_of_training_rows_change_nothing():
    first, second = day(2), day(3)
    both = memorisation(day(1), [first, second])
    assert memorisation(day(1), [second, first])["by_bin"] == both["by_bin"]


def test_rows_known_by_heart_at_both_ends_show_however_badly_a_line_fits():
    """Top bin .846 against .300, lowest .0005 against .008, like rates in between."""
    fresh = day(1, rows=40_000)
    order = np.argsort(fresh.uncalibrated_logit)
    known = fresh.responses.copy()
    for rows, fresh_rate, known_rate in (
        (order[:2000], 0.008, 0.0005),
        (order[-2000:], 0.3, 0.846),
    ):
        at = np.arange(len(rows))
        fresh.responses[rows] = at < fresh_rate * len(rows)
        known[rows] = at < known_rate * len(rows)
    found = memorisation(fresh, [replace(fresh, responses=known)])
    assert found["low"] < 0.5 < found["ends_low"]
    alike = memorisation(fresh, [fresh])
    assert alike["ends_low"] < 0 < alike["high"]


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
