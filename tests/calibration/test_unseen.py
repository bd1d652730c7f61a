"""Field values that were never seen: right in the mean of those that were."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.special import logit as log_odds

from bench.baselines.per_value import ratio_per_value
from pipeline.calibration.roll import roll
from pipeline.formats.scores import Scores
from tests.calibration.curved_world import settings_with, tables_of

FIRST, DAYS, SHOWN = 20_000, 10, 4000
QUICK = settings_with(steps=2)


def log_of(rates, null_share=0.0):
    """Days of field values at some rates, the base model's logits alike for all; last id: null."""
    rng, n = np.random.default_rng(len(rates)), len(rates)
    day, value, place = np.meshgrid(np.arange(DAYS), np.arange(n), np.arange(4), indexing="ij")
    spread = 0.4 * (place.ravel() - 1.5)
    truth = expit(log_odds(np.array(rates)[value.ravel()]) + spread)
    shown = np.full(len(truth), SHOWN // 4)
    ids = value.ravel() + 1
    if null_share:
        null = rng.binomial(shown, null_share)
        ids, shown = np.append(ids, np.full(len(ids), n + 1)), np.append(shown - null, null)
        truth, spread = np.tile(truth, 2), np.tile(spread, 2)
    days = FIRST + np.tile(day.ravel(), len(ids) // day.size)
    logit = (log_odds(np.mean(rates)) + spread).astype(np.float32)
    responses = rng.binomial(shown, truth)
    columns = (ids.astype(np.int32), shown, responses, days.astype(np.int32))
    return Scores(logit, *columns, int(ids.max()) + 1)


def own_rates(scores):
    """The response rate of each field value that has rows."""
    n, y = (np.bincount(scores.field_value_id, c) for c in (scores.impressions, scores.responses))
    return y[1:] / n[1:]


def unseen_rates(scores):
    """What each calibrator expects of an unseen value, mean over the log's logits."""
    last = FIRST + DAYS - 1
    tables = tables_of(scores, (2,), 4)
    maps = roll(tables, QUICK, known_until=last, asked={last + 1: None}).maps
    served = {name: maps[name][last + 1] for name in ("eb_platt", "adacalib")}
    served["ratio_per_value"] = ratio_per_value(scores)
    logit, unseen = scores.uncalibrated_logit.astype(float), np.zeros(len(scores), int)
    return {name: expit(each(logit, unseen)).mean() for name, each in served.items()}


@pytest.mark.parametrize("null_share", [0.0, 0.1])
@pytest.mark.parametrize("n_values", [2, 3, 5, 8, 12, 20, 300])
def test_an_unseen_value_is_expected_to_respond_as_the_values_do_in_the_mean(n_values, null_share):
    """One of them responds far more often than the others; null is one of them where it occurs."""
    scores = log_of([0.01] * (n_values - 1) + [0.5], null_share)
    rates = own_rates(scores)
    for name, expected in unseen_rates(scores).items():
        assert rates.min() <= expected <= rates.max(), name
        assert expected == pytest.approx(rates.mean(), rel=0.12), name


@pytest.mark.parametrize("n_values", [2, 3, 5])
def test_an_unseen_value_is_expected_to_respond_as_all_do_where_all_respond_alike(n_values):
    scores = log_of([0.03] * n_values)
    for name, expected in unseen_rates(scores).items():
        assert expected == pytest.approx(own_rates(scores).mean(), rel=0.05), name


def test_a_large_field_value_decides_no_more_than_a_small_one():
    """What comes next is a value, not an impression."""
    scores = log_of([0.02, 0.02, 0.02, 0.4])
    large = scores.field_value_id == 4
    scores.impressions[large] *= 10
    scores.responses[large] *= 10
    for name, expected in unseen_rates(scores).items():
        assert expected == pytest.approx(own_rates(scores).mean(), rel=0.15), name


def test_where_the_base_model_knows_the_values_an_unseen_one_lies_where_the_model_says():
    """Though within a value its logit says nothing: what it adds to the value's own is noise."""
    rng, n = np.random.default_rng(7), 200
    value, day, noise = np.meshgrid(np.arange(n), np.arange(DAYS), [-0.4, 0.0, 0.4], indexing="ij")
    usual = rng.normal(-3.0, 0.8, n)
    truth = expit(usual + rng.normal(0.0, 0.2, n))[value.ravel()]
    shown = np.full(len(truth), 400)
    logit = (usual[value.ravel()] + noise.ravel()).astype(np.float32)
    counts = shown, rng.binomial(shown, truth), (FIRST + day.ravel()).astype(np.int32)
    scores = Scores(logit, (value.ravel() + 1).astype(np.int32), *counts, n + 1)
    unseen = value.ravel() % 2 == 0
    last = FIRST + DAYS - 1
    tables = tables_of(scores.take(np.flatnonzero(~unseen)), (2,), 4)
    maps = roll(tables, QUICK, known_until=last, asked={last + 1: None}).maps
    rows, low = scores.uncalibrated_logit[unseen].astype(float), usual[value.ravel()][unseen] < -3
    for name in ("eb_platt", "adacalib"):
        expected = expit(maps[name][last + 1](rows, np.zeros(len(rows), int)))
        for some in (low, ~low):
            assert expected[some].mean() == pytest.approx(truth[unseen][some].mean(), rel=0.2), name
