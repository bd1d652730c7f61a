"""AdaCalib on logs that break calibrators: with days enough to drift, and with one day."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from pipeline.calibration.paper.paper_fit import fit_paper
from pipeline.calibration.roll import roll
from pipeline.core.columns import joined
from tests.bench.test_baselines import HARD, scores_of
from tests.calibration.curved_world import curved_world, paper_settings, settings_with, tables_of

rng = np.random.default_rng(1)
LOGIT, VALUE = rng.normal(-2, 1, 300), rng.integers(1, 4, 300)
CLICK = rng.random(300) < 0.2


def wide(spread, rows=3000, n_values=20):
    """Logits that are far too sure of themselves, to both sides."""
    draw = np.random.default_rng(2)
    value, day = draw.integers(0, n_values, rows), draw.integers(0, 12, rows)
    logit, chance = draw.normal(-2, 1, rows), draw.random(rows)
    click = chance < expit(logit + draw.normal(0, 0.5, n_values)[value])
    return replace(scores_of(spread * logit, 1 + value, responses=click), day=day.astype(np.int32))


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
    "probabilities that all round to 0": among_others(
        np.full(24, -999.0), np.full(24, 4), np.arange(24) < 2
    ),
    "sure on both sides": wide(30),
    "beyond every probability on both sides": wide(1e5),
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
    scores = LOGS[log]
    if days == 1 or not scores.day.any():
        scores = replace(scores, day=(np.arange(len(scores)) % days).astype(np.int32))
    known = int(scores.day.max()) // 2
    tables = tables_of(scores, (5, 10), 40, made_until=known)
    last = int(scores.day.max()) + 2
    served = roll(
        tables, settings_with(steps=4), known_until=known, asked={known + 1: None, last: None}
    )
    for name in ("eb_platt", "adacalib"):
        for of_day in served.maps[name].values():
            nothing_decreases(of_day, scores.n_field_values)


@pytest.mark.parametrize("name", ["eb_platt", "adacalib"])
def test_a_value_whose_probabilities_all_round_to_0_costs_the_others_nothing(name):
    """A logged score of -999 for "no score", say: the slopes of all others stay as they are."""
    scores, _ = curved_world(n_values=4, days=8, curvature=0.0)
    sure = scores_of(np.full(16, -999.0), np.full(16, 1), n_field_values=scores.n_field_values)
    sure = replace(sure, day=scores.day[:16])
    first = scores.take(np.flatnonzero(scores.field_value_id > 1))
    ids, logit = np.repeat([2, 3, 4], 2), np.tile([-3.0, -1.0], 3)
    slopes = []
    for log in (first, joined([first, sure])):
        known = int(log.day.max())
        served = roll(tables_of(log), settings_with(steps=2), known_until=known,
                      asked={known + 1: None}).maps[name][known + 1]  # fmt: skip
        slopes.append(np.diff(served(logit, ids))[::2])
    np.testing.assert_allclose(*slopes, atol=0.05)


@pytest.mark.parametrize("log", LOGS)
def test_adacalib_as_published_is_finite_and_rises_everywhere(log):
    """The same of the published variant, whose monotonicity is repaired."""
    scores = LOGS[log]
    fitted = fit_paper(scores, paper_settings(epochs=1, least_steps=3))
    nothing_decreases(fitted.serving, scores.n_field_values)
