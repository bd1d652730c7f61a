"""Folds: what is known, what is to be predicted."""

import numpy as np
import pytest

from pipeline.calibration.folds import FORWARD_DAYS, forward_folds, scattered
from pipeline.calibration.statistics.bins import tabulate
from tests.calibration.curved_world import curved_world
from tests.calibration.logs import random_scores


@pytest.fixture(scope="module")
def cells():
    scores, _ = curved_world(rows=3000, days=7)
    return tabulate(scores, (5,), 20)[1]


@pytest.mark.parametrize("horizon", [1, 2, 3])
def test_a_forward_fold_knows_only_days_the_horizon_before_those_it_predicts(cells, horizon):
    for fold in forward_folds(cells, horizon):
        known, predicted = (cells.day[c.impressions > 0] for c in (fold.history, fold.target))
        assert known.max() <= predicted.min() - horizon


def test_every_day_after_burn_in_is_predicted_once(cells):
    folds = forward_folds(cells)
    predicted = sum(fold.target.impressions for fold in folds)
    late = np.unique(cells.day)[3:]
    assert np.array_equal(predicted, cells.impressions * np.isin(cells.day, late))
    assert np.array_equal(np.concatenate([fold.days for fold in folds]), late)


@pytest.mark.parametrize("horizon", [1, 2])
def test_too_few_days_have_no_folds(cells, horizon):
    least = np.unique(cells.day)[FORWARD_DAYS + horizon - 1]
    assert forward_folds(cells.take(cells.day < least), horizon) == []
    assert forward_folds(cells.take(cells.day <= least), horizon)


def test_scattered_days_share_out_every_impression_and_response():
    scores = random_scores(500, impressions=9)
    drawn = scattered(scores, seed=1)
    assert len(np.unique(drawn.day)) > FORWARD_DAYS + 1
    for name in ("impressions", "responses"):
        assert getattr(drawn, name).sum() == getattr(scores, name).sum()
        for column in ("uncalibrated_logit", "field_value_id"):
            one, other = (
                np.unique(np.repeat(getattr(s, column), getattr(s, name)), return_counts=True)
                for s in (scores, drawn)
            )
            assert all(np.array_equal(*pair) for pair in zip(one, other, strict=True))
    assert (drawn.responses <= drawn.impressions).all()
    assert (drawn.impressions > 0).all()


def test_scattered_rows_may_come_in_any_order_and_in_parts():
    """Equal rows are one row of as many impressions."""
    scores = random_scores(500, decimals=0, impressions=3)
    parts = scores.take(np.random.default_rng(1).permutation(np.repeat(np.arange(500), 2)))
    whole = scores.take(np.arange(500))
    whole.impressions[:] *= 2
    whole.responses[:] *= 2
    one, other = (scattered(rows, seed=3) for rows in (parts, whole))
    for name in ("uncalibrated_logit", "field_value_id", "impressions", "responses", "day"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
