"""Serving maps on disk."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.core.errors import ArtifactError, DataError
from pipeline.formats.maps import (
    PiecewiseLinearMap,
    affine_map,
    from_knots,
    identity_map,
    read_maps,
    shared_map,
    write_maps,
)


@pytest.fixture
def bent() -> PiecewiseLinearMap:
    """A map whose rows have different numbers of knots."""
    return from_knots(
        [np.array([0.1]), np.array([-3.0, 0.3, 1 / 3]), np.array([-1.0, 2.0])],
        [np.array([0.7]), np.array([-2.9, 0.1, 0.2]), np.array([-1.5, 2.2])],
        np.array([1.0, 0.9, 1.1]),
        np.array([1.2, 0.05, 0.8]),
    )


def test_a_map_read_back_returns_the_same_bits(tmp_path, bent):
    write_maps(tmp_path / "maps.parquet", {"bent": bent, "identity": identity_map(3)})
    maps = read_maps(tmp_path / "maps.parquet")
    logit = np.random.default_rng(1).normal(0, 3, 1000)
    row = np.arange(1000) % 3
    assert list(maps) == ["bent", "identity"]
    np.testing.assert_array_equal(maps["bent"](logit, row), bent(logit, row))
    np.testing.assert_array_equal(maps["identity"](logit, row), logit)


def test_equal_maps_are_equal_bytes(tmp_path, bent):
    for name in ("one.parquet", "other.parquet"):
        write_maps(tmp_path / name, {"bent": bent})
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "other.parquet").read_bytes()


def test_field_values_are_beside_the_map_where_asked_for_and_null_stays_null(tmp_path):
    path, texts = tmp_path / "maps.parquet", [None, "001", "NA", ""]
    write_maps(path, {"identity": identity_map(4)}, texts)
    assert pq.read_table(path)["field_value"].to_pylist() == texts
    assert read_maps(path)["identity"].n_field_values == 4


@pytest.mark.parametrize("knots", [[0.0, 0.0], [1.0, 0.5], [0.0, float("nan")], [-np.inf, 0.0]])
def test_knots_that_do_not_ascend_are_refused_at_write_by_field_value(tmp_path, knots):
    """Edges are checked sorted at write."""
    good = from_knots(
        [np.array([0.0, 1.0])] * 2, [np.array([0.0, 1.0])] * 2, np.ones(2), np.ones(2)
    )
    bad = good.knots.copy()
    bad[1] = knots
    broken = PiecewiseLinearMap(bad, good.segment_knots, good.segment_values, good.segment_slopes)
    with pytest.raises(ArtifactError, match=r"map m, field value id 1: knots .* ascending"):
        write_maps(tmp_path / "maps.parquet", {"m": broken})
    assert not list(tmp_path.iterdir())


def test_knots_that_do_not_ascend_are_refused_at_load_by_field_value(tmp_path, bent):
    """Edges are checked sorted at load."""
    path = tmp_path / "maps.parquet"
    write_maps(path, {"bent": bent})
    rows = pq.read_table(path).to_pylist()
    rows[2]["knots"].reverse()
    pq.write_table(pa.Table.from_pylist(rows, schema=pq.read_schema(path)), path)
    with pytest.raises(ArtifactError, match=r"map bent, field value id 2: knots .* ascending"):
        read_maps(path)


def test_values_that_are_not_finite_are_refused(tmp_path):
    broken = affine_map(np.array([0.0, np.nan]), np.ones(2))
    with pytest.raises(ArtifactError, match="finite"):
        write_maps(tmp_path / "maps.parquet", {"m": broken})


@pytest.mark.parametrize("rows", [[0, 2], [1, 0, 2], [0, 1, 1, 2]])
def test_a_field_value_that_is_missing_twice_there_or_elsewhere_is_noticed(tmp_path, bent, rows):
    path = tmp_path / "maps.parquet"
    write_maps(path, {"bent": bent})
    pq.write_table(pq.read_table(path).take(rows), path)
    with pytest.raises(ArtifactError, match="in order"):
        read_maps(path)


def test_a_map_that_jumps_is_refused(tmp_path):
    line = from_knots([np.array([0.0, 1.0])], [np.array([0.0, 1.0])], np.ones(1), np.ones(1))
    steps = PiecewiseLinearMap(
        line.knots, line.segment_knots, np.array([[-1.0, 0.0, 1.0]]), np.zeros((1, 3))
    )
    with pytest.raises(ArtifactError, match="map m is no continuous line"):
        write_maps(tmp_path / "maps.parquet", {"m": steps})


@pytest.mark.parametrize("damage", ["missing", "cut", "other"])
def test_a_file_that_is_not_a_map_is_named(tmp_path, bent, damage):
    path = tmp_path / "maps.parquet"
    write_maps(path, {"bent": bent})
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    else:
        pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(ArtifactError, match=r"maps\.parquet"):
        read_maps(path)


@pytest.mark.parametrize("wrong", [-1, 3, 2**63, np.nan])
def test_an_id_that_is_none_is_refused_and_takes_no_other_values_map(bent, wrong):
    """-1 is the code of null in pandas; as an index it would be the last value's row."""
    logit, sentence = np.zeros(3), rf"ids are 0 to 2, row 1 has {wrong}; the id of null"
    for serving_map in (bent, identity_map(3), shared_map(np.zeros(1), np.ones(1), 1.0, 1.0, 3)):
        with pytest.raises(DataError, match=sentence):
            serving_map(logit, np.array([0, wrong, 2], np.uint64 if wrong == 2**63 else None))
        assert len(serving_map(logit[:0], np.array([], np.int64))) == 0


@pytest.mark.parametrize("shared", [True, False])
def test_a_corrected_map_is_a_line_of_the_map_and_can_be_stored(tmp_path, shared):
    knots, values = np.array([-2.0, 0.3, 1.7]), np.array([-1.5, 0.1, 2.9])
    served = shared_map(knots, values, 0.5, 2.0, 4)
    if not shared:
        served = from_knots([knots, knots[:1]], [values, values[:1]], np.ones(2), np.ones(2))
    corrected = served.corrected(-0.123, 0.97)
    logit = np.linspace(-5, 5, 101)
    for value in range(served.n_field_values):
        ids = np.full(101, value)
        assert np.allclose(corrected(logit, ids), -0.123 + 0.97 * served(logit, ids), atol=1e-12)
    write_maps(tmp_path / "maps.parquet", {"corrected": corrected})
    stored = read_maps(tmp_path / "maps.parquet")["corrected"]
    assert np.array_equal(stored(logit, ids), corrected(logit, ids))
