"""Small worlds for calibrators: field values with a curve of their own; and how they are fitted."""

from pathlib import Path

import numpy as np
from scipy.special import expit

from pipeline.calibration.paper.paper_network import PaperSettings
from pipeline.calibration.statistics.bins import tabulate
from pipeline.calibration.statistics.counting import count_cells, fitting_grid, with_later_days
from pipeline.formats.scores import Scores
from pipeline.params.params_file import read_params

SHIPPED = read_params(Path(__file__).parents[2] / "examples/flights.yaml").calibrate


def settings_with(**values):
    """The shipped settings of a fit with some replaced."""
    return SHIPPED.model_copy(update=values)


def paper_settings(**values):
    """The shipped settings of AdaCalib as published with some replaced."""
    shared = {
        name: getattr(SHIPPED, name)
        for name in ("temperatures", "min_slope", "min_responses_per_bin", "seed")
    }
    return PaperSettings(
        **{**SHIPPED.paper.model_dump(), "candidates": (5, 10, 20), **shared, **values}
    )


def tables_of(scores, candidates=(5, 10), cells=80, *, made_until=None):
    """Tables of all days, cut on those up to `made_until`; by default on all."""
    last = int(scores.day.max()) if made_until is None else made_until
    first, later = (scores.take(np.flatnonzero(rows)) for rows in
                    (scores.day <= last, scores.day > last))  # fmt: skip
    cut = tabulate(first, {*candidates, cells}, cells)
    counted = [count_cells(later, fitting_grid(cut[0]))] if len(later) else []
    return with_later_days(cut, last, counted, candidates, scores.n_field_values)


def curved_world(rows=20_000, n_values=12, days=6, *, seed=1, curvature=1.0, drift=0.0):
    """Scores of field values 1..n_values and the true logit of each row.

    Offsets, slopes and hyperbolic-tangent curves differ by value; every sixth value is rare. With
    `drift` the offsets walk at random from day to day.
    """
    rng = np.random.default_rng(seed)
    share = np.where(np.arange(n_values) % 6 == 5, 0.05, 1.0)
    z = rng.choice(n_values, rows, p=share / share.sum())
    day = rng.integers(0, days, rows)
    offset = rng.normal(0, 0.5, n_values)[:, None] + np.cumsum(
        rng.normal(0, drift, (n_values, days)), axis=1
    )
    slope, height = rng.uniform(0.7, 1.3, n_values), rng.uniform(-0.3, 1.0, n_values) * curvature
    logit = rng.normal(-2.0, 1.0, rows).astype(np.float32)
    distance = logit.astype(float) + 2.0
    true = -2.0 + offset[z, day] + slope[z] * distance + height[z] * np.tanh(1.5 * distance)
    responses = rng.random(rows) < expit(true)
    ones = np.ones(rows, np.int32)
    ids, days_ = (z + 1).astype(np.int32), (20_000 + day).astype(np.int32)
    return Scores(logit, ids, ones, responses.astype(np.int32), days_, n_values + 2), true


def excess(logit, true):
    """Expected log-loss above that of the true logit, nats per row."""
    p = expit(true)
    return float(np.mean(p * (true - logit) - np.logaddexp(0, true) + np.logaddexp(0, logit)))
