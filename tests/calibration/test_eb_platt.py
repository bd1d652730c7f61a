"""Empirical-Bayes Platt scaling."""

import os
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from bench.baselines.per_value import eb_platt, eb_platt_forward
from bench.quality_cases import frozen_cases
from pipeline.calibration.baselines import fit_eb_platt
from pipeline.calibration.prior.random_slopes import group_rows, posterior
from pipeline.calibration.statistics.bins import tabulate
from pipeline.calibration.statistics.grid import log_loss_from_logits
from pipeline.core.errors import NotEnoughDataError
from pipeline.formats.scores import Scores
from tests.reference import one_row_per_impression, platt_under_a_normal_prior

BESIDE = Path(__file__).parents[3] / "shared" / "data"
SCORES = Path(os.environ.get("ADACALIB_BENCH_DATA", BESIDE)) / "adwords_scores.parquet"

# LogLoss of the two forms, means over three seeds, in windows that start before July.
FIGURES = {
    "2012-04-01 60/7/7": (0.11461, 0.11466),
    "2012-04-15 60/7/7": (0.10031, 0.10008),
    "2012-05-01 60/7/7": (0.10475, 0.10482),
    "2012-05-15 60/7/7": (0.10549, 0.10536),
    "2012-05-15 90/14/14": (0.09615, 0.09596),
    "2012-06-01 60/7/7": (0.10822, 0.10804),
    "2012-04-01 90/30/30": (0.10435, 0.10394),
}


def world(seed=1, n_values=300, spread=(0.6, 0.2), rows=40, impressions=30):
    """Rows of field values 1..n_values whose offsets and slopes are normal around (0, 1)."""
    rng = np.random.default_rng(seed)
    offset = rng.normal(0, spread[0], n_values + 1)
    slope = np.maximum(rng.normal(1, spread[1], n_values + 1), 0.1)
    z = np.repeat(np.arange(1, n_values + 1), rows)
    logit = rng.normal(-3, 1, len(z))
    n = rng.integers(1, 2 * impressions, len(z))
    true = -3 + offset[z] + slope[z] * (logit + 3)
    return z, logit, n, rng.binomial(n, expit(true)), n_values + 1


def prior_of(z, logit, n, k, n_values):
    """Mean and covariance of (offset, slope) over field values."""
    prior, *_ = posterior(group_rows((z, logit, n, k), None))
    return prior.mean, np.linalg.inv(prior.precision)


def center_of(served):
    return served.knots[0, 0]


def offsets_of(served):
    return served.segment_values[:, 0] - center_of(served)


def slopes_of(served):
    return served.segment_slopes[:, 0]


def test_the_spread_of_field_values_is_recovered():
    mean, covariance = prior_of(*world(n_values=1000))
    np.testing.assert_allclose(mean, [0, 1], atol=0.05)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), [0.6, 0.2], atol=0.03)


def test_each_field_value_is_the_mode_of_its_rows_and_the_prior():
    z, logit, n, k, n_values = world(n_values=40)
    served, prior = fit_eb_platt(z, logit, n, k, n_values), prior_of(z, logit, n, k, n_values)
    for value in (1, 7, 40):
        own = z == value
        rows = (logit[own] - center_of(served), n[own], k[own])
        mode = platt_under_a_normal_prior(rows, center_of(served), *prior)
        found = [offsets_of(served)[value], slopes_of(served)[value]]
        np.testing.assert_allclose(found, mode, atol=2e-4)


def test_a_field_value_with_much_evidence_follows_its_own_platt_map():
    z, logit, n, k, n_values = world()
    first = z == 1
    n = np.where(first, 100_000, n)
    k = np.where(first, np.round(n * expit(-2 + 1.3 * (logit + 2))), k)
    served = fit_eb_platt(z, logit, n, k, n_values)
    own = LogisticRegression(C=np.inf, tol=1e-8).fit(
        np.tile(logit[first], 2)[:, None], np.repeat([1, 0], first.sum()),
        sample_weight=np.concatenate([k[first], (n - k)[first]]),
    )  # fmt: skip
    at = np.linspace(-6, 0, 7)
    expected = own.decision_function(at[:, None])
    np.testing.assert_allclose(served(at, np.ones(7, int)), expected, atol=5e-3)


def test_a_field_value_with_little_evidence_stays_near_the_prior_mean():
    z, logit, n, k, n_values = world()
    few = z == 1
    n, k = np.where(few, 0, n), np.where(few, 0, k)
    n[np.flatnonzero(few)[0]] = 1
    served = fit_eb_platt(z, logit, n, k, n_values)
    typical, _ = prior_of(z, logit, n, k, n_values)
    np.testing.assert_allclose([offsets_of(served)[1], slopes_of(served)[1]], typical, atol=0.1)


def test_aggregated_rows_give_what_single_impressions_give():
    z, logit, n, k, n_values = world(n_values=30, rows=8, impressions=5)
    label, many, at = one_row_per_impression(n, k, z, logit)
    together = fit_eb_platt(z, logit, n, k, n_values)
    single = fit_eb_platt(many, at, np.ones(len(label)), label, n_values)
    np.testing.assert_allclose(offsets_of(single), offsets_of(together), atol=1e-9)
    np.testing.assert_allclose(slopes_of(single), slopes_of(together), atol=1e-9)


def test_the_order_of_rows_is_irrelevant_and_inputs_are_left_as_they_were():
    z, logit, n, k, n_values = world(n_values=50)
    before = [column.copy() for column in (z, logit, n, k)]
    order = np.random.default_rng(2).permutation(len(z))
    one = fit_eb_platt(z, logit, n, k, n_values)
    other = fit_eb_platt(z[order], logit[order], n[order], k[order], n_values)
    np.testing.assert_allclose(offsets_of(one), offsets_of(other), atol=1e-9)
    for column, copy in zip((z, logit, n, k), before, strict=True):
        np.testing.assert_array_equal(column, copy)


def test_day_weights_count_as_fractions_of_impressions():
    z, logit, n, k, n_values = world(n_values=50)
    doubled = fit_eb_platt(z, logit, 2 * n, 2 * k, n_values)
    twice = fit_eb_platt(*(np.tile(c, 2) for c in (z, logit, n, k)), n_values)
    np.testing.assert_allclose(offsets_of(doubled), offsets_of(twice), atol=1e-9)
    faded = fit_eb_platt(z, logit, 0.5 * n, 0.5 * k, n_values)
    assert offsets_of(faded)[1:].std() < offsets_of(doubled)[1:].std()


def test_slopes_stay_positive_where_the_data_falls():
    """Value with bin rates 0.01, 0.05, 0.02, 0.08, and one that only falls."""
    logit = np.tile([-4.0, -3.0, -2.0, -1.0], 2)
    rates = np.array([0.01, 0.05, 0.02, 0.08, 0.2, 0.1, 0.05, 0.01])
    z = np.repeat([1, 2], 4)
    served = fit_eb_platt(z, logit, np.full(8, 10_000), np.round(10_000 * rates), 3)
    assert (slopes_of(served) >= 0.05).all()
    logits = np.linspace(-20, 20, 10_000)
    for value in range(3):
        assert (np.diff(served(logits, np.full(10_000, value))) > 0).all()
    own = expit(served(logit[4:], np.full(4, 2))).mean()
    assert own == pytest.approx(rates[4:].mean(), rel=0.02)  # the offset follows the raised slope


@pytest.mark.parametrize(("spread", "shortfall"), [(0.5, 0.98), (1.2, 0.85)])
def test_unseen_field_values_get_the_mean_rate_of_values_not_the_typical_value(spread, shortfall):
    log = world(3, n_values=600, spread=(spread, 0.1), impressions=100)
    served, (mean, _) = fit_eb_platt(*log), prior_of(*log)
    rng = np.random.default_rng(4)
    logit, offset = rng.normal(-3, 1, 200_000), rng.normal(0, spread, 200_000)
    truth = expit(logit + offset).mean()
    unseen = expit(served(logit, np.zeros(len(logit), int))).mean()
    typical = center_of(served) + mean[0] + mean[1] * (logit - center_of(served))
    assert unseen == pytest.approx(truth, rel=0.1)
    assert expit(typical).mean() < shortfall * truth


def test_a_field_value_without_rows_is_as_good_as_unseen():
    """Unseen and null values use the global curve."""
    z, logit, n, k, n_values = world(n_values=50)
    served = fit_eb_platt(z, logit, n, k, n_values + 2)
    assert (offsets_of(served)[[n_values, n_values + 1]] == offsets_of(served)[0]).all()
    assert np.isfinite(served(np.array([-1.0, 2.0]), np.array([0, n_values]))).all()


def test_null_rows_are_evidence_for_the_unseen_but_have_no_map_of_their_own():
    """Null is mapped to the row of unseen values, and no row is lost."""
    z, logit, n, k, n_values = world(n_values=50)
    without = fit_eb_platt(z[40:], logit[40:], n[40:], k[40:], n_values)
    null = fit_eb_platt(np.where(z == 1, 0, z), logit, n, k, n_values)
    assert offsets_of(null)[0] != offsets_of(without)[0]


@pytest.mark.parametrize("responses", ["none", "all"])
@pytest.mark.parametrize("rows", [1, 200])
def test_logs_with_one_outcome_have_a_finite_map(responses, rows):
    """One row, one value, one class."""
    z, n = np.arange(rows) % 7 + 1, np.full(rows, 20)
    k = n * (responses == "all")
    served = fit_eb_platt(z, np.full(rows, -2.0), n, k, 9)
    logit = served(np.linspace(-120, 120, 9), np.arange(9))
    assert np.isfinite(logit).all()
    rate = expit(served(np.full(1, -2.0), np.ones(1, int)))[0]
    assert rate > 0.5 if responses == "all" else rate < 0.1


def test_constant_scores_get_a_rate_near_the_observed_one():
    """279 rows at one score with 5 responses, among other values."""
    z, logit, n, k, n_values = world()
    z, logit = np.append(z, n_values), np.append(logit, np.log(0.5675 / 0.4325))
    n, k = np.append(n, 279), np.append(k, 5)
    served = fit_eb_platt(z, logit, n, k, n_values + 1)
    assert 5 / 279 < expit(served(logit[-1:], z[-1:]))[0] < 3 * 5 / 279


def test_extreme_logits_stay_finite():
    """Base logits -120, -20, 17, 18, 25, 120."""
    logit = np.tile([-120.0, -20, 17, 18, 25, 120], 10)
    z = np.repeat(np.arange(1, 11), 6)
    served = fit_eb_platt(z, logit, np.full(60, 10), np.where(logit > 0, 9, 1), 11)
    mapped = served(logit, z).reshape(10, 6)
    assert np.isfinite(mapped).all()
    assert (np.diff(mapped, axis=1) > 0).all()


def test_without_impressions_there_is_no_map():
    nothing = np.zeros(3)
    with pytest.raises(NotEnoughDataError, match="calibration days"):
        fit_eb_platt(np.arange(3), nothing, nothing, nothing, 3)


def test_grid_cells_stand_for_their_rows():
    """The log-loss of 160 cells' map on the rows is at most .02·10⁻⁴ above the rows' own map's."""
    rng = np.random.default_rng(5)
    n = 300_000
    z = rng.integers(1, 21, n).astype(np.int32)
    logit = (-5 + rng.gamma(2.0, 0.7, n)).astype(np.float32)
    y = (rng.random(n) < expit(logit + rng.normal(0, 0.7, 21)[z])).astype(np.int32)
    scores = Scores(logit, z, np.ones(n, np.int32), y, np.zeros(n, np.int32), 21)
    _, cells = tabulate(scores, (1,), 160)
    at = cells.logit_sum / cells.impressions
    by_cell = fit_eb_platt(cells.field_value_id, at, cells.impressions, cells.responses, 21)
    by_row = fit_eb_platt(z, logit, scores.impressions, y, 21)
    loss = [log_loss_from_logits(a(logit, z), y, scores.impressions) for a in (by_cell, by_row)]
    assert loss[0].mean() - loss[1].mean() < 0.02e-4


@pytest.mark.slow
def test_on_a_real_log_it_is_as_good_as_published():
    if not SCORES.is_file():
        pytest.skip("the AdWords scores are not there: set ADACALIB_BENCH_DATA to their folder")
    above = {eb_platt: [], eb_platt_forward: []}
    for case in frozen_cases(SCORES, list(FIGURES), [0]):
        rows = case.test
        for form, published in zip(above, FIGURES[case.window], strict=True):
            logit = form(case.calibration)(rows.uncalibrated_logit, rows.field_value_id)
            loss = log_loss_from_logits(logit, rows.responses, rows.impressions)
            above[form].append(loss.sum() / rows.impressions.sum() - published)
    assert np.mean(above[eb_platt]) < 2e-5
    assert np.mean(above[eb_platt_forward]) < 2e-5
