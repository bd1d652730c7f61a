"""The bins of other days than those they were cut on, counted through cells."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.calibration.statistics.grid import bins_of_days
from pipeline.formats.scores import Scores
from pipeline.quality.table_checks import bin_drift
from tests.calibration.curved_world import tables_of
from tests.calibration.logs import few_examples, random_scores
from tests.reference import inner_bounds

FIRST = 15_000


@few_examples
@given(st.integers(0, 1000), st.sets(st.integers(0, 4), max_size=5), st.integers(0, 3))
def test_counts_of_any_days_are_those_of_their_rows_within_the_same_bounds(seed, days, until):
    """Rows of field values that had none on the days of the bounds are passed over."""
    scores = random_scores(400, n_field_values=12, seed=seed)
    tables = tables_of(scores, (2, 5), 20, made_until=FIRST + until)
    chosen = np.array([FIRST + day for day in days], dtype=int)
    counted = bins_of_days(tables, chosen)
    among = np.isin(scores.day, chosen)
    among &= np.isin(scores.field_value_id, tables.bins.field_value_id)
    rows = scores.take(np.flatnonzero(among))
    for name in ("field_value_id", "requested_bins", "bin_id", "lower_bound", "upper_bound"):
        assert np.array_equal(getattr(counted, name), getattr(tables.bins, name))
    for requested in (2, 5):
        of_k = counted.candidate(requested)
        inner = inner_bounds(of_k, requested, rows.n_field_values)[rows.field_value_id]
        place = rows.field_value_id, (rows.uncalibrated_logit[:, None] >= inner).sum(axis=1)
        for name, amounts in (
            ("impressions", rows.impressions),
            ("responses", rows.responses),
            ("logit_sum", rows.impressions * rows.uncalibrated_logit),
        ):
            sums = np.zeros((rows.n_field_values, requested))
            np.add.at(sums, place, amounts)
            found = getattr(of_k, name)
            np.testing.assert_allclose(found, sums[of_k.field_value_id, of_k.bin_id], atol=1e-4)
    with np.errstate(invalid="ignore"):
        rate = counted.responses / counted.impressions
    np.testing.assert_array_equal(counted.posterior, rate)


def test_the_days_that_bins_were_cut_on_give_the_bins_themselves():
    tables = tables_of(random_scores(3000), (2, 5), 20, made_until=FIRST + 2)
    again = bins_of_days(tables, FIRST + np.arange(3))
    assert np.array_equal(again.impressions, tables.bins.impressions)
    assert np.array_equal(again.responses, tables.bins.responses)


def world(seed, shift=0.0, rows=20_000):
    """Rows of twenty field values on two days; on the second the scores are `shift` higher."""
    draw = np.random.default_rng(seed)
    day = np.repeat(np.array([FIRST, FIRST + 1], np.int32), rows // 2)
    logit = (draw.normal(size=rows) + shift * (day > FIRST)).astype(np.float32)
    ones, value = np.ones(rows, np.int32), draw.integers(1, 21, rows).astype(np.int32)
    return tables_of(Scores(logit, value, ones, 0 * ones, day, 21), made_until=FIRST)


def drift_of(tables):
    return bin_drift(tables.bins, bins_of_days(tables, np.array([FIRST + 1])))


@pytest.mark.parametrize("seed", range(3))
def test_bins_hold_another_draw_of_the_same_world_evenly(seed):
    """What is found is what chance alone is expected to do."""
    found = drift_of(world(seed))
    assert found["shape"] == pytest.approx(found["shape_noise"], rel=0.6)
    assert found["shape_beyond_noise"] < 0.02


@pytest.mark.parametrize("shift", [-1.0, 1.0])
def test_scores_that_moved_by_a_deviation_are_another_population(shift):
    assert drift_of(world(1, shift))["shape_beyond_noise"] > 0.25
    small = drift_of(world(1, shift / 10))["shape_beyond_noise"]
    assert small < 0.05


def test_without_impressions_on_the_newest_days_no_drift_can_be_told():
    tables = world(1)
    found = bin_drift(tables.bins, bins_of_days(tables, np.array([FIRST + 9])))
    assert all(np.isnan(found[name]) for name in ("shape", "shape_noise", "shape_beyond_noise"))
