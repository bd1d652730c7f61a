"""Rows as arrays: what is known has an id, what is not is 0, and numbers are tame."""

import json
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.errors import DataError
from pipeline.encoding.features import Encoder, EncoderSums, NumberSums, signed_log
from pipeline.encoding.values import as_numbers, counts, placed
from pipeline.encoding.vocabulary import ValueCounts, Vocabulary

NUMBERS = st.floats(-1e300, 1e300)


def sums_of(*days: np.ndarray) -> NumberSums:
    """Of the numbers of days, added one by one."""
    sums = NumberSums()
    for values in days:
        sums.add(values)
    return sums


def table(**columns) -> pa.Table:
    return pa.table(columns)


@pytest.fixture
def encoder() -> Encoder:
    """Items a and b, prices around 3 of which some were missing; the field is the item."""
    rows = table(item=["a", "b", None], price=[1.0, 9.0, None])
    items = Vocabulary.of(ValueCounts(rows["item"]))
    scaling = sums_of(as_numbers(rows["price"])).scaling("price")
    return Encoder({"item": items}, (scaling,), ("item",), items)


@given(NUMBERS, NUMBERS)
def test_the_signed_logarithm_is_odd_increasing_and_finite(x, y):
    a, b = signed_log(np.array([x, y]))
    assert math.isfinite(a)
    assert signed_log(np.array([-x]))[0] == -a
    assert (a <= b) == (x <= y) or a == b


def test_a_scaled_feature_has_mean_0_and_deviation_1_on_the_rows_it_was_fitted_on():
    values = np.random.default_rng(1).lognormal(3, 1, 1000)
    scaled = sums_of(values).scaling("price")(values)
    assert scaled.dtype == np.float32
    assert scaled.shape == (1000, 1)
    assert scaled.mean(dtype=float) == pytest.approx(0, abs=1e-3)
    assert scaled.std(dtype=float) == pytest.approx(1, abs=1e-3)


def test_days_fitted_one_by_one_give_the_scaling_of_all_rows():
    values = np.random.default_rng(1).normal(0, 100, 1000)
    by_day = sums_of(*np.split(values, [200, 700])).scaling("x")
    whole = sums_of(values).scaling("x")
    assert (by_day.mean, by_day.scale) == pytest.approx((whole.mean, whole.scale))
    assert whole.mean == pytest.approx(signed_log(values).mean())
    assert whole.scale == pytest.approx(signed_log(values).std())


def test_a_feature_that_was_constant_is_zero_whatever_value_comes():
    scaling = sums_of(np.full(1000, 0.1)).scaling("x")
    np.testing.assert_array_equal(scaling(np.array([0.1, 1e9])), [[0], [0]])


def test_a_null_is_the_mean_and_says_that_it_was_missing():
    scaling = sums_of(np.array([1.0, 3.0, np.nan])).scaling("x")
    assert scaling.columns == ["x", "x.missing"]
    np.testing.assert_array_equal(scaling(np.array([np.nan]))[0], [0.0, 1.0])


def test_without_nulls_to_learn_from_there_is_no_column_for_them():
    scaling = sums_of(np.array([1.0, 3.0])).scaling("x")
    assert scaling.columns == ["x"]
    np.testing.assert_array_equal(scaling(np.array([np.nan])), [[0.0]])


def test_a_feature_without_any_value_is_zero():
    scaling = sums_of(np.array([np.nan, np.nan])).scaling("x")
    np.testing.assert_array_equal(scaling(np.array([np.nan, 5.0])), [[0, 1], [0, 0]])


@given(st.lists(NUMBERS, min_size=1), st.lists(NUMBERS, min_size=1))
def test_no_number_leaves_six_standard_deviations(fitted, served):
    scaled = sums_of(np.array(fitted)).scaling("x")(np.array(served))
    assert (np.abs(scaled) <= 6).all()


def test_the_logarithm_of_minus_one_and_of_zero_is_refused_by_column_and_row():
    """A feature with -1 and 0 under log1p."""
    with np.errstate(divide="ignore"):
        logged = np.log1p(np.array([3.0, 0.0, -1.0]))
    sums = EncoderSums([], ["age"])
    with pytest.raises(DataError, match=r"column age is -inf in row 2"):
        sums.add_features(table(age=logged))


def test_unseen_and_null_share_the_id_0(encoder):
    """Field {a, b, null}; served a, null, "", c."""
    encoded = encoder.encode(table(item=["a", None, "", "c", "b"], price=[1.0] * 5))
    assert encoded.categorical.tolist() == [[1], [0], [0], [0], [2]]
    assert encoded.field_value_id.tolist() == [1, 0, 0, 0, 2]
    assert len(encoded.field_value_id) == 5


def test_a_day_without_rows_is_encoded_as_no_rows(encoder):
    encoded = encoder.encode(table(item=pa.array([], "string"), price=pa.array([], "float64")))
    assert encoded.categorical.shape == (0, 1)
    assert encoded.numeric.shape == (0, 2)


def test_a_column_of_integers_and_one_of_text_are_encoded_alike():
    ids = Vocabulary(("7", "8"))
    encoder = Encoder({"item": ids}, (), ("item",), ids)
    for column in ([7, 8, 9], ["7", "8", "9"], [7.0, 8.0, 9.0]):
        assert encoder.encode(table(item=column)).field_value_id.tolist() == [1, 2, 0]


def test_the_order_of_columns_does_not_matter(encoder):
    rows = table(item=["a", "b"], price=[1.0, None], other=[0, 0])
    there, back = encoder.encode(rows), encoder.encode(rows.select(["price", "item"]))
    np.testing.assert_array_equal(there.categorical, back.categorical)
    np.testing.assert_array_equal(there.numeric, back.numeric)


def test_the_manifest_alone_encodes_the_same_bits(encoder):
    rows = table(item=["a", "b", None, "c"], price=[1.0, 1 / 3, None, 1e9])
    manifest = json.loads(json.dumps(encoder.manifest()))
    direct, through_json = encoder.encode(rows), Encoder.from_manifest(manifest).encode(rows)
    for name, array in vars(direct).items():
        np.testing.assert_array_equal(getattr(through_json, name), array)
        assert getattr(through_json, name).dtype == array.dtype


def test_a_missing_column_is_named(encoder):
    with pytest.raises(DataError, match="column price is missing"):
        encoder.encode(table(item=["a"]))
    with pytest.raises(DataError, match="column item is missing"):
        encoder.encode(table(price=[1.0]))


def test_text_is_no_number(encoder):
    with pytest.raises(DataError, match="column price: type string is not a number"):
        encoder.encode(table(item=["a"], price=["cheap"]))


def test_only_the_most_frequent_values_keep_an_id():
    sums = EncoderSums(["item"], [])
    for day in (["a", "b", "c", "c"], ["b", "c", "d", None]):
        sums.add_features(table(item=day))
    assert sums.encoder(2, ("item",)).categorical["item"].names == [None, "b", "c"]


def test_without_a_column_for_them_every_row_is_one_impression():
    shown, responses = counts(table(click=[True, False]), "click", None)
    assert shown.tolist() == [1, 1]
    assert responses.tolist() == [1, 0]


def test_a_row_may_stand_for_many_impressions():
    shown, responses = counts(table(click=[2, 0], shown=[5, 7]), "click", "shown")
    assert shown.tolist() == [5, 7]
    assert responses.tolist() == [2, 0]


@pytest.mark.parametrize("odd", [None, -1, 0.5, float("inf"), 2**40])
def test_a_count_that_is_none_is_refused_by_row(odd):
    with pytest.raises(DataError, match=r"column click, row 1"):
        counts(pa.table({"click": pa.array([1.0, odd])}), "click", None)


def test_more_responses_than_impressions_are_refused():
    with pytest.raises(DataError, match="row 0 is 3: it must be a whole number from 0 to shown"):
        counts(table(click=[3], shown=[1]), "click", "shown")
    with pytest.raises(DataError, match=r"column click, row 0 is 3: it must be 0 or 1"):
        counts(table(click=[3]), "click", None)


def test_what_is_wrong_with_a_day_names_it():
    with pytest.raises(DataError, match=r"^day 2024-03-08, column x"), placed("day 2024-03-08, "):
        raise DataError("column x")
