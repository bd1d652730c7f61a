"""Folds: what is known, what is to be predicted."""

import numpy as np
import pytest

from pipeline.calibration.folds import (
    count_folds,
    forward_folds,
    make_folds,
)
from pipeline.calibration.statistics.bins import tabulate
from tests.calibration.curved_world import curved_world


@pytest.fixture(scope="module")
def cells():
    scores, _ = curved_world(rows=3000, days=7)
    return tabulate(scores, (5,), 20)[1]


def test_a_forward_fold_knows_only_days_before_those_it_predicts(cells):
    for fold in forward_folds(cells):
        known, predicted = (cells.day[c.impressions > 0] for c in (fold.history, fold.target))
        assert known.max() < predicted.min()


def test_every_day_after_burn_in_is_predicted_once(cells):
    predicted = sum(fold.target.impressions for fold in forward_folds(cells))
    late = cells.day >= np.unique(cells.day)[3]
    assert np.array_equal(predicted, cells.impressions * late)


def test_count_folds_share_out_every_impression_and_response(cells):
    folds = count_folds(cells, seed=1)
    for name in ("impressions", "responses"):
        shared = sum(getattr(fold.target, name) for fold in folds)
        assert np.array_equal(shared, getattr(cells, name))
        for fold in folds:
            both = getattr(fold.history, name) + getattr(fold.target, name)
            assert np.array_equal(both, getattr(cells, name))


def test_count_folds_split_a_single_row_of_many_impressions(cells):
    row = cells.take(np.argmax(cells.impressions)[None])
    assert all(fold.target.impressions[0] < row.impressions[0] for fold in count_folds(row, 1))


def test_few_days_are_split_by_counts(cells):
    three = cells.take(cells.day < np.unique(cells.day)[3])
    assert len(make_folds(three, 1)) == 10
    assert len(make_folds(cells, 1)) == 4
