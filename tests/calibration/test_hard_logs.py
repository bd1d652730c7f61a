"""AdaCalib on logs that break calibrators: with days enough to drift, and with one day."""

from dataclasses import replace

import numpy as np
import pytest

from pipeline.calibration.paper.paper_fit import fit_paper
from pipeline.calibration.roll import roll
from tests.bench.test_baselines import HARD, scores_of
from tests.calibration.curved_world import paper_settings, settings_with, tables_of

rng = np.random.default_rng(1)
LOGIT, VALUE = rng.normal(-2, 1, 300), rng.integers(1, 4, 300)
CLICK = rng.random(300) < 0.2


def among_others(logit, value, responses):
    """Rows among 300 ordinary ones of the values 1, 2 and 3."""
    return scores_of(
        np.append(logit, LOGIT), np.append(value, VALUE), responses=np.append(responses, CLICK)
    )


LOGS = HARD | {
    "each value has one score of its own": scores_of(-VALUE, VALUE, responses=CLICK),
    "as many values as rows": scores_of(
        LOGIT[:60], np.arange(1, 61), responses=CLICK[:60]
    ),
    "one impression without a response": scores_of([-2.0]),
    "a row of a billion impressions": scores_of(
        np.append(LOGIT, -2), np.append(VALUE, 4),
        np.append(np.ones(300), 10**9), np.append(CLICK, 10**8),
    ),
    "sure and wrong": among_others(
        [-120, -20, 17, 18, 25, 120], np.ones(6), [1, 1, 0, 0, 0, 0]
    ),
    "as large as float32 can be": among_others([-3e38, 3e38], [1, 1], [0, 1]),
    "both zeros and the least numbers": among_others(
        [1e-45, -1e-45, 0.0, -0.0], [1, 1, 2, 2], [0, 1, 0, 1]
    ),
    "one value without failures": among_others(
        np.full(9, -1.0), np.full(9, 4), np.ones(9)
    ),
    "null values alone": scores_of(LOGIT, 0 * VALUE, responses=CLICK, n_field_values=3),
}  # fmt: skip
LOGITS = np.unique(np.concatenate([np.linspace(-60, 60, 6000), np.linspace(-1e4, 1e4, 4001)]))


def nothing_decreases(serving, n_field_values):
    for value in range(min(n_field_values, 6)):
        logit = serving(LOGITS, np.full(len(LOGITS), value))
        assert np.isfinite(logit).all()
        assert (np.diff(logit) > 0).all()


@pytest.mark.parametrize(
    ("log", "days"), [*((log, 10) for log in LOGS), *((log, 1) for log in LOGS)]
)
def test_calibrators_are_finite_and_rise_everywhere(log, days):
    """10,000 logits in and far beyond the fitted range, field value by value, day by day."""
    scores = replace(LOGS[log], day=(np.arange(len(LOGS[log])) % days).astype(np.int32))
    known = int(scores.day.max()) // 2
    tables = tables_of(scores, (5, 10), 40, made_until=known)
    last = int(scores.day.max()) + 2
    served = roll(
        tables, settings_with(steps=4), known_until=known, asked={known + 1: None, last: None}
    )
    for name in ("eb_platt", "adacalib"):
        for of_day in served.maps[name].values():
            nothing_decreases(of_day, scores.n_field_values)


@pytest.mark.parametrize("log", LOGS)
def test_adacalib_as_published_is_finite_and_rises_everywhere(log):
    """The same of the published variant, whose monotonicity is repaired."""
    scores = LOGS[log]
    fitted = fit_paper(scores, paper_settings(epochs=1, least_steps=3))
    nothing_decreases(fitted.serving, scores.n_field_values)
