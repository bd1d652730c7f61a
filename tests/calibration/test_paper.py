"""AdaCalib as published."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from scipy.special import expit

from pipeline.calibration.paper.paper_fit import fit_paper, paper_comparisons, predict
from pipeline.calibration.paper.paper_network import (
    PaperNetwork,
    calibrated,
    objective,
)
from pipeline.calibration.paper.paper_rows import (
    LEVELS,
    RowFeatures,
    make_families,
    make_rows,
    merged,
)
from pipeline.calibration.statistics.bins import tabulate
from pipeline.core.errors import TrainingError
from tests.calibration.curved_world import curved_world, excess, paper_settings

QUICK = paper_settings(candidates=(2, 4, 8), epochs=4, batch_size=256, least_steps=1)
ABLATIONS = {
    "all but auxiliary": QUICK,
    "one bin count": replace(QUICK, adaptive_binning=False),
    "global bins": replace(QUICK, adaptive_binning=False, adaptive_function=False),
    "free knots": replace(
        QUICK, adaptive_binning=False, adaptive_function=False, posterior_guidance=False
    ),
}


@pytest.fixture(scope="module")
def world():
    return curved_world(rows=12_000, days=5)


@pytest.fixture(scope="module")
def quick(world):
    """The world as it is fitted in one epoch."""
    return fit_paper(world[0], replace(QUICK, epochs=1))


@pytest.fixture(scope="module")
def fits(world):
    """Each row of the ablation table, fitted when it is asked for."""
    return cache(lambda name: fit_paper(world[0], ABLATIONS[name]))


@pytest.fixture(scope="module")
def parts(world):
    """Families of two candidates, the rows among them, and an untrained network."""
    scores, _ = world
    bins, _ = tabulate(scores, (2, 4), 8)
    families = make_families(bins, (2, 4), scores.n_field_values)
    rows = make_rows(scores, scores.field_value_id, families, None)
    settings = replace(QUICK, candidates=(2, 4))
    torch.manual_seed(1)
    frequency = np.zeros(scores.n_field_values)
    network = PaperNetwork(families, frequency, settings, -2.0, None)
    return families, rows, network


@pytest.mark.parametrize("name", ABLATIONS)
def test_every_row_of_the_ablation_table_meets_the_rate_and_increases(world, fits, name):
    scores, _ = world
    fitted = fits(name)
    probability = expit(fitted.serving(scores.uncalibrated_logit, scores.field_value_id))
    assert probability.mean() == pytest.approx(scores.responses.mean(), rel=0.05)
    at = np.linspace(-20, 20, 2000)
    for z in range(scores.n_field_values):
        assert (np.diff(fitted.serving(at, np.full(2000, z))) > 0).all()


def test_it_meets_the_rate_of_every_field_value_that_is_not_rare(world, fits):
    scores, _ = world
    fitted = fits("all but auxiliary")
    probability = expit(fitted.serving(scores.uncalibrated_logit, scores.field_value_id))
    for z in np.unique(scores.field_value_id):
        of = scores.field_value_id == z
        if of.sum() > 500:
            assert probability[of].mean() == pytest.approx(scores.responses[of].mean(), rel=0.15)


def test_global_bins_give_one_curve_to_all_field_values(world):
    scores, _ = world
    served = fit_paper(scores, replace(ABLATIONS["global bins"], epochs=1)).serving
    at = np.linspace(-5, 1, 50)
    curves = np.stack([served(at, np.full(50, z)) for z in range(scores.n_field_values)])
    assert (curves == curves[0]).all()


def test_rows_lie_between_the_bounds_of_their_bin_and_the_maximum_in_the_last(world, parts):
    scores, _ = world
    families, rows, _ = parts
    for i, family in enumerate(families):
        group, bin_id = rows.group.numpy(), rows.bin_id[:, i].numpy()
        low, high = family.bounds[group, bin_id], family.bounds[group, bin_id + 1]
        logit = scores.uncalibrated_logit
        assert ((low <= logit) & (logit <= high)).all()
        assert (bin_id < family.n_bins[group]).all()
        counted = np.zeros_like(family.impressions)
        np.add.at(counted, (group, bin_id), 1)
        assert np.array_equal(counted, family.impressions)


def test_the_knot_after_the_last_bin_carries_the_field_values_maxima(parts):
    families, _, _ = parts
    for family in families:
        for z in np.flatnonzero(family.n_bins):
            rate, responses = divmod(family.statistic[z, : family.n_bins[z] + 1], LEVELS)
            assert rate[-1] == rate[:-1].max()
            assert responses[-1] == responses[:-1].max()


def test_the_calibrated_logit_is_the_papers_line_between_knots(world, parts):
    scores, _ = world
    families, rows, network = parts
    knots = [knot() for knot in network.knots]
    logits = calibrated(knots, rows).detach().numpy()
    row, family, values = 17, families[1], knots[1].detach().numpy()
    z, k = scores.field_value_id[row], rows.bin_id[row, 1]
    low, high = family.bounds[z, k], family.bounds[z, k + 1]
    slope = (values[z, k + 1] - values[z, k]) / (high - low)
    expected = slope * (scores.uncalibrated_logit[row] - low) + values[z, k]
    assert logits[row, 1] == pytest.approx(expected, abs=1e-5)


def test_the_selector_really_trains(parts):
    families, rows, network = parts
    weights = network.log_attention().exp()
    objective(network, rows, families, weights).backward()
    assert network.choice.weight.grad.abs().sum() > 0


def test_each_field_value_is_served_by_one_candidate(world, quick):
    scores, _ = world
    assert set(quick.chosen_bins[np.unique(scores.field_value_id)]) <= {2, 4, 8}
    assert quick.chosen_bins[0] == 0


def test_equal_inputs_give_equal_maps(world, quick):
    again = fit_paper(world[0], replace(QUICK, epochs=1)).serving
    assert np.array_equal(again.segment_values, quick.serving.segment_values)


def test_a_small_temperature_and_ten_thousand_loud_steps_stay_finite(world):
    scores, _ = world
    settings = replace(QUICK, epochs=20, batch_size=1024, temperatures=(1e-8, 1e-8))
    fitted = fit_paper(scores, replace(settings, learning_rate=0.1))
    assert np.isfinite(fitted.serving.segment_values).all()


def test_a_loss_that_is_not_finite_stops_the_fit_and_says_what_to_lower(world):
    scores, _ = world
    with pytest.raises(TrainingError, match="lower the learning rate"):
        fit_paper(scores, replace(QUICK, learning_rate=1e30))


def test_the_auxiliary_network_adds_what_features_know(world):
    scores, true = world
    rng = np.random.default_rng(1)
    kind = rng.integers(0, 3, len(scores))
    probability = 1 / (1 + np.exp(-(true + np.array([-1.0, 0.0, 1.0])[kind])))
    moved = replace(scores, responses=(rng.random(len(scores)) < probability).astype(np.int32))
    features = RowFeatures(
        kind[:, None].astype(np.int32), np.zeros((len(scores), 0), np.float32), (3,)
    )
    truth = np.log(probability) - np.log1p(-probability)
    brief = replace(QUICK, epochs=2)
    without = fit_paper(moved, brief)
    with_it = fit_paper(moved, replace(brief, auxiliary=True), features)
    alone, both = (excess(predict(f, moved, features), truth) for f in (without, with_it))
    assert both < 0.7 * alone


def test_comparisons_fit_only_what_came_before(world):
    scores, _ = world
    comparisons = paper_comparisons(scores, replace(QUICK, epochs=1))
    last = np.unique(scores.day)[-2:]
    assert [len(c.ids) for c in comparisons] == [int((scores.day == day).sum()) for day in last]
    assert all(set(c.predicted) >= {"identity", "eb_platt", "adacalib"} for c in comparisons)


def test_comparisons_keep_the_horizon(world):
    """None is made of fewer than four days beside it."""
    scores, _ = world
    horizon = len(np.unique(scores.day)) - 3
    assert paper_comparisons(scores, replace(QUICK, epochs=1), horizon_days=horizon) == []


def test_comparisons_of_one_day_split_counts():
    scores, _ = curved_world(rows=2000, days=1)
    comparisons = paper_comparisons(scores, replace(QUICK, epochs=1))
    assert all(0 < c.impressions.sum() < 500 for c in comparisons)


def test_aggregated_rows_give_what_expanded_rows_give():
    """Steps are taken row by row, so rows that are one are one however the log has them."""
    scores, _ = curved_world(rows=400, n_values=3, days=2)
    few = replace(scores, uncalibrated_logit=np.round(scores.uncalibrated_logit, 1))
    together = merged(few)
    assert len(together) < len(few) == together.impressions.sum()
    quick = paper_settings(epochs=1, least_steps=3)
    one, other = (fit_paper(rows, quick).serving for rows in (few, together))
    assert np.array_equal(one.segment_values, other.segment_values)


def test_no_field_value_chooses_more_bins_than_its_responses_bear(world):
    """Though training pushes all of them to the largest candidate that is open to them."""
    scores, _ = world
    responses = np.bincount(scores.field_value_id, scores.responses, scores.n_field_values)
    least = int(np.median(responses[responses > 0]) / 8)
    brief = replace(QUICK, epochs=1)
    free, held = (
        fit_paper(scores, replace(brief, min_responses_per_bin=n)).chosen_bins for n in (0, least)
    )
    more = held > 2
    assert (responses[more] >= least * held[more]).all()
    assert (responses[free > 2] < least * free[free > 2]).any()
