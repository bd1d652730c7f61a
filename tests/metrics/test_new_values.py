"""Metrics of field values that are new or rare."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import log_loss, roc_auc_score

from pipeline.formats.scores import Scores
from pipeline.metrics.comparison import ValueHistory, measure_new_values
from pipeline.metrics.significance import Resampling
from pipeline.metrics.summary import measure, summarise

QUICK = Resampling(replicates=50)
DAYS, V = 10, 12


@pytest.fixture
def rows(rng):
    """Rows of field values 0..11 on ten days, value z from day z - 4 on."""
    n = 6000
    value, day = rng.integers(0, V, n), rng.integers(0, DAYS, n)
    logit = rng.normal(-2, 1, n).astype(np.float32)
    response = (rng.random(n) < expit(logit + 0.1 * value)).astype(np.int32)
    ids, ones = value.astype(np.int32), np.ones(n, np.int32)
    scores = Scores(logit, ids, ones, response, day.astype(np.int32), V)
    return scores.take(np.flatnonzero(day >= value - 4))


@pytest.fixture
def history(rows):
    """Each value known from the day after its first; responses of all earlier days."""
    age = np.arange(DAYS)[:, None] - (np.arange(V) - 4)
    counts = np.zeros((DAYS, V))
    np.add.at(counts, (rows.day, rows.field_value_id), rows.responses)
    return ValueHistory(age, age >= 1, np.cumsum(counts, axis=0) - counts)


def measured_of(logits, rows, history):
    groups = history.groups()
    return {name: measure(logit, rows, groups=groups) for name, logit in logits.items()}


@pytest.fixture
def found(rows, history):
    better = rows.uncalibrated_logit + 0.1 * rows.field_value_id
    logits = {"uncalibrated": rows.uncalibrated_logit, "model": better}
    return measure_new_values(measured_of(logits, rows, history), history, QUICK)


def test_the_metrics_of_a_group_are_those_of_its_rows(rows, history, found):
    """Log-loss and AUC as scikit-learn has them, all as of a log of those rows alone."""
    for name, picked in history.groups().items():
        of = rows.take(picked[rows.day, rows.field_value_id])
        about = found[name]["methods"]["uncalibrated"]
        p = expit(of.uncalibrated_logit.astype(float))
        assert (found[name]["impressions"], found[name]["responses"]) == (
            len(of),
            of.responses.sum(),
        )
        assert about["logloss"] == pytest.approx(log_loss(of.responses, p))
        assert about["auc"] == pytest.approx(roc_auc_score(of.responses, p))
        assert about.keys() >= {"auc", "daily_field_auc", "ece"}
        alone = summarise(measure(of.uncalibrated_logit, of), QUICK)
        every_day = len(np.unique(of.day)) == DAYS
        for metric in about:
            if every_day or metric not in ("pcoc_low", "pcoc_high"):
                assert about[metric] == pytest.approx(alone[metric])
        assert about["pcoc"] == pytest.approx(p.sum() / of.responses.sum())


def test_ages_divide_the_rows_and_what_is_not_unseen_was_known(rows, history, found):
    of_ages = [group["impressions"] for name, group in found.items() if name.startswith("age_")]
    assert sum(of_ages) == found["all"]["impressions"] == len(rows)
    assert found["age_0"] == found["unseen"]
    assert 0 < found["rare"]["impressions"] < found["all"]["impressions"]


def test_a_group_without_rows_is_undefined(rows, history):
    nothing = replace(history, known=np.ones_like(history.known))
    measured = measured_of({"model": rows.uncalibrated_logit}, rows, nothing)
    group = measure_new_values(measured, nothing, QUICK)["unseen"]
    assert (group["impressions"], group["responses"]) == (0, 0)
    assert np.isnan(
        [group["methods"]["model"][name] for name in ("logloss", "pcoc", "auc", "ece")]
    ).all()
