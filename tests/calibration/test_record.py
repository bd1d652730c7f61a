"""A calibrator's own record: what it says of later forecasts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from pipeline.calibration.record import NONE, FirstDays, Record
from pipeline.calibration.statistics.grid import log_loss_from_logits


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


def first_days(offsets, sizes, *, days, seed=3, horizon=1):
    """The record of days on which as many values were new as have offsets, each of some rows."""
    rng, record = np.random.default_rng(seed), FirstDays(horizon)
    ids = np.repeat(np.arange(1, len(sizes) + 1), 4)
    shown = np.repeat(sizes, 4) / 4
    for day in range(days):
        logit = rng.normal(-2.5, 0.7, len(ids))
        own = np.repeat(rng.normal(offsets, 0.3), 4)
        responses = rng.binomial(shown.astype(int), expit(logit + own)) * 1.0
        record.add_values(day, logit, shown, responses, ids)
    return record


@pytest.mark.parametrize("low", [-0.3, 0.0, 0.2])
def test_what_new_values_do_otherwise_than_old_ones_is_learned(low):
    """Within what the days' values tell of it: 400 values that differ by 0.3."""
    record = first_days(np.full(20, low), np.full(20, 4000), days=20)
    assert record.correction(20)(-2.5) == pytest.approx(-2.5 + low, abs=0.06)


def test_new_values_are_corrected_from_the_first_day_on_by_part_of_what_it_says():
    record = first_days(np.full(20, -0.4), np.full(20, 4000), days=1)
    assert -2.5 - 0.6 < record.correction(1)(-2.5) < -2.5 - 0.1
    assert record.correction(0) == NONE
    assert first_days(np.full(20, -0.4), np.full(20, 4000), days=1, horizon=2).correction(1) == NONE


def test_one_large_new_value_says_little_of_those_to_come():
    """It is one sample of how values differ, however well it is known itself."""
    sizes = np.r_[np.full(20, 4000), 2_000_000]
    record = first_days(np.r_[np.zeros(20), -1.0], sizes, days=3)
    assert abs(record.correction(3)(-2.5) + 2.5) < 0.2
