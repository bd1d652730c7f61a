"""Kinds of logs: what is drawn is what the kind says."""

import numpy as np
import pytest
from scipy.special import logit

from bench.regimes import FIRST_DAY, Kind, drawn, excess


def test_without_differences_the_base_model_is_the_truth():
    scores, truth = drawn(Kind(values=5, rows=200, differ=0.0), seed=1)
    np.testing.assert_allclose(logit(truth), scores.uncalibrated_logit, atol=1e-5)
    losses, _ = excess(Kind(values=5, rows=200, differ=0.0), seed=1)
    assert losses["identity"] == pytest.approx(0.0, abs=1e-9)
    assert min(losses.values()) == losses["identity"]


def test_values_that_walk_differ_more_from_day_to_day():
    def spread(kind):
        scores, truth = drawn(kind, seed=2)
        offset = logit(truth) - scores.uncalibrated_logit
        days = np.arange(FIRST_DAY, FIRST_DAY + 42)
        largest = scores.field_value_id == 1
        return np.std([offset[largest & (scores.day == day)].mean() for day in days])

    assert spread(Kind(values=5, rows=200)) == pytest.approx(0.0, abs=1e-5)
    assert spread(Kind(values=5, rows=200, walk=0.1)) > 0.1
