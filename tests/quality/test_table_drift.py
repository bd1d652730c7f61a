"""Drift of bin tables: what chance alone does is none, what the world did is named."""

import math
from dataclasses import replace

import numpy as np
import pytest

from pipeline.calibration.statistics.bins import tabulate
from pipeline.formats.scores import Scores
from pipeline.quality.table_checks import table_drift

NAMES = [None, *(f"item {i}" for i in range(1, 20))]


def world(seed, rate=0.1, shares=None, rows=40_000):
    """The bin table of rows whose response depends on the score, and on `rate`."""
    draw = np.random.default_rng(seed)
    value = draw.choice(20, rows, p=shares).astype(np.int32)
    logit = draw.normal(size=rows).astype(np.float32)
    chance = 1 / (1 + np.exp(-logit - math.log(rate / (1 - rate))))
    ones = np.ones(rows, np.int32)
    scores = Scores(logit, value, ones, (draw.random(rows) < chance).astype(np.int32), ones, 20)
    return tabulate(scores, [5, 10], 20)[0]


def test_a_table_has_no_drift_from_itself():
    bins = world(1)
    drift = table_drift(bins, NAMES, bins, NAMES)
    assert (drift["mix"], drift["rate"], drift["rate_beyond_noise"]) == (0, 0, 0)
    assert (drift["field_values"], drift["bins"], drift["requested_bins"]) == (20, 100, 5)


@pytest.mark.parametrize("seed", range(5))
def test_another_draw_of_the_same_world_is_within_noise(seed):
    drift = table_drift(world(2 * seed), NAMES, world(2 * seed + 1), NAMES)
    assert drift["rate_beyond_noise"] < 0.05
    assert drift["mix"] < 3 * drift["mix_noise"]


def test_rates_that_doubled_everywhere_are_a_drift_of_a_factor_of_two():
    drift = table_drift(world(1, rate=0.02), NAMES, world(2, rate=0.01), NAMES)
    assert drift["rate"] == pytest.approx(math.log(2), abs=0.15)
    assert 0.3 < drift["rate_beyond_noise"] < drift["rate"]


def test_the_mix_is_the_population_stability_index_of_impressions():
    shares = np.linspace(1, 5, 20) / np.linspace(1, 5, 20).sum()
    ours, theirs = world(1, shares=shares), world(2)
    p, q = (
        np.bincount(t.candidate(5).field_value_id, t.candidate(5).impressions) / 40_000
        for t in (ours, theirs)
    )
    psi = ((p - q) * np.log(p / q)).sum()
    drift = table_drift(ours, NAMES, theirs, NAMES)
    assert drift["mix"] == pytest.approx(psi, rel=1e-3)
    assert drift["mix_beyond_noise"] == pytest.approx(psi - 19 * 2 / 40_000, rel=1e-3)


def test_field_values_are_matched_by_their_text_and_not_by_their_number():
    bins = world(1)
    order = np.random.default_rng(3).permutation(np.arange(1, 20))
    new_id = np.append(0, np.argsort(order) + 1).astype(np.int32)
    other_names = [None, *(NAMES[i] for i in order)]
    renumbered = replace(bins, field_value_id=new_id[bins.field_value_id])
    drift = table_drift(renumbered, other_names, bins, NAMES)
    assert (drift["mix"], drift["rate"], drift["bins"]) == (0, 0, 100)


def test_another_scale_of_scores_is_no_drift():
    """A base model that was trained again orders the rows, but has another scale."""
    bins = world(1)
    stretched = replace(bins, lower_bound=3 * bins.lower_bound, upper_bound=3 * bins.upper_bound)
    assert table_drift(stretched, NAMES, bins, NAMES)["rate"] == 0


def test_tables_that_share_nothing_have_no_drift_that_could_be_told():
    bins = world(1)
    others = ["other null", *(f"other {i}" for i in range(19))]
    drift = table_drift(bins, NAMES, bins, others)
    assert math.isnan(drift["rate"])
    assert math.isnan(drift["mix"])
    of_ten = bins.take(bins.requested_bins == 10)
    nothing = table_drift(bins.take(bins.requested_bins == 5), NAMES, of_ten, NAMES)
    assert math.isnan(nothing["rate_beyond_noise"])


def test_a_field_value_that_is_called_null_is_not_the_null_one():
    bins = world(1).take(world(1).field_value_id < 2)
    drift = table_drift(bins, [None, "null"], bins, ["null", None])
    assert drift["mix"] > 0 or drift["rate"] > 0 or drift["field_values"] == 2
    named = table_drift(bins, [None, "null"], bins, [None, "null"])
    assert named["rate"] == 0
