"""The auxiliary network of the default variant: what features know beyond the map."""

from dataclasses import replace

import numpy as np
from scipy.special import expit, logit as log_odds
import pytest
import torch

from pipeline.calibration.adacalib.fit import Settings, fit_adacalib
from pipeline.calibration.paper.auxiliary_fit import fit_auxiliary, out_of_fold_logits
from pipeline.calibration.paper.paper_rows import Features
from pipeline.calibration.statistics.bins import tabulate
from tests.calibration.bent import bent_world, excess


def world_with_slots(spread, days=6):
    """A bent world in which one of six slots moves a row's true logit."""
    scores, true = bent_world(rows=30_000, days=days)
    rng = np.random.default_rng(5)
    slot = rng.integers(1, 7, len(scores))
    true = true + spread * np.linspace(-1, 1, 7)[slot]
    responses = (rng.random(len(scores)) < expit(true)).astype(np.int32)
    nothing = np.empty((len(scores), 0), np.float32)
    return replace(scores, responses=responses), true, Features(slot[:, None], nothing, (7,))


def fitted_on(scores):
    bins, cells = tabulate(scores, (5, 10), 80)
    return fit_adacalib(bins, cells, scores.n_field_values, Settings(steps=16))


def term(network, features):
    with torch.no_grad():
        ids = torch.from_numpy(features.categorical.astype(np.int64))
        return network(ids, torch.from_numpy(features.numeric)).double().numpy()


def test_what_features_know_is_added_to_the_map():
    scores, true, features = world_with_slots(0.8)
    fitted = fitted_on(scores)
    network = fit_auxiliary(scores, features, out_of_fold_logits(scores, fitted.held_out), 1)
    plain = fitted.serving(scores.uncalibrated_logit, scores.field_value_id)
    assert excess(plain + term(network, features), true) < 0.5 * excess(plain, true)


def test_features_that_know_nothing_are_left_out():
    scores, _, features = world_with_slots(0.0)
    offset = out_of_fold_logits(scores, fitted_on(scores).held_out)
    assert fit_auxiliary(scores, features, offset, 1) is None


def test_offsets_are_predictions_of_days_that_the_fold_had_not_seen():
    scores, _, _ = world_with_slots(0.0)
    fitted = fitted_on(scores)
    offset = out_of_fold_logits(scores, fitted.held_out)
    first = np.unique(scores.day)[2]
    assert np.array_equal(np.isnan(offset), scores.day < first)
    fold = fitted.held_out[0]
    at = np.flatnonzero(scores.day == first)
    n, y = scores.impressions[at], scores.responses[at]
    by_row = (n * np.logaddexp(0, offset[at]) - y * offset[at]).sum()
    cells = fold.target
    by_cell = cells.impressions * np.logaddexp(0, fold.adacalib) - cells.responses * fold.adacalib
    assert by_row == pytest.approx(by_cell.sum(), rel=2e-3)


def test_where_counts_are_split_there_is_no_auxiliary_network():
    scores, _, features = world_with_slots(0.8, days=2)
    offset = out_of_fold_logits(scores, fitted_on(scores).held_out)
    assert np.isnan(offset).all()
    assert fit_auxiliary(scores, features, offset, 1) is None


def test_equal_inputs_give_equal_weights_and_leave_the_generator_alone():
    scores, true, features = world_with_slots(0.8)
    offset = log_odds(expit(true)) - 0.8 * np.linspace(-1, 1, 7)[features.categorical[:, 0]]
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    one, other = (fit_auxiliary(scores, features, offset, 1) for _ in range(2))
    assert torch.equal(torch.rand(2), expected)
    assert np.array_equal(term(one, features), term(other, features))
