"""A calibrator's own record: what it says of later forecasts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from pipeline.calibration.record import NONE, Record
from pipeline.calibration.statistics.logits import log_loss_from_logits


def days_of(offset=0.0, slope=1.0, *, days=30, rows=2000, seed=1, noise=0.0):
    """Day by day: forecast logits whose truth is offset + slope · logit, and what came."""
    rng = np.random.default_rng(seed)
    for day in range(days):
        logit = rng.normal(-2, 1, rows)
        truth = offset + slope * logit + rng.normal(0, noise)
        impressions = rng.integers(1, 6, rows).astype(float)
        yield day, logit, impressions, rng.binomial(impressions.astype(int), expit(truth)) * 1.0


def gains(days, horizon=1):
    """LogLoss per impression that the record takes off each later day."""
    record, found = Record(horizon), []
    for day, logit, n, y in days:
        corrected = record.correction(day)(logit)
        losses = (log_loss_from_logits(each, y, n).sum() for each in (logit, corrected))
        before, after = losses
        found.append((before - after) / n.sum())
        record.add(day, logit, n, y)
    return np.array(found), record


@pytest.mark.parametrize(("offset", "slope"), [(0.4, 1.0), (-0.3, 1.0), (0.0, 0.8)])
def test_it_corrects_a_forecaster_that_is_always_wrong_the_same_way(offset, slope):
    found, record = gains(days_of(offset, slope))
    assert (found[:7] == 0).all()
    assert found[8:].mean() > 1e-3
    assert record.correction(31).slope == pytest.approx(slope, abs=0.03)
    assert record.correction(31)(-2.0) == pytest.approx(offset - 2.0 * slope, abs=0.03)


@pytest.mark.parametrize("seed", range(6))
def test_it_leaves_a_forecaster_that_is_right_alone(seed):
    """Whatever it learned of chance costs less than a ten-thousandth of a nat."""
    found, _ = gains(days_of(seed=seed))
    assert found.mean() > -1e-4


def test_it_leaves_a_forecaster_alone_whose_days_err_this_way_and_that():
    found, record = gains(days_of(noise=0.3, days=40))
    assert found.mean() > -1e-3
    assert abs(record.correction(40)(-2.0) + 2.0) < 0.2


@settings(max_examples=15)
@given(st.integers(1, 4), st.integers(8, 20), st.integers(0, 1000))
def test_it_knows_days_up_to_the_horizon_before_alone(horizon, day, seed):
    log = list(days_of(0.3, days=20, rows=20, seed=seed))
    whole, known = Record(horizon), Record(horizon)
    for one in log:
        whole.add(*one)
        if one[0] <= day - horizon:
            known.add(*one)
    assert whole.correction(day) == known.correction(day)


def test_days_without_impressions_are_no_record():
    _, record = gains(days_of(0.4, days=12))
    before = record.correction(15)
    record.add(12, np.zeros(0), np.zeros(0), np.zeros(0))
    record.add(13, np.zeros(3), np.zeros(3), np.zeros(3))
    assert record.correction(15) == before


def test_without_a_record_nothing_is_corrected():
    assert Record(1).correction(5) == NONE
    assert np.array_equal(NONE(np.array([-2.0, 0.0])), [-2.0, 0.0])
    _, record = gains(days_of(0.4, days=6))
    assert record.correction(7) == NONE


def test_order_is_kept_whatever_came():
    """Labels that fall with the forecast: the slope stays above zero."""
    record = Record(1)
    for day in range(20):
        logit = np.linspace(-4, 0, 50)
        record.add(day, logit, np.full(50, 100.0), 100 * expit(-4.0 - logit))
    assert record.correction(20).slope > 0
