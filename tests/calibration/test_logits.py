"""The loss of a logit is finite, exact and the same for every precision and aggregation."""

import math

import numpy as np
import pytest
from scipy.special import logit

from pipeline.calibration.statistics.grid import log_loss_from_logits

EXTREMES = np.array([-1e30, -745.0, -120.0, -20.0, -1e-9, 0.0, 17.0, 25.0, 120.0, 1e30])


def test_every_finite_logit_has_a_finite_loss():
    assert np.isfinite(log_loss_from_logits(EXTREMES, 1, 2)).all()


def test_log_loss_of_an_aggregated_row_is_that_of_its_impressions():
    p = 0.2
    loss = log_loss_from_logits(logit(np.array([p])), np.array([2]), np.array([5]))
    assert loss[0] == pytest.approx(-2 * math.log(p) - 3 * math.log(1 - p), rel=1e-14)


def test_log_loss_does_not_depend_on_the_precision_of_the_input():
    x = np.array([-120, -20, 17, 18, 25, 120], dtype=np.float32)
    labels = np.array([0, 1, 1, 0, 1, 1])
    single = log_loss_from_logits(x, labels, np.ones(6))
    np.testing.assert_array_equal(
        single, log_loss_from_logits(x.astype(np.float64), labels, np.ones(6))
    )
    assert single[2] > single[4] > single[5] > 0  # 17, 25 and 120 are still told apart
