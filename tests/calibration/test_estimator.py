"""AdaCalib in a notebook: scikit-learn's conventions."""

import datetime
import inspect

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from pipeline.calibration.sklearn import AdaCalib, text_of
from pipeline.core.errors import DataError, NotEnoughDataError, ParamsError
from pipeline.encoding.values import SCORE_CLIP, as_text
from tests.calibration.curved_world import curved_world

QUICK = {"candidates": (2, 4), "steps": 8}


@pytest.fixture(scope="module")
def rows():
    """Columns of a notebook: logits, labels, names of items, days."""
    scores, _ = curved_world(rows=6000, n_values=4, days=5)
    names = np.array(["shoes", "001", "1", "NA", "bags", "x"])[scores.field_value_id]
    day = np.datetime64("2024-03-01") + (scores.day - 20_000)
    return scores.uncalibrated_logit, scores.responses, names, day


@pytest.fixture(scope="module")
def fitted(rows):
    logit, label, names, day = rows
    return AdaCalib(**QUICK).fit(logit, label, names, day=day)


def test_probabilities_follow_the_rate_of_each_field_value(rows, fitted):
    logit, label, names, _ = rows
    probability = fitted.predict_proba(logit, names)
    assert probability.shape == (len(logit), 2)
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    for name in np.unique(names):
        of = names == name
        assert probability[of, 1].mean() == pytest.approx(label[of].mean(), rel=0.15)


def test_unseen_null_and_empty_values_are_safe(rows, fitted):
    probability = fitted.predict_proba([-2.0] * 4, ["1", None, "", "never seen"])
    assert np.isfinite(probability).all()
    assert (probability[1:] == probability[1]).all()
    assert probability[0, 1] != probability[1, 1]


def test_null_is_a_value_of_its_own_where_it_was_seen(rows):
    logit, label, names, _ = rows
    columns, responses = names.astype(object), label.copy()
    columns[::6], responses[::6] = None, 1
    fitted = AdaCalib(**QUICK, choose="always").fit(logit, responses, columns)
    assert None in fitted.field_values_
    null, shoes, unseen = fitted.predict_proba([-2.0] * 3, [None, "001", "never seen"])[:, 1]
    assert null > 0.9
    assert shoes < 0.5
    assert unseen < null


def test_field_values_are_spelled_as_in_the_pipeline(fitted):
    """The same rule as for files and requests."""
    columns = [
        pa.array(["001", "NA", "null", "NaT", "<NA>", "", None]),
        pa.array([1582218195625938945, 1582218195625938946, 7, None]),
        pa.array([7.0, 2.0**52, -0.0, None]),
        pa.array([True, False, None]),
        pa.array([b"a", None]),
    ]
    for column in columns:
        expected = as_text(column).to_pylist()
        assert [text_of(value) for value in column.to_pylist()] == expected
        assert [
            text_of(value) for value in column.to_pandas(types_mapper=pd.ArrowDtype)
        ] == expected


def test_a_table_of_floats_and_whole_numbers_name_the_same_values(rows):
    logit, label, names, _ = rows
    number = np.unique(names, return_inverse=True)[1]
    fitted = AdaCalib(**QUICK).fit(np.column_stack([logit, number]), label)
    one, other = (fitted.predict_proba([-2.0], [value]) for value in (1, 1.0))
    assert np.array_equal(one, other)
    assert set(fitted.field_values_) == {str(value) for value in set(number.tolist())}


@pytest.mark.parametrize(
    "wrong",
    [
        {"choose": "nope"},
        {"min_slope": -1.0},
        {"horizon_days": 0},
        {"candidates": (0,)},
        {"candidates": "5"},
        {"candidates": 5},
        {"steps": 0},
        {"learning_rate": float("nan")},
        {"learning_rate": "0.003"},
        {"min_slope": float("inf")},
        {"seed": 1.5},
        {"seed": None},
    ],
)
def test_parameters_outside_their_range_are_refused_by_name(wrong):
    with pytest.raises(ParamsError, match=f"{next(iter(wrong))} is"):
        AdaCalib(**wrong).fit([0.0, 1.0], [0, 1], ["a", "b"])


@pytest.mark.parametrize("weight", [None, [0, 0]])
def test_no_impressions_are_not_enough(weight):
    rows = ([], [], []) if weight is None else ([0.0, 1.0], [0, 1], ["a", "b"])
    with pytest.raises(NotEnoughDataError):
        AdaCalib().fit(*rows, weight=weight)


def test_nan_is_null(fitted):
    nan, none = (fitted.predict_proba([-2.0], [value]) for value in (float("nan"), None))
    assert np.array_equal(nan, none)


def test_field_values_are_text(fitted):
    assert set(fitted.field_values_) == {"001", "1", "NA", "bags"}
    number, text = (fitted.predict_proba([-2.0], [value]) for value in (1, "1"))
    assert np.array_equal(number, text)


def test_extreme_logits_keep_their_order_and_stay_inside(fitted):
    logit = np.array([-120.0, -20.0, 17.0, 18.0, 25.0, 120.0])
    calibrated = fitted.calibrated_logit(logit, ["1"] * 6)
    assert (np.diff(calibrated) > 0).all()
    probability = fitted.predict_proba(logit * 100, ["1"] * 6)
    assert ((probability > 0) & (probability < 1)).all()
    assert np.isfinite(calibrated).all()


def test_parameters_can_be_read_set_and_cloned(fitted):
    twin = clone(fitted)
    assert twin.get_params() == fitted.get_params()
    assert clone(fitted).set_params(seed=7).seed == 7
    with pytest.raises(NotFittedError):
        twin.predict_proba([0.0], ["1"])


@pytest.mark.parametrize("method", [AdaCalib.fit, AdaCalib.predict_proba])
def test_a_signature_can_be_read_in_one_glance(method):
    assert len(str(inspect.signature(method))) < 200


def test_fitting_again_gives_the_same_probabilities(rows, fitted):
    logit, label, names, day = rows
    again = clone(fitted).fit(logit, label, names, day=day)
    assert np.array_equal(again.predict_proba(logit, names), fitted.predict_proba(logit, names))


def test_days_may_be_numbers_dates_or_datetimes(rows, fitted):
    logit, label, names, day = rows
    expected = fitted.predict_proba(logit, names)
    dates = [datetime.date.fromisoformat(str(d)) for d in day]
    for days in (day.astype(np.int64), dates, day.astype("datetime64[ns]")):
        again = clone(fitted).fit(logit, label, names, day=days)
        assert np.array_equal(again.predict_proba(logit, names), expected)


@pytest.mark.parametrize("with_days", [False, True])
def test_weights_are_impressions(rows, with_days):
    logit, label, names, day = (column[:900] for column in rows)
    once = AdaCalib(**QUICK).fit(
        *(np.repeat(column, 2) for column in (logit, label, names)),
        day=np.repeat(day, 2) if with_days else None,
    )
    weight, days = np.full(900, 2), day if with_days else None
    twice = AdaCalib(**QUICK).fit(logit, label, names, weight=weight, day=days)
    one, other = (m.predict_proba(logit, names) for m in (once, twice))
    assert np.array_equal(one, other)


def test_the_order_of_rows_changes_nothing_whether_days_are_known_or_drawn(rows):
    logit, label, names, _ = (column[:900] for column in rows)
    order = np.random.default_rng(1).permutation(900)
    one = AdaCalib(**QUICK).fit(logit, label, names).predict_proba(logit, names)
    other = AdaCalib(**QUICK).fit(logit[order], label[order], names[order])
    assert np.array_equal(one, other.predict_proba(logit, names))


def test_a_pipeline_takes_the_field_value_as_second_column(rows, fitted):
    logit, label, names, _ = rows
    table = np.empty((len(logit), 2), dtype=object)
    table[:, 0], table[:, 1] = logit, names
    pipeline = make_pipeline(FunctionTransformer(), AdaCalib(**QUICK))
    probability = pipeline.fit(table, label).predict_proba(table)
    alone = AdaCalib(**QUICK).fit(logit, label, names).predict_proba(logit, names)
    assert np.array_equal(probability, alone)
    assert pipeline.predict(table).dtype == np.int64


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"label": [0, 2]}, "label must be 0 or 1, row 1 has 2"),
        ({"label": [0]}, "label needs 2 rows, it has 1"),
        ({"weight": [1, 0.5]}, "weight must be a whole number.*row 1 has 0.5"),
        ({"weight": [1, float("nan")]}, "weight must be a whole number"),
        ({"uncalibrated_logit": [0.0, float("inf")]}, "uncalibrated_logit must be finite.*row 1"),
        ({"field_value": ["a"]}, "field_value needs 2 rows, it has 1"),
        ({"field_value": None}, "field_value is missing"),
        ({"day": [1]}, "day needs 2 rows, it has 1"),
        ({"day": [20240331, 20240401]}, "day must be a date.*row 0 has .*20240331"),
        ({"day": ["20240331", "20240401"]}, "day must be a date.*row 0 has .*20240331"),
        ({"day": ["2024-03-31", None]}, "day must be a date.*row 1 has None"),
        ({"day": [0.0, float("nan")]}, "day must be a date.*row 1 has .*nan"),
        ({"day": [np.datetime64("2024-03-31"), np.datetime64("NaT")]}, "day must be .*row 1"),
        ({"day": ["monday", "tuesday"]}, "day must be a date.*row 0 has .*monday"),
        ({"weight": [1, float("inf")]}, "weight must be a whole number.*row 1 has inf"),
        ({"field_value": [0.5, 1.0]}, "whole number below 2.*53, not 0.5"),
    ],
)
def test_wrong_columns_are_refused_with_rule_row_and_value(change, sentence):
    columns = {"uncalibrated_logit": [0.0, 1.0], "label": [0, 1], "field_value": ["a", "b"]}
    with pytest.raises(DataError, match=sentence):
        AdaCalib().fit(**(columns | change))


def test_probabilities_in_the_place_of_logits_are_refused():
    random = np.random.default_rng(4)
    probability = random.uniform(0.01, 0.3, 200)
    with pytest.raises(DataError, match="look like probabilities"):
        AdaCalib().fit(probability, random.random(200) < probability, ["a"] * 200)


def test_the_picture_of_a_field_value_is_what_it_predicts():
    random = np.random.default_rng(5)
    logit, item = random.normal(-2, 1, 400), random.choice(["a", "b"], 400)
    calibrator = AdaCalib(steps=5).fit(logit, random.random(400) < 0.1, item)
    drawn = calibrator.plot("a").to_dict()
    (rows,) = drawn["datasets"].values()
    base = np.array([row["base"] for row in rows])
    expected = calibrator.predict_proba(np.log(base) - np.log1p(-base), ["a"] * len(base))[:, 1]
    np.testing.assert_allclose([row["calibrated"] for row in rows], expected, rtol=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        {"uncalibrated_logit": np.ma.array([0.0, 1.0], mask=[0, 1])},
        {"uncalibrated_logit": [0.0, "much"]},
        {"uncalibrated_logit": np.array([0.0, 1j])},
        {"uncalibrated_logit": np.array(["2024-01-01", "2024-01-02"], "M8[D]")},
        {"label": np.ma.array([0, 1], mask=[0, 1])},
        {"label": pd.Series([True, pd.NA], dtype="boolean")},
        {"label": ["no", "yes"]},
        {"weight": np.ma.array([1, 1], mask=[0, 1])},
        {"weight": [1, "many"]},
        {"weight": [2**52, 2**52]},
        {"day": np.ma.array([3, 4], mask=[0, 1])},
        {"day": pd.to_timedelta([1, 2], unit="D")},
        {"day": [True, False]},
        {"day": ["2024-03-01", "2024-03-02nd"]},
        {"field_value": [b"a", b"\xff"]},
        {"field_value": ["a", ["b"]]},
        {"field_value": pd.Series([["a"], ["b"]])},
        {"field_value": [{"a": 1}, {"b": 1}]},
        {"field_value": pd.to_datetime(["2024-01-01", "2024-01-02"])},
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(change):
    columns = {"uncalibrated_logit": [0.0, 1.0], "label": [0, 1], "field_value": ["a", "b"]}
    with pytest.raises(DataError) as refused:
        AdaCalib(**QUICK).fit(**(columns | change))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("column", [
    pa.array, lambda ids: pa.chunked_array([ids]), lambda ids: pd.array(ids, "Int64"),
    lambda ids: pd.Series(ids, dtype="Int64"),
    lambda ids: pd.Series(ids, dtype=pd.ArrowDtype(pa.int64())),
])  # fmt: skip
def test_ids_of_64_bits_beside_nulls_keep_every_digit(column):
    """Numpy makes floats of them."""
    ids = [1582218195625938945, 1582218195625938946, None]
    fitted = AdaCalib(**QUICK).fit([0.0, 1.0, 2.0], [0, 1, 0], column(ids))
    assert set(fitted.field_values_) == {None, *map(str, ids[:2])}


def test_a_list_of_texts_numbers_and_nulls_is_what_its_cells_are(rows):
    """Numpy makes texts of all of them, and floats of ids beside floats."""
    logit, label, _, _ = rows
    cells = ["NA", float("nan"), True, 7.0, b"x", 1582218195625938945, "nan", None]
    columns = [cells[place % len(cells)] for place in range(len(logit))]
    fitted = AdaCalib(**QUICK).fit(logit.tolist(), label.tolist(), columns)
    known = {None, "NA", "true", "7", "x", "1582218195625938945", "nan"}
    assert set(fitted.field_values_) == known
    pairs = [list(pair) for pair in zip(logit.tolist(), columns, strict=True)]
    frame = pd.DataFrame({"logit": logit, "id": np.arange(len(logit)) % 3 + 1582218195625938945})
    of_frame = AdaCalib(**QUICK).fit(frame, label).field_values_
    assert AdaCalib(**QUICK).fit(pairs, label).field_values_.keys() == known
    assert set(of_frame) == {f"158221819562593894{digit}" for digit in (5, 6, 7)}


def test_a_masked_field_value_is_null(rows):
    logit, label, names, _ = rows
    fitted = AdaCalib(**QUICK).fit(logit, label, np.ma.array(names, mask=names == "001"))
    assert set(fitted.field_values_) == {"1", "NA", "bags", None}
    masked, none = (fitted.predict_proba([-2.0], v) for v in (np.ma.masked_all(1, "U1"), [None]))
    assert np.array_equal(masked, none)


@pytest.mark.parametrize("choose", ["held_out", "always"])
@pytest.mark.parametrize("scale", [1e6, 1e30])
def test_logits_beyond_every_probability_are_fitted(rows, scale, choose):
    """One of them is a row that decides nothing, and many leave finite probabilities."""
    logit, label, names, day = rows
    outlier = np.where(np.arange(len(logit)) == 5, scale, logit)
    for each in (outlier, logit * scale):
        fitted = AdaCalib(**QUICK, choose=choose).fit(each, label, names, day=day)
        assert np.isfinite(fitted.predict_proba(each, names)).all()


@pytest.mark.parametrize(("probability", "rate"), [(0.0, 0.1), (1.0, 0.8)])
def test_a_value_whose_logged_probability_is_0_or_1_is_expected_to_respond_as_it_did(
    rows, probability, rate
):
    """Which is a logit of -34.5 or 34.5 (docs/serving.md)."""
    logit, label, names, day = rows
    rng, more = np.random.default_rng(0), len(day) // 5
    score = np.full(more, np.log(SCORE_CLIP)) * (1 if probability == 0 else -1)
    columns = score, (rng.random(more) < rate), np.full(more, "sure"), day[:more]
    every = [np.concatenate(pair) for pair in zip((logit, label, names, day), columns, strict=True)]
    fitted = AdaCalib(**QUICK, choose="always").fit(*every[:3], day=every[3])
    served = fitted.predict_proba(score[:1], ["sure"])[0, 1]
    assert served == pytest.approx(rate, rel=0.35)


def test_days_that_are_left_out_are_told():
    """As the guard of the pipeline leaves them out: the newest day has no labels yet."""
    scores, _ = curved_world(rows=40_000, n_values=4, days=12)
    label = np.where(scores.day == 20_011, 0, scores.responses)
    columns = scores.uncalibrated_logit, label, scores.field_value_id
    assert AdaCalib(**QUICK).fit(*columns, day=scores.day).refused_days_ == [20_011]
    assert AdaCalib(**QUICK).fit(*columns).refused_days_ == []


@pytest.mark.parametrize("wrong", [{"horizon_days": 10**9}, {"candidates": (99_991, 99_989)}])
def test_what_no_machine_could_hold_is_refused(wrong):
    with pytest.raises(ParamsError):
        AdaCalib(**wrong).fit([0.0, 1.0], [0, 1], ["a", "b"])
