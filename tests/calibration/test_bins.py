"""The statistics kernel against loops over rows, and what must not change its tables."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from pipeline.calibration.statistics.bins import tabulate
from pipeline.calibration.statistics.counting import count_cells
from pipeline.core.columns import joined
from pipeline.core.errors import DataError
from pipeline.formats import sort_keys
from pipeline.formats.scores import Scores
from pipeline.formats.tables import cells_to_bins
from tests.calibration.logs import (
    AGGREGATED,
    CANDIDATES,
    GRID,
    any_scores,
    assert_same,
    few_examples,
    random_scores,
    scores_of,
    small_blocks,
)
from tests.reference import bins_by_loops, inner_bounds


def assert_sum(value, logits, largest):
    """A sum is exact but for the rounding of its terms to 1e-14 of the cell's largest logit."""
    assert abs(value - math.fsum(map(float, logits))) <= 1e-14 * len(logits) * largest


def largest_logit(bin_of_loops):
    return max(abs(float(x)) for x, _, _ in bin_of_loops["rows"])


def assert_bins_are(bins, scores, requested):
    expected = bins_by_loops(scores, requested)
    assert len(bins) == len(expected)
    for i, e in enumerate(expected):
        for name in ("field_value_id", "effective_bins", "bin_id", "lower_bound", "upper_bound"):
            assert getattr(bins, name)[i] == e[name]
        labels = [label for _, label, _ in e["rows"]]
        assert bins.impressions[i] == len(labels)
        assert bins.responses[i] == sum(labels)
        assert bins.posterior[i] == sum(labels) / len(labels)
        assert_sum(bins.logit_sum[i], [x for x, _, _ in e["rows"]], largest_logit(e))


def assert_cells_are(cells, scores, grid_cells):
    expected, largest = {}, {}
    for e in bins_by_loops(scores, grid_cells):
        for row in e["rows"]:
            key = (e["field_value_id"], e["bin_id"], int(row[2]))
            expected.setdefault(key, []).append(row)
            largest[key] = largest_logit(e)
    keys = zip(cells.field_value_id, cells.cell_id, cells.day, strict=True)
    assert [tuple(int(x) for x in key) for key in keys] == sorted(expected)
    for i, key in enumerate(sorted(expected)):
        logits = [x for x, _, _ in expected[key]]
        assert cells.impressions[i] == len(logits)
        assert cells.responses[i] == sum(label for _, label, _ in expected[key])
        assert_sum(cells.logit_sum[i], logits, largest[key])
        probabilities = special.expit(np.array(logits, dtype=np.float64))
        assert cells.probability_sum[i] == pytest.approx(probabilities.sum(), rel=1e-6, abs=1e-30)


@few_examples
@given(AGGREGATED)
def test_bins_and_cells_are_those_of_loops_over_rows(scores):
    bins, cells = tabulate(scores, CANDIDATES, GRID)
    for requested in CANDIDATES:
        assert_bins_are(bins.candidate(requested), scores, requested)
    assert_cells_are(cells, scores, GRID)


@few_examples
@given(AGGREGATED, st.integers(1, 3), st.sampled_from([0, 8]))
def test_blocks_threads_and_sparse_sums_change_nothing(scores, threads, sparse):
    once = tabulate(scores, CANDIDATES, GRID, threads=1)
    with small_blocks(sparse=sparse):
        for a, b in zip(once, tabulate(scores, CANDIDATES, GRID, threads=threads), strict=True):
            assert_same(a, b)


@few_examples
@given(AGGREGATED, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_changes_nothing(scores, random):
    order = list(range(len(scores)))
    random.shuffle(order)
    shuffled = scores.take(np.array(order, dtype=np.int64))
    for a, b in zip(
        tabulate(scores, CANDIDATES, GRID), tabulate(shuffled, CANDIDATES, GRID), strict=True
    ):
        assert_same(a, b)


def expanded(scores):
    """The same log with one row per impression."""
    rows = np.repeat(np.arange(len(scores)), scores.impressions)
    first = np.cumsum(scores.impressions) - scores.impressions
    number = np.arange(len(rows)) - np.repeat(first, scores.impressions)
    one = scores.take(rows)
    labels = (number < one.responses).astype(np.int32)
    return Scores(
        one.uncalibrated_logit,
        one.field_value_id,
        np.ones(len(rows), np.int32),
        labels,
        one.day,
        one.n_field_values,
    )


@few_examples
@given(any_scores(most_impressions=5))
def test_aggregated_rows_give_exactly_what_expanded_rows_give(scores):
    for a, b in zip(
        tabulate(scores, CANDIDATES, GRID),
        tabulate(expanded(scores), CANDIDATES, GRID),
        strict=True,
    ):
        assert_same(a, b)


def test_a_larger_log_is_the_same_for_any_threads_order_and_aggregation():
    scores = random_scores(20_000, impressions=6)
    once = tabulate(scores, (5, 10, 20), 160, threads=1)
    shuffled = expanded(scores.take(np.random.default_rng(1).permutation(len(scores))))
    with small_blocks(512):
        again = tabulate(shuffled, (5, 10, 20), 160, threads=3)
    for a, b in zip(once, again, strict=True):
        assert_same(a, b)


def test_ids_and_days_too_wide_for_one_key_go_beside_it():
    scores = random_scores(600)
    spread = replace(
        scores,
        field_value_id=scores.field_value_id * 100_000,
        day=(scores.day - 15_000) * 1000,
        n_field_values=4_200_000,
    )
    assert sort_keys.KeyLayout.of(scores).packed
    assert not sort_keys.KeyLayout.of(spread).packed
    bins, cells = tabulate(spread, (5,), 20)
    close, close_cells = tabulate(scores, (5,), 20)
    assert_same(replace(bins, field_value_id=bins.field_value_id // 100_000), close)
    np.testing.assert_array_equal(cells.day // 1000 + 15_000, close_cells.day)
    np.testing.assert_array_equal(cells.logit_sum, close_cells.logit_sum)


def test_90_tied_scores_of_100_stay_in_one_bin():
    """Stored bounds increase strictly, effective K stands beside requested K, counts add up."""
    scores = scores_of([0.01] * 90 + [0.02 * k for k in range(1, 11)], [1] * 100)
    bins, _ = tabulate(scores, (5, 10, 20), 160)
    for requested, effective in ((5, 2), (10, 2), (20, 3)):
        of_k = bins.candidate(requested)
        assert of_k.effective_bins.tolist() == [effective] * effective == [len(of_k)] * len(of_k)
        assert of_k.impressions.sum() == 100
        assert of_k.impressions[0] == 90
        bounds = [*of_k.lower_bound, of_k.upper_bound[-1]]
        assert (np.diff(bounds) > 0).all()


def test_a_constant_score_is_one_bin():
    """279 rows at one score, five responses."""
    score = 0.56758051638767337
    bins, cells = tabulate(scores_of([score] * 279, responses=[1] * 5 + [0] * 274), (5, 10), 160)
    assert bins.effective_bins.tolist() == [1, 1]
    assert bins.posterior.tolist() == [5 / 279] * 2
    assert (bins.lower_bound == np.float32(score)).all()
    assert (bins.upper_bound == np.float32(score)).all()
    assert cells.impressions.tolist() == [279]


@pytest.mark.parametrize("n", [1, 3])
def test_fewer_samples_than_bins_give_a_bin_each_and_none_is_empty(n):
    """Three samples and one sample; the value still is in the table."""
    bins, cells = tabulate(scores_of(np.arange(n)), (5, 10, 20), 160)
    assert bins.effective_bins.tolist() == [n] * 3 * n
    assert (bins.impressions == 1).all()
    assert len(cells) == n


def test_the_maximum_belongs_to_the_last_bin_and_scores_outside_to_the_outer_bins():
    """0.2 is the maximum; 1e-6, 0.2000001 and 0.99 lie outside the fitted range."""
    fitted = scores_of(np.linspace(0.01, 0.2, 100))
    bins, _ = tabulate(fitted, (10,), 10)
    assert bins.impressions.tolist() == [10] * 10
    assert bins.upper_bound[-1] == np.float32(0.2)
    served = scores_of([1e-6, 0.01, 0.2, 0.2000001, 0.99])
    counted = count_cells(served, bins)
    assert dict(zip(counted.cell_id, counted.impressions, strict=True)) == {0: 2, 9: 3}


def test_distinct_scores_are_shared_out_evenly():
    bins, _ = tabulate(scores_of(np.arange(1003)), (10,), 160)
    assert set(bins.impressions.tolist()) == {100, 101}


def test_inner_bounds_lie_strictly_between_neighbouring_scores():
    bins, _ = tabulate(scores_of([1, 2, 4, 8]), (4,), 4)
    assert bins.lower_bound.tolist() == [1, 1.5, 3, 6]
    assert bins.upper_bound.tolist() == [1.5, 3, 6, 8]


def test_between_neighbouring_floats_the_bound_is_the_upper_one():
    one, next_one = np.float32(1), np.nextafter(np.float32(1), np.float32(2))
    bins, _ = tabulate(scores_of([one, one, next_one, next_one, 2, 2]), (3,), 3)
    assert bins.lower_bound.tolist() == [1, float(next_one), 1.5]
    assert bins.impressions.tolist() == [2, 2, 2]


def test_a_maximum_without_a_float_below_it_joins_the_bin_before():
    """Its own bin would have no width."""
    one, next_one = np.float32(1), np.nextafter(np.float32(1), np.float32(2))
    bins, _ = tabulate(scores_of([one, next_one]), (2,), 2)
    assert bins.effective_bins.tolist() == [1]
    assert (bins.lower_bound[0], bins.upper_bound[0]) == (one, next_one)


def test_negative_zero_and_zero_are_tied():
    bins, _ = tabulate(scores_of([-0.0, 0.0, -0.0, 1.0]), (4,), 4)
    assert bins.impressions.tolist() == [3, 1]


@few_examples
@given(AGGREGATED)
def test_a_row_lies_in_the_bin_of_as_many_inner_bounds_as_it_reaches(scores):
    bins, _ = tabulate(scores, CANDIDATES, GRID)
    for requested in CANDIDATES:
        inner = inner_bounds(bins, requested, scores.n_field_values)[scores.field_value_id]
        bin_id = (scores.uncalibrated_logit[:, None] >= inner).sum(axis=1)
        counted = np.zeros((scores.n_field_values, requested), dtype=np.int64)
        np.add.at(counted, (scores.field_value_id, bin_id), scores.impressions)
        of_k = bins.candidate(requested)
        np.testing.assert_array_equal(counted[of_k.field_value_id, of_k.bin_id], of_k.impressions)
        assert counted.sum() == of_k.impressions.sum()


@few_examples
@given(AGGREGATED)
def test_bins_of_every_candidate_are_unions_of_cells(scores):
    bins, cells = tabulate(scores, CANDIDATES, GRID)
    for requested in CANDIDATES:
        of_k = bins.candidate(requested)
        summed = np.zeros((scores.n_field_values, requested, 2), dtype=np.int64)
        place = (cells.field_value_id, cells_to_bins(cells, bins, requested))
        np.add.at(summed[..., 0], place, cells.impressions)
        np.add.at(summed[..., 1], place, cells.responses)
        np.testing.assert_array_equal(
            summed[of_k.field_value_id, of_k.bin_id],
            np.stack([of_k.impressions, of_k.responses], axis=1),
        )


def test_counts_of_two_days_add_up_to_the_counts_of_both():
    scores = random_scores(impressions=4)
    bins, cells = tabulate(scores, (20,), 20)
    first = scores.day < 15_002
    days = joined([count_cells(scores.take(part), bins) for part in (first, ~first)])
    whole = count_cells(scores, bins)
    assert_same(whole, cells)
    order = np.lexsort((days.day, days.cell_id, days.field_value_id))
    for name in ("field_value_id", "cell_id", "day", "impressions", "responses"):
        np.testing.assert_array_equal(getattr(days, name)[order], getattr(whole, name))
    np.testing.assert_allclose(days.logit_sum[order], whole.logit_sum, rtol=1e-13)


def test_rows_of_a_field_value_without_bins_are_one_cell():
    bins, _ = tabulate(scores_of([1, 2], [0, 0]), (2,), 2)
    counted = count_cells(scores_of([1, 2, 5], [0, 3, 3]), bins)
    assert counted.field_value_id.tolist() == [0, 3]
    assert counted.cell_id.tolist() == [0, 0]
    assert counted.impressions.tolist() == [1, 2]


def test_field_values_without_impressions_have_no_bins():
    scores = scores_of([1, 2, 3], [0, 1, 2], [1, 0, 2], n_field_values=9)
    bins, cells = tabulate(scores, (2,), 2)
    assert bins.field_value_id.tolist() == cells.field_value_id.tolist() == [0, 2]


def test_a_log_without_rows_has_tables_without_rows():
    bins, cells = tabulate(scores_of([], n_field_values=3), (5, 10), 20)
    assert len(bins) == len(cells) == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_are_refused(bad):
    with pytest.raises(DataError, match="row 1"):
        tabulate(scores_of([0.0, bad]), (2,), 2)


def test_candidates_must_divide_the_grid():
    with pytest.raises(DataError, match=r"grid_cells 160 is not a multiple of candidates \[7\]"):
        tabulate(scores_of([0.0]), (5, 7), 160)


def test_days_that_cannot_be_days_are_refused():
    with pytest.raises(DataError, match="span 2000001 days"):
        tabulate(scores_of([0.0, 1.0], day=[0, 2_000_000]), (2,), 2)


def test_candidates_may_come_in_any_order_and_twice():
    scores = random_scores(500)
    for a, b in zip(tabulate(scores, (5, 10), 20), tabulate(scores, (10, 5, 10), 20), strict=True):
        assert_same(a, b)


@pytest.mark.parametrize("impressions", [1, 3])
def test_inputs_are_left_as_they_were(impressions):
    scores = random_scores(300, impressions=impressions)
    columns = [getattr(scores, f.name) for f in fields(Scores)][:-1]
    before = [column.tobytes() for column in columns]
    for column in columns:
        column.flags.writeable = False
    bins, _ = tabulate(scores, (20,), 20)
    count_cells(scores, bins)
    assert [column.tobytes() for column in columns] == before
