"""Do no harm: the simplest calibrator within one standard error of the best."""

import numpy as np
import pytest

from pipeline.calibration.adacalib.fit import fit_adacalib
from pipeline.calibration.choice import choose, losses_of, standard_error
from pipeline.calibration.statistics.bins import tabulate
from pipeline.core.errors import NotEnoughDataError
from tests.calibration.curved_world import curved_world, settings_with

NAMES = ("identity", "isotonic", "eb_platt", "adacalib")


def losses(*means, folds=5, values=40, noise=0.02, seed=1):
    """Losses [F, V] of the four calibrators around means, with noise of their own."""
    rng = np.random.default_rng(seed)
    shape = (folds, values)
    shared = rng.normal(0, 0.1, shape)
    each = (100 * (mean + shared + rng.normal(0, noise, shape)) for mean in means)
    return dict(zip(NAMES, each, strict=True)), np.full(shape, 100.0)


def test_the_best_wins_where_it_is_clearly_better():
    choice = choose(*losses(0.40, 0.39, 0.37, 0.34))
    assert choice.name == choice.best == "adacalib"
    assert choice.excess["eb_platt"] > choice.standard_error["eb_platt"]


def test_the_simpler_wins_a_near_tie():
    choice = choose(*losses(0.40, 0.39, 0.3405, 0.34))
    assert choice.name == "eb_platt"
    assert choice.excess["eb_platt"] <= choice.standard_error["eb_platt"]


def test_identity_wins_where_nothing_helps():
    assert choose(*losses(0.34, 0.34, 0.34, 0.34)).name == "identity"
    assert choose(*losses(0.34, 0.36, 0.37, 0.38)).name == "identity"


def test_identical_losses_choose_the_simplest():
    one, impressions = losses(0.3, 0.3, 0.3, 0.3)
    same = dict.fromkeys(NAMES, one["identity"])
    assert choose(same, impressions).name == "identity"


def test_logloss_is_per_impression():
    each, impressions = losses(0.4, 0.39, 0.37, 0.34)
    expected = each["identity"].sum() / impressions.sum()
    assert choose(each, impressions).logloss["identity"] == pytest.approx(expected)


def test_without_out_of_sample_impressions_there_is_no_choice():
    each, impressions = losses(0.4, 0.39, 0.37, 0.34)
    with pytest.raises(NotEnoughDataError, match="out-of-sample"):
        choose(each, 0 * impressions)


def test_the_standard_error_is_that_of_a_mean_over_field_values_of_equal_weight():
    rng = np.random.default_rng(2)
    per_value = rng.normal(0, 1, 200)
    difference = np.stack([per_value])
    expected = per_value.std(ddof=1) / np.sqrt(200)
    assert standard_error(difference, np.ones((1, 200))) == pytest.approx(expected)


def test_days_that_shake_all_field_values_alike_widen_the_standard_error():
    shock = np.array([1.0, -1.0, 0.5, -0.5, 2.0, -2.0])[:, None] + np.zeros((6, 50))
    calm = np.zeros((6, 50))
    ones = np.ones((6, 50))
    assert standard_error(shock, ones) > 0.5
    assert standard_error(calm, ones) == 0


def test_fewer_than_five_days_say_nothing_about_days():
    shock = np.array([1.0, -1.0, 3.0, -3.0])[:, None] + np.zeros((4, 50))
    assert standard_error(shock, np.ones((4, 50))) == 0


def test_the_calibrators_are_compared_on_counts_they_have_not_seen():
    scores, _ = curved_world(rows=20_000, days=6, curvature=1.5)
    bins, cells = tabulate(scores, (5, 10), 80)
    fitted = fit_adacalib(bins, cells, scores.n_field_values, settings_with(steps=16))
    each, impressions = losses_of(fitted.comparisons, scores.n_field_values)
    assert tuple(each) == NAMES
    late = scores.day >= np.unique(scores.day)[2]
    assert len(impressions) == 4
    assert impressions.sum() == scores.impressions[late].sum()
    assert choose(each, impressions).name == "adacalib"


def test_forward_days_are_the_units_each_with_its_own_impressions():
    """Ten days: six are predicted, in five blocks, by the same map within a block."""
    scores, _ = curved_world(rows=8000, days=10)
    bins, cells = tabulate(scores, (5, 10), 80)
    fitted = fit_adacalib(bins, cells, scores.n_field_values, settings_with(steps=8))
    _, impressions = losses_of(fitted.comparisons, scores.n_field_values)
    days = np.unique(scores.day)[4:]
    for row, day in zip(impressions, days, strict=True):
        assert row.sum() == scores.impressions[scores.day == day].sum()
    first, second, third = (c.predicted["adacalib"] for c in fitted.comparisons[:3])
    assert np.array_equal(first, second)
    assert not np.array_equal(second, third)


def test_split_counts_have_folds_as_units():
    scores, _ = curved_world(rows=4000, days=2)
    bins, cells = tabulate(scores, (5, 10), 80)
    fitted = fit_adacalib(bins, cells, scores.n_field_values, settings_with(steps=8))
    _, impressions = losses_of(fitted.comparisons, scores.n_field_values)
    assert len(impressions) == 10
    assert impressions.sum() == scores.impressions.sum()


def test_noise_alone_does_not_make_adacalib_ship():
    """Scores that are right already: whatever is fitted to them only adds noise."""
    rng = np.random.default_rng(4)
    scores, _ = curved_world(rows=6000, days=6)
    right = rng.random(6000) < 1 / (1 + np.exp(-scores.uncalibrated_logit.astype(float)))
    scores.responses[:] = right
    bins, cells = tabulate(scores, (5, 10), 80)
    fitted = fit_adacalib(bins, cells, scores.n_field_values, settings_with(steps=16))
    choice = choose(*losses_of(fitted.comparisons, scores.n_field_values))
    assert choice.name == "identity"
