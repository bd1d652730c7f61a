"""Calibration metrics: Field-RCE with its rule and floor, field deviance, PCOC with bands."""

import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose
from scipy.special import expit
from scipy.stats import binomtest
from sklearn.metrics import mean_poisson_deviance

from pipeline.metrics.calibration import (
    deviance_terms,
    field_rce,
    field_rce_terms,
    log_loss_terms,
    noise_floor,
    pcoc,
    pcoc_band,
    wilson_interval,
)
from pipeline.metrics.counts import ResponseCounts, count_responses
from tests.metrics.test_counts import aggregated_rows
from tests.reference import field_rce_by_rows, one_row_per_impression


def field_rce_floor(counts, draws=200, seed=0):
    return noise_floor(field_rce_terms, counts, draws, seed)


def logit(p):
    return np.log(p) - np.log1p(-np.asarray(p))


def totals(impressions, responses, expected):
    """Counts of field values whose impressions all have one probability."""
    n, o, e = (np.asarray(column, dtype=float) for column in (impressions, responses, expected))
    p = np.divide(e, n, out=np.zeros_like(e), where=n > 0)
    return ResponseCounts(n.astype(int), o.astype(int), e, e * (1 - p), n * 0)


def h5():
    """a: 98 rows, 2 clicks, p = 0.02; b: 2 rows, no click, p = 0.01."""
    return count_responses(
        np.repeat(logit([0.02, 0.01]), [98, 2]),
        np.ones(100, int),
        np.repeat([1, 0], [2, 98]),
        np.repeat([0, 1], [98, 2]),
        2,
    )


def test_values_without_clicks_are_left_out_of_field_rce_and_shown_beside_it():
    """0.02 without b, whatever an epsilon would be; 1 value, 2 %, 0.02 clicks left out."""
    measured = field_rce(h5())
    assert measured.value == pytest.approx(0.02)
    assert (measured.values, measured.values_left_out) == (1, 1)
    assert measured.coverage == pytest.approx(0.98)
    assert measured.absolute_error_left_out == pytest.approx(0.02)


def test_responses_at_a_probability_that_rounds_to_0_cost_what_is_served_there():
    """No probability below 1e-15 is served, so that the deviance is large and finite."""
    counts = count_responses(
        np.full(100, -999.0), np.ones(100, int), np.arange(100) < 3, np.zeros(100, int), 1
    )
    assert counts.expected_responses[0] == pytest.approx(1e-13)
    expected = 2 * (3 * np.log(3 / 1e-13) - 3) / 3
    assert deviance_terms(counts).ratio() == pytest.approx(expected)


def test_field_rce_without_any_click_is_undefined_with_coverage_zero():
    """ "no data" must not read as perfect."""
    measured = field_rce(totals([50, 9], [0, 0], [1.0, 2.0]))
    assert np.isnan(measured.value)
    assert measured.coverage == 0.0
    assert measured.values_left_out == 2
    assert measured.absolute_error_left_out == pytest.approx(3.0)


def test_a_constant_score_that_is_wrong_does_not_look_calibrated():
    """279 rows, one score, 5 clicks."""
    n, score = 279, 0.56758051638767337
    clicks = np.arange(n) < 5
    counts = count_responses(np.full(n, logit(score)), np.ones(n, int), clicks * 1, clicks * 0, 1)
    assert field_rce(counts).value == pytest.approx(abs(5 - n * score) / 5)


@given(aggregated_rows())
def test_field_rce_is_the_papers_equation_on_rows(rows):
    score, impressions, responses, value = rows
    label, long_score, long_value = one_row_per_impression(impressions, responses, score, value)
    measured = field_rce(count_responses(score, impressions, responses, value, 4))
    expected = field_rce_by_rows(expit(long_score), label, long_value)
    assert_allclose(measured.value, expected, rtol=1e-9)
    if len(label):
        covered = np.isin(long_value, np.unique(long_value[label == 1])).mean()
        assert measured.coverage == pytest.approx(covered)


def test_values_nobody_saw_are_neither_counted_nor_left_out():
    measured = field_rce(totals([10, 0], [1, 0], [1.0, 0.0]))
    assert (measured.values, measured.values_left_out, measured.coverage) == (1, 0, 1.0)


def test_field_deviance_is_the_poisson_deviance_of_the_totals(rng):
    observed, expected = rng.poisson(5, 40) + 1, rng.gamma(5, 1, 40)
    counts = totals(np.full(40, 100), observed, expected)
    reference = 40 * mean_poisson_deviance(observed, expected) / observed.sum()
    assert deviance_terms(counts).ratio() == pytest.approx(reference)


def test_a_value_without_responses_costs_twice_what_it_was_expected_to_have():
    counts = totals([10, 10], [4, 0], [4.0, 1.5])
    assert deviance_terms(counts).ratio() == pytest.approx(2 * 1.5 / 4)


def test_field_deviance_is_least_at_the_observed_rates():
    exact = totals([10, 10], [4, 2], [4.0, 2.0])
    assert deviance_terms(exact).ratio() == 0.0
    assert deviance_terms(totals([10, 10], [4, 2], [4.4, 2.2])).ratio() > 0
    assert deviance_terms(totals([10, 10], [4, 2], [3.6, 1.8])).ratio() > 0


def test_metrics_without_responses_are_undefined():
    counts = totals([10, 10], [0, 0], [1.0, 2.0])
    assert np.isnan(deviance_terms(counts).ratio())
    assert np.isnan(pcoc(counts)).all()
    assert np.isnan(pcoc(counts.sum()))
    assert log_loss_terms(counts).ratio() == 0.0


def test_metrics_without_impressions_are_undefined():
    nothing = totals([0], [0], [0.0])
    assert np.isnan([log_loss_terms(nothing).ratio(), field_rce(nothing).value]).all()
    assert np.isnan(field_rce(nothing).coverage)


def test_pcoc_is_expected_over_observed_by_value_and_overall():
    counts = totals([100, 100], [10, 20], [11.0, 16.0])
    assert_allclose(pcoc(counts), [1.1, 0.8])
    assert pcoc(counts.sum()) == pytest.approx(0.9)


@pytest.mark.parametrize("confidence", [0.9, 0.95])
@pytest.mark.parametrize(("responses", "impressions"), [(0, 9), (1, 9), (7, 5000), (9, 9)])
def test_wilson_interval_is_that_of_scipy(responses, impressions, confidence):
    expected = binomtest(responses, impressions).proportion_ci(confidence, "wilson")
    measured = wilson_interval(np.array([responses]), np.array([impressions]), confidence)
    assert_allclose(np.ravel(measured), [expected.low, expected.high], atol=1e-12)


def test_the_band_of_pcoc_holds_one_exactly_where_the_rate_interval_holds_the_prediction(rng):
    impressions = rng.integers(1, 200, 500)
    responses = rng.binomial(impressions, 0.1)
    counts = totals(impressions, responses, impressions * rng.uniform(0.02, 0.4, 500))
    rate_low, rate_high = wilson_interval(responses, impressions)
    predicted = counts.expected_responses / impressions
    low, high = pcoc_band(counts)
    inside = (rate_low <= predicted) & (predicted <= rate_high)
    assert ((low <= 1) & (high >= 1)).tolist() == inside.tolist()


def test_the_band_of_a_value_without_responses_has_no_upper_end():
    low, high = pcoc_band(totals([100, 0], [0, 0], [3.0, 0.0]))
    assert low[0] == pytest.approx(3 / 100 / wilson_interval(0, 100)[1])
    assert np.isinf(high[0])
    assert np.isnan([low[1], high[1]]).all()


def test_the_floor_is_the_field_rce_of_labels_drawn_from_the_probabilities(rng):
    """Drawing every row's label gives the same mean as drawing the totals of values."""
    score, value = rng.normal(-2, 1.5, 30000), rng.integers(0, 60, 30000) ** 2 // 60
    chance = expit(score)
    ones = np.ones(30000, int)
    of_rows = [
        field_rce(count_responses(score, ones, rng.random(30000) < chance, value, 60)).value
        for _ in range(60)
    ]
    floor = field_rce_floor(count_responses(score, ones, ones * 0, value, 60), draws=400)
    assert floor == pytest.approx(np.mean(of_rows), abs=4 * np.std(of_rows) / np.sqrt(60))


def test_the_floor_does_not_read_the_responses_and_repeats_with_its_seed():
    few, many = (totals([300, 200], [o, 1], [9.0, 4.0]) for o in (1, 50))
    assert field_rce_floor(few, seed=3) == field_rce_floor(many, seed=3)
    assert field_rce_floor(few, seed=3) != field_rce_floor(few, seed=4)


def test_more_impressions_lower_the_floor():
    small, large = totals([100], [9], [10.0]), totals([10000], [9], [1000.0])
    assert field_rce_floor(large) < 0.2 * field_rce_floor(small)


def test_certain_predictions_have_no_label_noise():
    certain = ResponseCounts(
        *(np.array([x]) for x in (7, 7)), *(np.array([x]) for x in (7.0, 0.0, 0.0))
    )
    assert field_rce_floor(certain) == 0.0


def test_the_floor_of_nothing_is_undefined():
    assert np.isnan(field_rce_floor(totals([10], [0], [0.0])))
    assert np.isnan(field_rce_floor(totals([0], [0], [0.0])))


def test_terms_of_several_days_are_taken_day_by_day():
    days = totals([[100, 50], [10, 20]], [[10, 0], [1, 2]], [[12.0, 3.0], [1.5, 2.0]])
    by_day = field_rce_terms(days).ratio()
    assert_allclose(by_day, [0.2, 0.5 * 10 / 30])
