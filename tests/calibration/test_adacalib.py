"""AdaCalib, variant crossfit."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from pipeline.calibration.adacalib.fit import fit_adacalib
from pipeline.calibration.adacalib.knot_training import BinChoice, Head, gumbel_weights
from pipeline.calibration.adacalib.shapes import serving_map
from pipeline.formats.scores import Scores
from tests.calibration.curved_world import curved_world, excess, settings_with, tables_of
from tests.reference import field_auc_by_pairs

QUICK = settings_with(steps=40)
CANDIDATES, CELLS = (5, 10), 80


class Fitted:
    """AdaCalib learned from all days of scores, as it serves the day after."""

    def __init__(self, scores, settings=QUICK):
        tables = tables_of(scores, CANDIDATES, CELLS)
        self.fit = fit_adacalib(tables, settings, known_until=tables.made_until)
        self.line = self.fit.passed.forecasts[tables.made_until + 1]
        self.serving, self.moved_knots = serving_map(
            self.line, self.fit.shapes.last, settings.min_slope
        )


def fitted_on(scores, settings=QUICK):
    return Fitted(scores, settings)


def everywhere(serving, n_field_values, n=10_000):
    """The map at n logits from -30 to 30, for every field value: [V, n]."""
    at = np.linspace(-30, 30, n)
    return np.stack([serving(at, np.full(n, z)) for z in range(n_field_values)])


@pytest.fixture(scope="module")
def world():
    scores, true = curved_world(rows=30_000)
    return scores, true, fitted_on(scores)


def test_it_predicts_curved_field_values_better_than_its_line(world):
    scores, true, fitted = world
    logit, ids = scores.uncalibrated_logit.astype(float), scores.field_value_id
    line = excess(fitted.line(logit, ids), true)
    assert excess(fitted.serving(logit, ids), true) < 0.75 * line


def test_nothing_decreases_over_ten_thousand_logits_of_any_field_value(world):
    scores, _, fitted = world
    steps = np.diff(everywhere(fitted.serving, scores.n_field_values), axis=1)
    assert steps.min() >= 0.9 * QUICK.min_slope * 60 / 9999


def test_ranking_within_field_values_is_kept(world):
    scores, _, fitted = world
    rows = scores.take(np.arange(3000))
    logit, ids = rows.uncalibrated_logit.astype(np.float64), rows.field_value_id
    before = field_auc_by_pairs(logit, rows.responses, ids)
    after = field_auc_by_pairs(fitted.serving(logit, ids), rows.responses, ids)
    assert abs(before[0] - after[0]) < 1e-6


def test_an_untrained_network_leaves_line_and_splines(world):
    scores, _, _ = world
    fitted = fitted_on(scores, settings_with(steps=1, learning_rate=1e-12))
    assert fitted.fit.shapes.heads.share == 0
    assert fitted.fit.shapes.spline_share > 0
    assert fitted.moved_knots == 0


def test_without_splines_and_corrections_the_knots_lie_on_the_line():
    scores, _ = curved_world(rows=4000, days=3)  # too few days to learn a shape from
    fitted = fitted_on(scores)
    assert fitted.fit.shapes.spline_share == fitted.fit.shapes.heads.share == 0
    observed = np.unique(scores.field_value_id)
    at_knots = fitted.serving.knots[observed, 0]
    expected = fitted.line(at_knots, observed)
    np.testing.assert_allclose(fitted.serving(at_knots, observed), expected, rtol=0, atol=1e-9)


def test_a_field_value_without_rows_and_the_unseen_one_have_one_line(world):
    scores, _, fitted = world
    at = np.linspace(-10, 10, 100)
    unseen, never = (fitted.serving(at, np.full(100, z)) for z in (0, scores.n_field_values - 1))
    assert np.array_equal(unseen, never)
    np.testing.assert_allclose(np.diff(unseen, n=2), 0, atol=1e-9)
    assert fitted.fit.shapes.chosen_bins[[0, -1]].tolist() == [0, 0]


def test_field_values_whose_ids_are_all_even_are_learned_from(world):
    scores, _, _ = world
    even = scores.take(np.flatnonzero(scores.field_value_id % 2 == 0))
    served = fitted_on(even, settings_with(steps=2)).serving
    assert np.isfinite(served.segment_values).all()


def test_the_order_of_rows_changes_nothing(world):
    scores, _, fitted = world
    again = fitted_on(scores.take(np.random.default_rng(3).permutation(len(scores))))
    for name in ("knots", "segment_values", "segment_slopes"):
        assert np.array_equal(getattr(fitted.serving, name), getattr(again.serving, name))


def test_the_number_of_threads_changes_nothing_and_is_left_as_it_was(world):
    scores, _, fitted = world
    threads = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        again = fitted_on(scores)
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(threads)
    assert np.array_equal(fitted.serving.segment_values, again.serving.segment_values)


def test_random_numbers_of_the_caller_are_left_alone(world):
    scores, _, _ = world
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    fitted_on(scores.take(np.arange(2000)))
    assert torch.equal(torch.rand(3), expected)


def sparse_world(seed=3):
    """Twenty field values of 2 to 33 responses each, among values of many; all on eight days."""
    scores, _ = curved_world(rows=40_000, n_values=26, days=8, seed=seed)
    rng, ids = np.random.default_rng(seed), scores.field_value_id
    responses, kept = scores.responses.copy(), np.ones(len(scores), bool)
    for value in range(1, 21):
        clicked = np.flatnonzero((ids == value) & (responses == 1))
        kept[rng.permutation(clicked)[rng.integers(2, 34) :]] = False
    return replace(scores, responses=responses).take(np.flatnonzero(kept))


@pytest.mark.parametrize("least", [1, 5, 10])
def test_no_field_value_chooses_more_bins_than_its_responses_bear(least):
    """But the smallest candidate, which is open to all."""
    scores = sparse_world()
    candidates = (5, 10, 20)
    tables = tables_of(scores, candidates, 80)
    settings = settings_with(steps=40, min_responses_per_bin=least)
    chosen = fit_adacalib(tables, settings, known_until=tables.made_until).shapes.chosen_bins
    responses = np.bincount(scores.field_value_id, scores.responses, scores.n_field_values)
    more = chosen > candidates[0]
    assert more.any()
    assert (responses[more] >= least * chosen[more]).all()
    assert set(chosen[1:21]) <= set(candidates)


def test_one_candidate_serves_each_field_value_and_serving_has_no_randomness(world):
    scores, _, fitted = world
    observed = np.unique(scores.field_value_id)
    assert set(fitted.fit.shapes.chosen_bins[observed]) <= set(CANDIDATES)
    logit, ids = scores.uncalibrated_logit[:1000], scores.field_value_id[:1000]
    order = np.random.default_rng(1).permutation(1000)
    once, shuffled = fitted.serving(logit, ids), fitted.serving(logit[order], ids[order])
    assert np.array_equal(once[order], shuffled)


@pytest.mark.parametrize("temperature", [1.0, 1e-8, 1e-40, 5e-324])
def test_gumbel_weights_stay_finite_under_large_attention_and_small_temperature(temperature):
    generator = torch.Generator().manual_seed(1)
    attention = torch.tensor([[1000.0, 0.0, -1000.0]]).expand(10_000, 3).log_softmax(dim=-1)
    weights = gumbel_weights(attention, temperature, generator)
    assert torch.isfinite(weights).all()
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(10_000))


def test_the_least_temperature_there_is_gives_a_map(world):
    few = world[0].take(np.arange(2000))
    fitted = fitted_on(few, settings_with(steps=8, temperatures=(1e-8, 1e-40)))
    assert np.isfinite(everywhere(fitted.serving, 3, 50)).all()


def test_gumbel_noise_picks_candidates_as_often_as_attention_says():
    generator = torch.Generator().manual_seed(1)
    attention = torch.tensor([0.5, 0.3, 0.2]).log().expand(20_000, 3)
    picked = gumbel_weights(attention, 1e-3, generator).argmax(dim=1).bincount() / 20_000
    torch.testing.assert_close(picked, torch.tensor([0.5, 0.3, 0.2]), atol=0.02, rtol=0)


def test_the_choice_among_bin_counts_has_a_gradient():
    choice = BinChoice(4, 3)
    borne = torch.tensor([[True, True, True], [True, True, False]])
    attention = choice(torch.ones(2, 4), borne)
    weights = gumbel_weights(attention, 1.0, torch.Generator().manual_seed(1))
    assert weights[1, 2] == 0
    (weights * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert choice.attention.weight.grad.abs().sum() > 0


def test_aggregated_rows_give_what_expanded_rows_give(world):
    scores, _, _ = world
    few = scores.take(np.arange(4000))
    rounded = replace(few, uncalibrated_logit=np.round(few.uncalibrated_logit, 1))
    keys = np.stack([rounded.field_value_id, rounded.day, rounded.uncalibrated_logit * 10])
    groups, place = np.unique(keys, axis=1, return_inverse=True)
    first = np.unique(place, return_index=True)[1]
    together = replace(
        rounded.take(first),
        impressions=np.bincount(place).astype(np.int64),
        responses=np.bincount(place, rounded.responses).astype(np.int64),
    )
    assert len(together) < len(few) == together.impressions.sum()
    one, other = fitted_on(rounded), fitted_on(together)
    assert np.array_equal(one.serving.segment_values, other.serving.segment_values)
    assert groups.shape[1] == len(together)


def test_one_calibration_day_is_enough():
    scores, true = curved_world(rows=10_000, days=1)
    fitted = fitted_on(scores)
    logit, ids = scores.uncalibrated_logit, scores.field_value_id
    assert excess(fitted.serving(logit, ids), true) < 0.7 * excess(logit.astype(float), true)


def test_small_constant_and_single_row_field_values_are_served():
    scores, _ = curved_world(rows=3000, n_values=4, days=5)
    ids = np.r_[np.full(279, 5), [6, 6, 6, 7]].astype(np.int32)
    logit = np.r_[np.full(279, 0.2727), [-1.0, -2.0, -3.0, 0.5]].astype(np.float32)
    responses = np.r_[np.arange(279) < 5, [0, 1, 0, 0]].astype(np.int32)
    day = (20_000 + np.arange(283) % 5).astype(np.int32)
    columns = zip(
        (scores.uncalibrated_logit, scores.field_value_id, scores.impressions),
        (logit, ids, np.ones(283, np.int32)),
        strict=True,
    )
    both = Scores(
        *(np.concatenate(pair) for pair in columns),
        np.concatenate([scores.responses, responses]),
        np.concatenate([scores.day, day]),
        8,
    )
    served = everywhere(fitted_on(both).serving, 8, 200)
    assert np.isfinite(served).all()
    assert (np.diff(served, axis=1) > 0).all()
    constant = fitted_on(both).serving(np.array([0.2727]), np.array([5]))[0]
    assert abs(1 / (1 + math.exp(-constant)) - 5 / 279) < 0.02


def test_a_log_without_responses_or_without_failures_is_calibrated_all_the_same():
    scores, _ = curved_world(rows=1000, days=5)
    for responses in (np.zeros_like(scores.responses), scores.impressions):
        served = everywhere(fitted_on(replace(scores, responses=responses)).serving, 3, 100)
        assert np.isfinite(served).all()


def test_scores_that_were_sampled_come_back_to_the_rate_of_the_calibration_days():
    """Logits of a base trained on a tenth of the negatives are too high by ln 10."""
    scores, true = curved_world(rows=30_000, curvature=0.0)
    sampled = replace(scores, uncalibrated_logit=scores.uncalibrated_logit + np.float32(2.302585))
    served = fitted_on(sampled).serving(sampled.uncalibrated_logit, sampled.field_value_id)
    rate = (1 / (1 + np.exp(-served))).mean()
    assert abs(rate / (1 / (1 + np.exp(-true))).mean() - 1) < 0.05


def test_corrections_change_the_shape_of_a_curve_and_not_its_level():
    """Over the expected responses of a field value they come to nothing; without any, they stay."""
    head = Head(3, 2, [4])
    torch.nn.init.normal_(head.knots.correction.weight, generator=torch.Generator().manual_seed(1))
    bins, value = torch.arange(24.0).reshape(2, 4, 3), torch.ones(2, 2)
    shares = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.0, 0.0, 0.0, 0.0]])
    at_knots = head.at_knots(bins, shares, value)
    assert at_knots.std() > 0
    assert abs(float((shares * at_knots)[0].sum().detach())) < 1e-6
    assert torch.equal(at_knots[1], head.knots(bins, value)[1])
