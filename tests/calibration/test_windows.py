"""Baselines that are fitted again each day on the newest days."""

from dataclasses import replace

import numpy as np
import pytest

from pipeline.calibration.baselines import (
    FITS,
    WINDOWS,
    best_window,
    coarse,
    isotonic_curve,
    windowed_map,
)
from pipeline.calibration.statistics.grid import log_loss_from_logits
from tests.calibration.curved_world import curved_world, tables_of

AT = np.linspace(-5, 1, 20)


@pytest.fixture(scope="module")
def cells():
    scores, _ = curved_world(rows=20_000, n_values=5, days=40, drift=0.3)
    return tables_of(scores).cells


def flipped(cells, days):
    """The cells with the labels of some days turned round."""
    turned = np.where(days, cells.impressions - cells.responses, cells.responses)
    return replace(cells, responses=turned)


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("horizon", [1, 3])
def test_a_map_knows_its_window_and_nothing_else(cells, name, horizon):
    served = windowed_map(FITS[name], cells, 7, 20_030 - horizon, 7)
    known = (cells.day <= 20_030 - horizon) & (cells.day > 20_030 - horizon - 7)
    same = windowed_map(FITS[name], flipped(cells, ~known), 7, 20_030 - horizon, 7)
    other = windowed_map(FITS[name], flipped(cells, known), 7, 20_030 - horizon, 7)
    ids = np.full(len(AT), 2)
    assert np.array_equal(served(AT, ids), same(AT, ids))
    assert not np.array_equal(served(AT, ids), other(AT, ids))


@pytest.mark.parametrize("name", FITS)
def test_a_day_before_which_nothing_is_known_is_served_as_it_is(cells, name):
    served = windowed_map(FITS[name], cells, 7, 19_999, 7)
    assert np.array_equal(served(AT, np.ones(len(AT), int)), AT)


@pytest.mark.parametrize("name", FITS)
def test_a_baseline_that_may_ship_ties_no_logits(cells, name):
    """A plateau costs rank, and the gate refuses a model that has them."""
    logits = np.linspace(-8, 3, 500)
    served = windowed_map(FITS[name], cells, 7, 20_029, 7)
    values = served(logits, np.full(len(logits), 2))
    assert (np.diff(values) > 0.049 * np.diff(logits)).all()


def test_what_isotonic_regression_gives_up_for_rank_costs_next_to_nothing(cells):
    rate = cells.responses.sum() / cells.impressions.sum()
    logit = cells.logit_sum / cells.impressions
    columns = logit, cells.impressions, cells.responses
    plateaus = isotonic_curve(*columns, np.full(len(cells), rate))
    tilted = FITS["isotonic"](cells, 7)(logit, cells.field_value_id)
    total = [
        log_loss_from_logits(each, cells.responses, cells.impressions).sum()
        for each in (np.interp(logit, *plateaus), tilted)
    ]
    assert total[0] < total[1] < 1.0005 * total[0]


@pytest.mark.parametrize("drift", [0.0, 0.3])
def test_the_window_is_short_where_offsets_walk_and_long_where_nothing_moves(drift):
    scores, _ = curved_world(rows=60_000, n_values=5, days=40, drift=drift)
    cells = tables_of(scores).cells
    best = best_window(FITS["eb_platt"], cells, 7, 1, range(20_028, 20_040))
    assert best == (min(WINDOWS) if drift else max(WINDOWS))


def test_the_window_is_chosen_on_the_learning_days_alone(cells):
    days = range(20_030, 20_034)
    later = flipped(cells, cells.day > 20_033)
    best, same = (best_window(FITS["eb_platt"], each, 7, 1, days) for each in (cells, later))
    assert best == same


def test_the_longest_window_wins_a_tie():
    scores, _ = curved_world(rows=500, n_values=3, days=5)
    cells = tables_of(scores).cells
    for days in ([], [20_004]):
        assert best_window(FITS["eb_platt"], cells, 5, 1, days) == max(WINDOWS)


def test_coarse_cells_keep_every_sum_of_a_value_and_day(cells):
    few = coarse(cells, cells.day <= 20_020)
    assert len(few) < len(cells)
    for name in ("impressions", "responses", "logit_sum", "probability_sum"):
        one, other = (
            np.bincount(t.field_value_id * 100 + t.day - 20_000, getattr(t, name))
            for t in (cells, few)
        )
        np.testing.assert_allclose(one, other)
