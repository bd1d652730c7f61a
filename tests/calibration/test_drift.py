"""The drifting anchor and the splines."""

from dataclasses import replace

import numpy as np
import pytest
from pipeline.calibration.prior.base_map import make_anchors, with_splines
from pipeline.calibration.prior.state_space import ROUNDS
from scipy.special import expit

from pipeline.calibration.folds import all_counts
from pipeline.calibration.statistics.bins import tabulate
from pipeline.calibration.statistics.grid import make_grid
from pipeline.formats.scores import Scores
from tests.calibration.curved_world import curved_world, excess


def anchors_of(scores, horizon_days=1):
    bins, cells = tabulate(scores, (5, 10), 80)
    grid = make_grid(bins, cells, scores.n_field_values)
    return grid, make_anchors(grid, all_counts(cells), horizon_days)


def last_day(scores, true):
    rows = scores.day == scores.day.max()
    return scores.uncalibrated_logit[rows].astype(float), scores.field_value_id[rows], true[rows]


def test_the_forecast_follows_offsets_that_walk():
    scores, true = curved_world(rows=60_000, days=14, curvature=0.0, drift=0.25)
    _, base = anchors_of(scores)
    logit, ids, truth = last_day(scores, true)
    static, drifting = (excess(a(logit, ids), truth) for a in (base.static, base.anchor))
    assert drifting < 0.4 * static


def test_without_drift_the_forecast_stays_near_the_static_anchor():
    scores, true = curved_world(rows=60_000, days=14, curvature=0.0)
    _, base = anchors_of(scores)
    logit, ids, truth = last_day(scores, true)
    assert excess(base.anchor(logit, ids), truth) < excess(base.static(logit, ids), truth) + 1e-4


def sparse_walkers(seed, n_values=300, days=8):
    """Rare values whose offsets move for good and back, and their true rates on the day after."""
    rng = np.random.default_rng(seed)
    moves = [rng.normal(0, 0.5, n_values)]
    for _ in range(days):
        moves.append(0.8 * moves[-1] + rng.normal(0, 0.3, n_values))
    logit = rng.normal(-3.2, 0.5, n_values).astype(np.float32)
    rate = expit(logit + rng.normal(0, 0.5, n_values) + np.stack(moves))
    impressions = np.tile(rng.integers(5, 200, n_values), (days, 1))
    responses = rng.binomial(impressions, rate[:days])
    ids, day = (
        a.T.ravel() for a in np.meshgrid(np.arange(1, n_values + 1), np.arange(days), indexing="ij")
    )
    columns = (impressions.ravel(), responses.ravel(), day)
    scores = Scores(
        np.tile(logit, days),
        ids.astype(np.int32),
        *(c.astype(np.int32) for c in columns),
        n_values + 1,
    )
    return scores, logit, rate[days]


def test_forecasts_of_rare_values_are_right_in_the_mean():
    """Neither the mode of an offset nor its mean gives the mean rate: the first is 2 % off here."""
    expected, true = 0.0, 0.0
    for seed in range(6):
        scores, logit, rate = sparse_walkers(seed)
        _, base = anchors_of(scores)
        expected += expit(base.anchor(logit, np.arange(1, len(rate) + 1))).sum()
        true += rate.sum()
    assert expected == pytest.approx(true, rel=0.02)


def test_a_farther_horizon_forgets_more_of_the_last_days():
    scores, _ = curved_world(rows=60_000, days=14, curvature=0.0, drift=0.25)
    near, far = (anchors_of(scores, horizon)[1].anchor.offsets for horizon in (1, 60))
    assert far[1:-1].std() < near[1:-1].std()


@pytest.mark.parametrize("drift", [0.0, 0.25])
def test_variances_settle_so_that_a_round_more_changes_next_to_nothing(drift, monkeypatch):
    scores, _ = curved_world(rows=60_000, days=14, curvature=0.0, drift=drift)
    offsets = anchors_of(scores)[1].drifting.offsets
    monkeypatch.setattr("pipeline.calibration.prior.state_space.ROUNDS", ROUNDS + 1)
    once_more = anchors_of(scores)[1].drifting.offsets
    assert np.abs(once_more - offsets).max() < 0.002


@pytest.mark.parametrize("few", ["responses", "failures"])
@pytest.mark.parametrize("number", [0, 1, 9, 10, 11, 20, 50])
def test_as_many_responses_are_expected_as_came_however_few(few, number):
    """With hardly any there is no drift to be seen, and nothing runs away."""
    scores, _ = curved_world(rows=1000, days=6)
    few_ones = (np.random.default_rng(number).permutation(1000) < number).astype(np.int32)
    responses = few_ones if few == "responses" else 1 - few_ones
    scores = replace(scores, responses=responses, impressions=np.ones(1000, np.int32))
    _, base = anchors_of(scores)
    expected = expit(base.anchor(scores.uncalibrated_logit.astype(float), scores.field_value_id))
    rarer = expected.sum() if few == "responses" else (1 - expected).sum()
    assert rarer == pytest.approx(number, rel=0.5, abs=1.0)
    assert (base.drifting is not None) == (number >= 10)


def test_one_or_two_days_show_no_drift():
    scores, _ = curved_world(rows=4000, days=2)
    assert anchors_of(scores)[1].drifting is None


def test_the_row_of_unseen_values_is_the_static_anchors():
    scores, _ = curved_world(rows=4000, days=5)
    _, base = anchors_of(scores)
    for row in (0, scores.n_field_values - 1):  # unseen, and a value without rows
        assert base.anchor.offsets[row] == base.static.offsets[row]
        assert base.anchor.slopes[row] == base.static.slopes[row]


def test_years_of_days_are_merged_into_periods():
    scores, _ = curved_world(rows=6000, days=100)
    _, base = anchors_of(scores)
    assert base.drifting.offsets.shape[1] <= 32
    assert np.isfinite(base.drifting.offsets).all()


def test_a_few_field_values_with_empty_days_are_no_trouble():
    scores, _ = curved_world(rows=500, n_values=2, days=9)
    thin = scores.take(np.flatnonzero((scores.day % 3 == 0) | (scores.field_value_id == 1)))
    assert np.isfinite(anchors_of(thin)[1].anchor.offsets).all()


@pytest.mark.parametrize("curvature", [0.0, 1.0])
def test_curves_are_found_where_they_are_and_only_there(curvature):
    scores, true = curved_world(rows=60_000, days=1, curvature=curvature)
    grid, base = anchors_of(scores)
    curved = with_splines(base, grid, all_counts(grid.cells))
    logit, ids = scores.uncalibrated_logit.astype(float), scores.field_value_id
    line, spline = (excess(b(logit, ids), true) for b in (base, curved))
    assert spline < (0.5 * line if curvature else line + 2e-4)


def test_a_field_value_without_rows_has_the_unseen_values_line():
    scores, _ = curved_world(rows=4000, days=1)
    grid, base = anchors_of(scores)
    curved = with_splines(base, grid, all_counts(grid.cells))
    at = np.linspace(-8, 4, 50)
    assert np.array_equal(curved(at, np.zeros(50, int)), base(at, np.zeros(50, int)))


def test_constant_logits_have_an_anchor_and_a_spline_that_are_finite():
    n = 279
    ids = np.r_[np.ones(n), np.full(n, 2)].astype(np.int32)
    logit = np.where(ids == 1, 0.273, np.linspace(-4, -1, 2 * n)).astype(np.float32)
    responses = (np.arange(2 * n) % 56 == 0).astype(np.int32)
    scores = Scores(logit, ids, np.ones_like(ids), responses, np.zeros_like(ids), 3)
    grid, base = anchors_of(scores)
    curved = with_splines(base, grid, all_counts(grid.cells))
    value = curved(np.array([0.273]), np.array([1]))[0]
    assert abs(1 / (1 + np.exp(-value)) - 5 / n) < 0.01
