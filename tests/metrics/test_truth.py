"""Distance to known probabilities."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import entropy

from pipeline.core.errors import DataError
from pipeline.metrics.calibration import count_truth, excess_log_loss, field_rce


def test_excess_log_loss_is_the_mean_kullback_leibler_divergence(rng):
    logit, truth, many = rng.normal(size=300), rng.random(300), rng.integers(1, 9, 300)
    predicted = expit(logit)
    divergence = entropy([truth, 1 - truth], [predicted, 1 - predicted])
    assert excess_log_loss(logit, truth, many) == pytest.approx(
        np.average(divergence, weights=many)
    )


def test_the_truth_has_no_excess(rng):
    logit = rng.normal(-3, 1, 1000)
    assert excess_log_loss(logit, expit(logit), np.ones(1000, int)) == pytest.approx(0, abs=1e-15)


def test_certain_truth_costs_the_whole_log_loss():
    assert excess_log_loss(np.zeros(2), np.array([0.0, 1.0]), np.ones(2)) == pytest.approx(
        np.log(2)
    )


def test_excess_without_impressions_is_undefined():
    assert np.isnan(excess_log_loss(np.zeros(0), np.zeros(0), np.zeros(0, int)))


def test_field_rce_against_the_truth_has_no_label_noise():
    logit = np.log([1 / 3, 1 / 3])  # a probability of 1/4
    counts = count_truth(logit, np.array([0.25, 0.2]), np.array([10, 30]), np.array([0, 1]), 2)
    assert field_rce(counts).value == pytest.approx(0.75 * 0.25)


@pytest.mark.parametrize("wrong", [-0.1, 1.1, np.nan])
def test_what_is_no_probability_is_refused(wrong):
    with pytest.raises(DataError, match=r"\[0, 1\], row 1"):
        excess_log_loss(np.zeros(2), np.array([0.5, wrong]), np.ones(2, int))
