"""Splines: what field values' curves have beyond a line."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.special import logit as log_odds

from pipeline.calibration.prior.splines import fit_splines

AT = np.linspace(-4.0, 0.0, 21)


def cells_of(height, n_values=12, shown=2000.0, seed=1):
    """Cells of values whose curves bend by `height` beyond a line of their own; row 0 is empty."""
    rng = np.random.default_rng(seed)
    offset, own = rng.normal(0, 0.4, n_values), height * rng.uniform(0.5, 1.5, n_values)
    logit = np.tile(AT, (n_values + 1, 1))
    line = np.vstack([AT, AT + offset[:, None]])
    term = np.vstack([0 * AT, own[:, None] * (np.abs(AT + 2.0) - 1.0)])
    n = np.full(logit.shape, shown)
    n[0] = 0.0
    return n, rng.binomial(n.astype(int), expit(line + term)).astype(float), line, logit, term


def terms(splines, n_values):
    return np.stack([splines(AT, np.full(len(AT), z)) for z in range(n_values)])


def beyond_a_line(term, n, anchored):
    """A term without its line: least squares, weighed by what a cell says of a logit."""
    weight = np.sqrt(n * expit(anchored) * expit(-anchored))
    columns = np.stack([np.ones(len(AT)), AT], axis=1)
    found, *_ = np.linalg.lstsq(columns * weight[:, None], term * weight, rcond=None)
    return term - columns @ found


def test_curves_are_found_where_they_are():
    n, y, line, logit, term = cells_of(0.4)
    found = terms(fit_splines(n, y, line, logit), len(n))
    for z in range(1, len(n)):
        right = beyond_a_line(term[z], n[z], line[z] + term[z])
        assert np.abs(found[z] - right).mean() < 0.35 * np.abs(right).mean()


def test_of_lines_nothing_is_left():
    n, y, line, logit, _ = cells_of(0.0)
    assert np.abs(terms(fit_splines(n, y, line, logit), len(n))).mean() < 0.03


def test_a_value_of_few_responses_has_what_others_have_in_common():
    n, y, line, logit, term = cells_of(0.4)
    n[1], y[1] = 1.0, 0.0
    found = terms(fit_splines(n, y, line, logit), len(n))
    common = beyond_a_line(term[2:].mean(0), n[2], line[1] + term[1])
    assert np.corrcoef(found[1], common)[0, 1] > 0.9


def test_unseen_values_keep_their_line():
    n, y, line, logit, _ = cells_of(0.4)
    assert np.abs(terms(fit_splines(n, y, line, logit), 1)).max() < 1e-12


@pytest.mark.parametrize("responses", [0.0, 5.0, 279.0])
def test_a_value_of_one_logit_keeps_its_level(responses):
    """The level is the anchor's: a spline at a single logit has none."""
    n, y = np.array([[0.0], [279.0]]), np.array([[0.0], [responses]])
    logit = np.full((2, 1), 0.273)
    anchored = np.full((2, 1), log_odds((responses + 1) / 281))
    splines = fit_splines(n, y, anchored, logit)
    assert splines(np.array([0.273]), np.array([1]))[0] == pytest.approx(0.0, abs=1e-9)
