"""The merged checkpoint: the same as its parts, the same bytes, verified."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from pipeline.calibration.paper.paper_network import AuxiliaryNetwork
from pipeline.checkpoint.bundle import load, merge
from pipeline.checkpoint.parity import FAR, Runtime, probes, prove_parity
from pipeline.checkpoint.serving_table import read_table
from pipeline.core.errors import ArtifactError, DataError
from pipeline.core.files import file_sums, read_json, verify, write_json
from pipeline.formats.maps import PiecewiseLinearMap, read_maps
from pipeline.model.scoring import load_base
from tests.checkpoint.parts import (
    CONVENTIONS,
    add_auxiliary,
    bent_map,
    load_parts,
    rows,
    write_parts,
)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    return write_parts(tmp_path_factory.mktemp("parts"))


@pytest.fixture(scope="module")
def checkpoint(parts, tmp_path_factory):
    target = tmp_path_factory.mktemp("merged") / "model"
    merge(*parts, target)
    return target


@pytest.fixture
def copy(parts, tmp_path):
    merge(*parts, tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("n", [0, 1, 2, 7, 256, 4096])
def test_the_merged_model_is_base_then_map_at_every_batch_size(parts, checkpoint, n):
    base, calibrator = parts
    table = rows(n)
    model = load_parts(base, calibrator)
    encoded = model.encoder.encode(table)
    logit = model.uncalibrated_logit(encoded, 100)
    serving_map = read_maps(calibrator / "maps.parquet")["adacalib"]
    prediction = load(checkpoint).predict(table)
    np.testing.assert_allclose(prediction.uncalibrated_logit, logit, atol=2e-5)
    np.testing.assert_array_equal(prediction.field_value_id, encoded.field_value_id)
    np.testing.assert_allclose(
        prediction.calibrated_logit,
        serving_map(prediction.uncalibrated_logit, encoded.field_value_id),
        atol=1e-12,
    )
    assert [column.dtype for column in vars(prediction).values()] == [
        np.float32,
        np.float64,
        np.float64,
        np.int32,
    ]
    assert len(prediction) == n


def test_logits_far_out_stay_finite_ordered_and_inside_the_unit_interval(checkpoint):
    far = np.array([-120, -20, 17, 18, 25, 120], dtype=np.float32)

    class Fixed(torch.nn.Module):
        def forward(self, categorical, numeric):
            return torch.tensor(far)

    prediction = replace(load(checkpoint), network=Fixed()).predict(
        rows(1).take(pa.array(np.zeros(len(far), int)))
    )
    assert (np.diff(prediction.calibrated_logit) > 0).all()
    assert ((prediction.probability > 0) & (prediction.probability < 1)).all()
    assert (np.diff(prediction.probability) >= 0).all()


def test_null_and_unseen_values_are_served_by_the_row_of_id_0(checkpoint):
    table = rows(6).set_column(
        1, "carrier", pa.array(["AA", None, "", "ZZ", "UA", "aa"], pa.string())
    )
    prediction = load(checkpoint).predict(table)
    assert prediction.field_value_id.tolist() == [1, 0, 0, 0, 4, 0]
    assert np.isfinite(prediction.calibrated_logit).all()


def test_columns_may_come_in_any_order_and_one_that_is_missing_is_named(checkpoint):
    model, table = load(checkpoint), rows(50)
    other_order = table.select(table.column_names[::-1]).append_column("more", table["late"])
    np.testing.assert_array_equal(
        model.predict(other_order).calibrated_logit, model.predict(table).calibrated_logit
    )
    with pytest.raises(DataError, match="distance"):
        model.predict(table.drop_columns(["distance"]))


def test_scoring_twice_or_shuffled_gives_the_same(checkpoint):
    """Nothing is drawn at serving."""
    model, table = load(checkpoint), rows(1000)
    order = np.random.default_rng(0).permutation(1000)
    once = model.predict(table).calibrated_logit
    np.testing.assert_array_equal(model.predict(table).calibrated_logit, once)
    shuffled = model.predict(table.take(pa.array(order))).calibrated_logit
    np.testing.assert_allclose(shuffled, once[order], atol=1e-5)


def test_the_same_parts_give_the_same_bytes(parts, checkpoint, copy):
    assert file_sums(checkpoint) == file_sums(copy)
    assert set(file_sums(checkpoint)) == {
        "weights.safetensors",
        "calibration.parquet",
        "rolling.parquet",
        "manifest.json",
    }


def test_the_manifest_holds_conventions_and_vocabularies(checkpoint):
    assert read_json(checkpoint / "manifest.json")["map"] == "adacalib"
    model = load(checkpoint)
    assert model.field_values == [None, "AA", "B6", "DL", "UA"]
    assert {key: model.conventions[key] for key in CONVENTIONS} == CONVENTIONS
    assert model.conventions["serving"]["dtypes"]["calibrated_logit"] == "float64"
    np.testing.assert_array_equal(read_table(checkpoint, 5).knots, model.serving_map.knots)
    with pytest.raises(ArtifactError, match="no row for each of 4"):
        read_table(checkpoint, 4)


@pytest.mark.parametrize("name", ["weights.safetensors", "calibration.parquet", "manifest.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_file_is_named_and_never_loaded(copy, name, damage):
    content = bytearray((copy / name).read_bytes())
    if damage == "remove":
        (copy / name).unlink()
    else:
        content[len(content) // 2] ^= 1
        (copy / name).write_bytes(content if damage == "flip" else content[:-3])
    with pytest.raises(ArtifactError, match=name):
        load(copy)


def test_a_file_that_does_not_belong_is_named(copy):
    (copy / "notes.txt").write_text("x")
    with pytest.raises(ArtifactError, match=r"notes\.txt does not belong"):
        verify(copy)


def test_a_manifest_whose_words_were_changed_is_refused(copy):
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["conventions"]["time_zone"] = "Asia/Shanghai"
    (copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ArtifactError, match=r"manifest\.json is not as it was written"):
        load(copy)


def test_a_calibrator_of_another_base_is_refused(parts, tmp_path):
    base, calibrator = write_parts(tmp_path)
    manifest = read_json(calibrator / "manifest.json")
    write_json(calibrator / "manifest.json", manifest | {"made_of": {"base": "0" * 64}})
    with pytest.raises(ArtifactError, match="calibrator was made with other base than"):
        merge(base, calibrator, tmp_path / "model")
    write_json(calibrator / "manifest.json", manifest | {"chosen": "isotonic"})
    with pytest.raises(ArtifactError, match="chose the map 'isotonic'"):
        merge(base, calibrator, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def prove(model, base, serving_map, tables):
    torch_alone = Runtime("the merged model", model.serving_map, model.predict)
    prove_parity([torch_alone], model, base, serving_map, tables, tolerance=1e-6)


def moved(serving_map: PiecewiseLinearMap, by: float) -> PiecewiseLinearMap:
    values = serving_map.segment_values.copy()
    values[2] += by
    return replace(serving_map, segment_values=values)


def test_parity_holds_for_its_parts_and_nothing_else(parts, checkpoint):
    base, calibrator = parts
    model = load(checkpoint)
    serving_map = read_maps(calibrator / "maps.parquet")["adacalib"]
    of_parts = load_parts(base, calibrator)
    prove(model, of_parts, serving_map, [rows(0), rows(300)])
    prove(model, of_parts, moved(serving_map, 1e-7), [])
    with pytest.raises(ArtifactError, match=r"differs by 1e-05.*field value id 2"):
        prove(model, of_parts, moved(serving_map, 1e-5), [])
    with pytest.raises(ArtifactError, match="is not its parts"):
        prove(model, of_parts, moved(serving_map, np.nan), [])
    with pytest.raises(ArtifactError, match="other field values"):
        prove(model, load_base(base), serving_map, [rows(300)])


def test_the_auxiliary_network_is_added_where_adacalib_ships_with_one(tmp_path):
    base, calibrator = write_parts(tmp_path)
    parts = load_parts(base, calibrator)
    auxiliary = AuxiliaryNetwork(parts.encoder.vocabulary_sizes, len(parts.encoder.numeric_columns))
    torch.nn.init.normal_(auxiliary.last.weight)
    add_auxiliary(calibrator, auxiliary.state_dict())
    merge(base, calibrator, tmp_path / "model")
    model, table = load(tmp_path / "model"), rows(100)
    encoded = parts.encoder.encode(table)
    with torch.no_grad():
        term = auxiliary(torch.tensor(encoded.categorical).long(), torch.tensor(encoded.numeric))
    serving_map = read_maps(calibrator / "maps.parquet")["adacalib"]
    logit = serving_map(parts.uncalibrated_logit(encoded, 50), encoded.field_value_id)
    added = model.predict(table).calibrated_logit - logit
    np.testing.assert_allclose(added, term.double().numpy(), atol=1e-4)
    assert np.ptp(added) > 0.1
    prove(model, parts, serving_map, [table])


def test_a_network_that_lacks_a_tensor_is_refused_by_its_name(tmp_path):
    """So is one whose file is gone, though the calibrator says that it ships."""
    base, calibrator = write_parts(tmp_path)
    encoder = load_base(base).encoder
    auxiliary = AuxiliaryNetwork(encoder.vocabulary_sizes, len(encoder.numeric_columns))
    tensors = auxiliary.state_dict()
    lost = sorted(tensors)[0]
    add_auxiliary(calibrator, {name: tensor for name, tensor in tensors.items() if name != lost})
    merge(base, calibrator, tmp_path / "model")
    with pytest.raises(ArtifactError, match=f"Missing key.*{lost}.*run dvc repro"):
        load(tmp_path / "model")
    (calibrator / "auxiliary.safetensors").unlink()
    with pytest.raises(ArtifactError, match=r"auxiliary\.safetensors is missing or damaged"):
        merge(base, calibrator, tmp_path / "other")


def test_parity_notices_a_network_that_is_not_the_base(parts, checkpoint):
    base, calibrator = parts
    model = load(checkpoint)
    with torch.no_grad():
        model.network.layers[-1].bias.add_(1e-3)
    serving_map = read_maps(calibrator / "maps.parquet")["adacalib"]
    with pytest.raises(ArtifactError, match="uncalibrated logit end to end"):
        prove(model, load_parts(base, calibrator), serving_map, [rows(10)])


def test_knots_are_looked_at_from_both_sides_in_both_widths():
    serving_map = bent_map(3)
    logit, ids = probes(serving_map)
    knots = serving_map.knots[serving_map.knots < np.inf]
    assert len(logit) == len(ids) == 6 * len(knots) + 3 * len(FAR)
    assert set(knots) <= set(logit)
    for knot in knots:
        assert {np.nextafter(knot, -9), np.nextafter(knot, 9)} <= set(logit)


@pytest.mark.parametrize("wrong", [-1, 99])
def test_an_id_that_is_no_field_values_is_refused_and_never_served_by_another(checkpoint, wrong):
    with pytest.raises((IndexError, DataError)):
        load(checkpoint).serving_map(np.zeros(1), np.array([wrong]))
