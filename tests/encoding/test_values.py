"""Field values are text, spelled the same wherever they come from; ids count them from 1."""

from collections import Counter
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.errors import DataError
from pipeline.data.log_store.day_rows import read_day
from pipeline.data.log_store.landing import LogKind
from pipeline.encoding.values import (
    NULL_NAME,
    POOLED_NAME,
    as_numbers,
    as_text,
    counts,
    field_keys,
    logged_logit,
)
from pipeline.encoding.vocabulary import ValueCounts, Vocabulary
from tests.tiny_logs import land_day

TRICKY = ["NA", "null", "None", "001", "01", "1", "TRUE", None]
of_a_log = st.text(max_size=5).filter(lambda text: not text.startswith("\x1e"))  # reserved
texts = st.lists(st.one_of(st.none(), of_a_log), max_size=40)
KINDS = [pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64()]


def test_strings_that_look_like_something_else_stay_what_they_are():
    assert as_text(pa.array(TRICKY)).to_pylist() == TRICKY
    assert as_text(pa.array(["", None])).to_pylist() == ["", None]


def test_tricky_values_keep_apart_from_csv_to_day_to_vocabulary_to_request(tmp_path):
    """Seven values and one null, all the way."""
    lines = "\n".join([*(f"{value},x" for value in TRICKY[:-1]), ",x"] * 50)
    options = pa.csv.ConvertOptions(
        column_types={"item": pa.string()}, null_values=[""], strings_can_be_null=True
    )
    (tmp_path / "log.csv").write_text(f"item,other\n{lines}\n")
    landed = pa.csv.read_csv(tmp_path / "log.csv", convert_options=options).select(["item"])
    land_day(tmp_path / "data", LogKind("t", "UTC", landed.schema, {}), "2024-01-01", landed)

    keys = field_keys(read_day(tmp_path / "data", "2024-01-01"), ["item"])
    vocabulary = Vocabulary.of(ValueCounts(keys))
    assert len(vocabulary) == 7
    request = pa.array(TRICKY)
    ids = vocabulary.ids(request)
    assert [vocabulary.names[i] for i in ids] == TRICKY
    assert Counter(vocabulary.ids(keys).tolist()) == dict.fromkeys(ids.tolist(), 50)


def test_64_bit_ids_with_nulls_keep_every_digit():
    """7 is "7", never "7.0"."""
    ids = [1582218195625938945, 1582218195625938946, 7, None]
    expected = ["1582218195625938945", "1582218195625938946", "7", None]
    assert as_text(pa.array(ids)).to_pylist() == expected
    assert as_text(pa.array(ids).dictionary_encode()).to_pylist() == expected
    assert as_text(pa.array([2**64 - 1], pa.uint64())).to_pylist() == [str(2**64 - 1)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_whole_number_is_spelled_the_same_whatever_type_holds_it(kind):
    """Types may change from day to day, keys do not."""
    assert as_text(pa.array([7, 0, None, 100], kind)).to_pylist() == ["7", "0", None, "100"]


def test_nan_among_whole_floats_is_null():
    assert as_text(pa.array(np.array([7.0, np.nan, -0.0]))).to_pylist() == ["7", None, "0"]


@pytest.mark.parametrize("value", [7.5, 2.0**53, 1e300, float("inf")])
def test_a_float_that_may_have_lost_digits_is_refused_with_its_row(value):
    with pytest.raises(DataError, match="row 1"):
        as_text(pa.array([1.0, value]))


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        (pa.array([b"\xff"]), "only in UTF-8"),
        (pa.array([["a"]]), "cannot name values"),
        (pa.array([{"a": 1}]), "type struct"),
        (pa.array([0], pa.timestamp("us", "UTC")), "type timestamp"),
        (pa.array([Decimal("1.50")]), "a decimal column names values only by whole numbers"),
    ],
    ids=["binary", "list", "struct", "stamp", "decimal"],
)
def test_a_type_without_a_spelling_is_refused_by_name(column, sentence):
    with pytest.raises(DataError, match=sentence):
        as_text(column)


def test_whole_decimals_and_bytes_of_text_have_the_spelling_of_their_text():
    """20-digit ids often travel as decimals."""
    largest = 2**64 - 1
    for kind in (pa.decimal128(20, 0), pa.decimal128(22, 2), pa.decimal256(60, 0)):
        ids = pa.array([Decimal(largest), None, Decimal(7)], kind)
        assert as_text(ids).to_pylist() == [str(largest), None, "7"]
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        assert as_text(pa.array([b"001", None, "ä".encode()], kind)).to_pylist() == [
            "001",
            None,
            "ä",
        ]


@given(texts, st.integers(0, 40))
def test_chunks_and_encodings_do_not_matter(values, cut):
    plain = pa.array(values, pa.string())
    for column in (
        pa.chunked_array([plain[:cut], plain[cut:]]),
        pa.chunked_array([plain[:cut].dictionary_encode(), plain[cut:].dictionary_encode()]),
        plain.cast(pa.large_string()),
        pa.chunked_array([], pa.string()) if not values else plain,
    ):
        assert as_text(column).equals(plain)


def test_a_boolean_is_spelled_in_lower_case_and_an_all_null_column_is_all_null():
    assert as_text(pa.array([True, None, False])).to_pylist() == ["true", None, "false"]
    assert as_text(pa.nulls(2)).to_pylist() == [None, None]


def test_numbers_are_float64_with_nan_for_null_and_text_is_refused():
    np.testing.assert_array_equal(as_numbers(pa.array([1, None, 3], pa.int16())), [1, np.nan, 3])
    np.testing.assert_array_equal(as_numbers(pa.array([True, None])), [1, np.nan])
    np.testing.assert_array_equal(as_numbers(pa.nulls(1)), [np.nan])
    with pytest.raises(DataError, match="string is not a number"):
        as_numbers(pa.array(["1"]))


def test_a_joint_value_is_null_where_any_part_is():
    table = pa.table({"slot": ["top", None, "side"], "ad": [1, 2, None]})
    assert field_keys(table, ["slot", "ad"]).to_pylist() == ["top\x1f1", None, None]


def test_joint_values_never_collide():
    table = pa.table({"a": ["x", "x\x1fy"], "b": ["y\x1fz", "z"]})
    with pytest.raises(DataError, match="column a holds the separator"):
        field_keys(table.slice(1), ["a", "b"])
    assert field_keys(table, ["a"]).to_pylist() == ["x", "x\x1fy"]


def test_a_missing_field_column_is_named():
    with pytest.raises(DataError, match="column ad is missing"):
        field_keys(pa.table({"a": [1]}), ["ad"])
    with pytest.raises(DataError, match=r"column a: .*7\.5"):
        field_keys(pa.table({"a": [7.5]}), ["a"])


@given(texts)
def test_every_known_value_has_its_own_id_and_the_id_names_it(values):
    vocabulary = Vocabulary.of(ValueCounts(pa.array(values, pa.string())))
    assert list(vocabulary.values) == sorted({v for v in values if v is not None})
    ids = vocabulary.ids(pa.array(values, pa.string()))
    assert ids.dtype == np.int32
    assert [vocabulary.names[i] for i in ids] == values
    assert [i == 0 for i in ids] == [v is None for v in values]


@given(texts, st.integers(0, 6))
def test_the_most_frequent_values_are_kept_and_ties_go_by_name(values, max_size):
    counts = Counter(value for value in values if value is not None)
    kept = sorted(counts, key=lambda value: (-counts[value], value))[:max_size]
    vocabulary = Vocabulary.of(ValueCounts(pa.array(values, pa.string())), max_size)
    assert vocabulary.values == tuple(sorted(kept))
    others = sorted(set(counts) - set(kept))
    assert not vocabulary.ids(pa.array(others, pa.string())).any()


@given(texts, st.integers(0, 40), st.integers(0, 6))
def test_counting_day_by_day_gives_the_vocabulary_of_all_days(values, cut, max_size):
    column = pa.array(values, pa.string())
    whole = Vocabulary.of(ValueCounts(column), max_size)
    assert Vocabulary.of(ValueCounts(column[:cut], column[cut:]), max_size) == whole
    chunked = pa.chunked_array([column[:cut], column[cut:]])
    assert Vocabulary.of(ValueCounts(chunked), max_size) == whole


def test_a_key_of_any_type_finds_its_value():
    vocabulary = Vocabulary(("7", "a"))
    assert vocabulary.ids(pa.array([7, 8, None])).tolist() == [1, 0, 0]


def test_values_may_come_in_any_order_but_each_once():
    assert Vocabulary(("b", "a")).ids(pa.array(["a", "b", "c"])).tolist() == [2, 1, 0]
    for twice in ((("a", "a"),), (("a", POOLED_NAME), ("a",))):
        with pytest.raises(DataError, match="each value once"):
            Vocabulary(*twice)


@pytest.mark.parametrize(
    ("names", "pooled"),
    [
        ([None, "a"], ["b"]),
        ([None, POOLED_NAME], []),
        ([None, "a", POOLED_NAME, POOLED_NAME], "bc"),
    ],
)
def test_pooled_values_share_one_id_or_are_no_vocabulary(names, pooled):
    """Several were those of hashed embeddings, which models of earlier versions may have."""
    with pytest.raises(DataError, match="; build it again"):
        Vocabulary.of_names(names, pooled)


@given(
    st.lists(st.none() | st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=3)),
    st.integers(0, 4),
)
def test_a_field_s_vocabulary_tells_own_null_pooled_and_unseen_apart(values, own):
    """Every row keeps an id, and an id never means two of the four."""
    days = [pa.array(values[:3], pa.string()), pa.array(values[3:], pa.string())]
    vocabulary = Vocabulary(()).extended(ValueCounts(*days), own)
    assert vocabulary == Vocabulary(()).extended(ValueCounts(*days[::-1]), own)
    assert Vocabulary.of_names(vocabulary.names, vocabulary.pooled) == vocabulary
    assert len(vocabulary.names) == len(vocabulary) + 1
    ids = vocabulary.ids(pa.array([*values, "unseen"], pa.string()))
    assert ids.dtype == np.int32
    assert ids[-1] == 0
    counts = Counter(value for value in values if value is not None)
    most = sorted(counts, key=lambda value: (-counts[value], value))
    for value, found in zip(values, ids, strict=False):
        name = value if value in most[:own] else POOLED_NAME
        assert vocabulary.names[found] == (NULL_NAME if value is None else name)


@given(
    st.lists(st.lists(st.none() | st.sampled_from("abcdefg"), max_size=6), max_size=5),
    st.none() | st.integers(0, 4),
)
def test_values_that_come_later_are_appended_and_every_old_id_keeps_its_name(days, own):
    """Whatever id a value once has, its own or the pooled one, it has on every later day."""
    vocabulary, before = Vocabulary(()), [None]
    for day in days:
        column = pa.array(day, pa.string())
        had = vocabulary.ids(column)
        extended = vocabulary.extended(ValueCounts(column), own)
        assert extended.names[: len(before)] == before
        has = extended.ids(column)
        assert ((has == had) | (had == 0)).all()
        assert (has > 0).all()
        assert own is None or len(extended.values) <= own
        new = extended.names[len(before) :]
        values = [name for name in new if name not in (NULL_NAME, POOLED_NAME)]
        assert new == sorted(values) + [name for name in new if name not in values]
        assert extended.extended(ValueCounts(column), own) == extended
        vocabulary, before = extended, extended.names


def test_a_null_that_comes_later_has_an_id_beside_those_that_values_may_have():
    full = Vocabulary(()).extended(ValueCounts(pa.array(["a", "b", "b"])), 1)
    assert full.names == [None, "b", POOLED_NAME]
    later = full.extended(ValueCounts(pa.array([None, "c"])), 1)
    assert later.names == [None, "b", POOLED_NAME, NULL_NAME]
    assert later.ids(pa.array(["a", "b", "c", None, "d"])).tolist() == [2, 1, 2, 3, 0]


def test_what_lies_just_outside_is_not_shown_as_if_it_lay_inside():
    with pytest.raises(DataError, match=r"1\.0000001"):
        logged_logit(np.array([0.5, 1.0000001]), "probability")
    with pytest.raises(DataError, match=r"1\.0000001"):
        counts(pa.table({"click": [1.0000001]}), "click", None)
