"""Do no harm: the simplest calibrator within one standard error of the best."""

import numpy as np
import pytest

from pipeline.calibration.baselines import fit_eb_platt
from pipeline.calibration.choice import choose, standard_error
from pipeline.calibration.roll import roll
from pipeline.calibration.statistics.grid import log_loss_from_logits
from pipeline.core.errors import NotEnoughDataError
from tests.calibration.curved_world import curved_world, settings_with, tables_of

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


def rolled(scores, steps=8, horizon=1):
    """What the days of scores teach, as it serves the day that comes next."""
    tables = tables_of(scores)
    last = tables.made_until
    return roll(
        tables, settings_with(steps=steps), known_until=last, asked={last + horizon: None},
        horizon_days=horizon,
    )  # fmt: skip


@pytest.mark.parametrize("horizon", [1, 2])
def test_the_calibrators_are_compared_on_days_they_have_not_seen(horizon):
    scores, _ = curved_world(rows=20_000, days=8, curvature=1.5)
    choice = rolled(scores, 16, horizon).choice
    assert tuple(choice.logloss) == NAMES
    late = scores.day >= np.unique(scores.day)[3]
    assert choice.days == 5
    assert choice.impressions == scores.impressions[late].sum()
    assert choice.best == "adacalib"


def test_what_is_compared_is_what_would_have_been_served():
    """The loss of EB-Platt is that of the maps of each learning day's morning."""
    scores, _ = curved_world(rows=8000, days=10)
    served = rolled(scores)
    total = 0.0
    for day in np.unique(scores.day)[4:].tolist():
        early = scores.take(np.flatnonzero(scores.day < day))
        late = scores.take(np.flatnonzero(scores.day == day))
        line = fit_eb_platt(early.field_value_id, early.uncalibrated_logit, early.impressions,
                            early.responses, scores.n_field_values)  # fmt: skip
        logit = line(late.uncalibrated_logit, late.field_value_id)
        total += log_loss_from_logits(logit, late.responses, late.impressions).sum()
    assert served.choice.days == 6
    assert served.choice.logloss["eb_platt"] == pytest.approx(
        total / served.choice.impressions, abs=1e-3
    )


def test_noise_alone_does_not_make_adacalib_ship():
    """Scores that are right already: whatever is fitted to them only adds noise."""
    rng = np.random.default_rng(4)
    scores, _ = curved_world(rows=6000, days=6)
    right = rng.random(6000) < 1 / (1 + np.exp(-scores.uncalibrated_logit.astype(float)))
    scores.responses[:] = right
    assert rolled(scores, 16).chosen == "identity"
