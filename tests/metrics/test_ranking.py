"""AUC and Field-AUC: on logits, exact for ties and aggregates, undefined values left out aloud."""

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from pipeline.metrics.ranking import auc_per_group, field_auc, merge_ties
from tests.metrics.test_counts import aggregated_rows
from tests.reference import auc_by_pairs, field_auc_by_pairs, one_row_per_impression


def auc(logit, impressions, responses):
    return auc_per_group(merge_ties(logit, impressions, responses, np.zeros(len(logit), int), 1))[0]


def measured_field_auc(logit, impressions, responses, value, n_values):
    by_value = auc_per_group(merge_ties(logit, impressions, responses, value, n_values))
    return field_auc(by_value, np.bincount(value, weights=impressions, minlength=n_values))


@given(aggregated_rows())
def test_auc_of_aggregated_rows_is_exactly_that_of_rows_of_one_impression(rows):
    logit, impressions, responses, value = rows
    label, long_logit, long_value = one_row_per_impression(impressions, responses, logit, value)
    short = auc_per_group(merge_ties(logit, impressions, responses, value, 4))
    long = auc_per_group(merge_ties(long_logit, np.ones_like(label), label, long_value, 4))
    assert_array_equal(short, long)


@given(aggregated_rows())
def test_auc_and_field_auc_are_what_counting_pairs_gives(rows):
    logit, impressions, responses, value = rows
    label, long_logit, long_value = one_row_per_impression(impressions, responses, logit, value)
    assert_allclose(auc(logit, impressions, responses), auc_by_pairs(long_logit, label))
    if len(label):
        expected = field_auc_by_pairs(long_logit, label, long_value)
        assert_allclose(measured_field_auc(*rows, 4), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_values", [1, 2, 969])
def test_auc_is_that_of_scikit_learn_for_any_logit_of_either_dtype(rng, dtype, n_values):
    logit = rng.normal(0, 3, 4000).astype(dtype)
    label, value = rng.integers(0, 2, 4000), rng.integers(0, min(n_values, 5), 4000)
    measured = auc_per_group(merge_ties(logit, np.ones(4000, int), label, value, n_values))
    for z in range(min(n_values, 5)):
        own = value == z
        assert measured[z] == pytest.approx(roc_auc_score(label[own], logit[own]), abs=1e-12)


def test_weighted_auc_is_that_of_scikit_learn(rng):
    logit, label, weight = rng.normal(size=999).round(1), rng.integers(0, 2, 999), rng.random(999)
    expected = roc_auc_score(label, logit, sample_weight=weight)
    assert auc(logit, weight, weight * label) == pytest.approx(expected, rel=1e-12)


@given(st.lists(st.floats(-700, 700, width=32), min_size=2, max_size=30, unique=True))
def test_runs_keep_every_float32_logit_and_its_order(values):
    logit = np.array(values, np.float32)
    ones = np.ones(len(logit), int)
    for many in (1, 1000, 10**6):
        runs = merge_ties(logit, ones, ones, np.full(len(logit), many - 1), many)
        assert_array_equal(runs.logit, np.unique(logit + 0.0).astype(np.float64))


@pytest.mark.parametrize("times", [10**6, 10**9])
def test_auc_of_more_pairs_than_an_integer_counts_is_that_of_fewer(rng, times):
    """A log that was counted in a warehouse: 10¹⁰ and 10¹³ impressions."""
    logit, shown = rng.normal(size=1000), rng.integers(1, 20, 1000)
    responses, group = rng.binomial(shown, 0.3), rng.integers(0, 3, 1000)
    few, many = (
        auc_per_group(merge_ties(logit, shown * by, responses * by, group, 3)) for by in (1, times)
    )
    np.testing.assert_allclose(many, few, rtol=1e-12)


def test_17_and_25_stay_apart():
    """Float32 probabilities are both 1 from logit 17 on; AUC is taken on logits."""
    logit = np.array([17.0, 25.0], np.float32)
    assert (1 / (1 + np.exp(-logit)) == 1).all()
    assert auc(logit, np.ones(2, int), np.array([0, 1])) == 1.0


def test_equal_logits_count_half():
    assert auc(np.zeros(5), np.ones(5, int), np.array([1, 0, 0, 1, 0])) == 0.5


def test_negative_zero_is_zero():
    assert auc(np.array([-0.0, 0.0]), np.ones(2, int), np.array([0, 1])) == 0.5


def test_field_auc_of_one_value_is_auc(rng):
    logit, label = rng.normal(size=400), rng.integers(0, 2, 400)
    ones, value = np.ones(400, int), np.zeros(400, int)
    expected = auc(logit, ones, label)
    assert measured_field_auc(logit, ones, label, value, 1) == (pytest.approx(expected), 1.0)


def test_auc_does_not_depend_on_the_order_of_rows(rng):
    rows = (
        rng.normal(size=300).round(1),
        rng.integers(0, 4, 300),
        np.zeros(300, int),
        rng.integers(0, 6, 300),
    )
    rows[2][:] = rng.integers(0, rows[1] + 1)
    order = rng.permutation(300)
    assert_array_equal(
        auc_per_group(merge_ties(*rows, 6)),
        auc_per_group(merge_ties(*(column[order] for column in rows), 6)),
    )


def values_of_which_three_have_one_class():
    """A: 900 rows, AUC 0.6; B: 100 rows, AUC 1; C: 50 rows of 0; D: one row; E: 20 rows of 1."""
    logit_a = np.concatenate([np.zeros(450), np.ones(270), -np.ones(180)])
    label_a = np.concatenate([np.zeros(450), np.ones(450)])
    label_b = np.repeat([0, 1], 50)
    parts = [
        (logit_a, label_a),
        (label_b.astype(float), label_b),
        (np.linspace(-1, 1, 50), np.zeros(50)),
        (np.zeros(1), np.zeros(1)),
        (np.linspace(-1, 1, 20), np.ones(20)),
    ]
    logit, label = (np.concatenate(column) for column in zip(*parts, strict=True))
    return (
        logit,
        label.astype(int),
        np.repeat(np.arange(5), [len(of_value) for of_value, _ in parts]),
    )


def test_values_with_one_class_are_left_out_of_field_auc_and_coverage_says_so():
    """0.64, where an unweighted mean would say 0.8; coverage 1000/1071."""
    logit, label, value = values_of_which_three_have_one_class()
    by_value = auc_per_group(merge_ties(logit, np.ones_like(label), label, value, 5))
    assert_allclose(by_value, [0.6, 1.0, np.nan, np.nan, np.nan])
    value, coverage = field_auc(by_value, np.array([900, 100, 50, 1, 20]))
    assert value == pytest.approx(0.64)
    assert coverage == pytest.approx(1000 / 1071)


def test_field_auc_without_any_ranked_value_is_undefined_with_coverage_zero():
    value, coverage = field_auc(np.array([np.nan, np.nan]), np.array([5, 5]))
    assert np.isnan(value)
    assert coverage == 0.0


def test_values_without_rows_have_no_auc():
    by_value = auc_per_group(
        merge_ties(np.arange(2.0), np.ones(2, int), np.array([0, 1]), np.array([1, 1]), 4)
    )
    assert_array_equal(by_value, [np.nan, 1, np.nan, np.nan])


def test_an_increasing_map_keeps_auc(rng):
    """All slopes positive, no plateaus: nothing is lost."""
    logit = rng.normal(-9, 1, 20000).astype(np.float32)
    label, value = (
        (rng.random(20000) < 20 * expit(logit)).astype(int),
        rng.integers(0, 9, 20000),
    )
    ones = np.ones(20000, int)
    raw = measured_field_auc(logit, ones, label, value, 9)
    mapped = measured_field_auc(0.05 * logit.astype(np.float64) - 3, ones, label, value, 9)
    assert mapped.value == pytest.approx(raw.value, abs=1e-12)


def test_auc_survives_being_written_to_parquet_and_csv(rng, tmp_path):
    """Logits are written whole, so the same AUC comes back."""
    logit = 0.7 * rng.normal(-9.2, 1, 20000).astype(np.float32).astype(np.float64)
    label, ones = (rng.random(20000) < 30 * expit(logit)).astype(int), np.ones(20000, int)
    table = pa.table({"calibrated_logit": logit})
    pq.write_table(table, tmp_path / "predictions.parquet")
    pa_csv.write_csv(table, tmp_path / "predictions.csv")
    before = auc(logit, ones, label)
    for back in (
        pq.read_table(tmp_path / "predictions.parquet"),
        pa_csv.read_csv(tmp_path / "predictions.csv"),
    ):
        after = auc(back["calibrated_logit"].to_numpy(), ones, label)
        assert after == pytest.approx(before, abs=1e-9)


def test_rounded_probabilities_cost_auc_that_logits_keep(rng):
    """Four decimals of rare-event probabilities leave few distinct values."""
    logit = rng.normal(-9.2, 1, 20000).astype(np.float32)
    label = (rng.random(20000) < 30 * expit(logit)).astype(int)
    ones = np.ones(20000, int)
    rounded = expit(logit).round(4)
    assert len(np.unique(rounded)) < 100
    assert auc(rounded, ones, label) < auc(logit, ones, label) - 1e-3
