"""The exports of a checkpoint: the same function in every form, the same bytes, or none at all."""

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import onnx
import pyarrow as pa
import pytest
import torch
from google.protobuf import text_format
from onnx import numpy_helper

from pipeline.calibration.paper.paper_network import AuxiliaryNetwork
from pipeline.checkpoint.bundle import export, load, merge
from pipeline.checkpoint.onnx_graph import null_text
from pipeline.checkpoint.parity import prove_parity, runtimes_of
from pipeline.core.errors import ArtifactError, ReleaseError
from pipeline.core.files import file_sums, manifest_sums, verify, write_checksums, write_json
from pipeline.encoding.features import Encoder, Scaling
from pipeline.encoding.vocabulary import Vocabulary
from pipeline.formats.maps import from_knots, identity_map, read_maps, write_maps
from pipeline.model.network import initialise, network_from
from pipeline.model.scoring import load_base, write_base
from pipeline.serving.predictor import load as load_predictor
from pipeline.serving.triton import triton_repository
from tests.checkpoint.parts import (
    CONVENTIONS,
    add_auxiliary,
    bent_map,
    load_parts,
    rows,
    write_parts,
)
from tests.checkpoint.triton_schema import TYPES, model_config


def exported(folder, parts=None):
    """A checkpoint with its exports, and the parts it was made from."""
    parts = parts or write_parts(folder)
    merge(*parts, folder / "model")
    export(load(folder / "model"), folder / "model")
    return folder / "model", *parts


def prove(model_folder, base, calibrator, tables):
    model = load(model_folder)
    serving_map = read_maps(calibrator / "maps.parquet")["adacalib"]
    forms = runtimes_of(model_folder, model)
    of_parts = load_parts(base, calibrator)
    prove_parity(forms, model, of_parts, serving_map, tables, tolerance=1e-6)


FITTED = [-4.6, -3.0, math.log(0.2 / 0.8)]  # knots of scores from 0.01 to 0.2


def fitted_map():
    """Five field values; the last but one was fitted on scores in [0.01, 0.2]."""
    bent = bent_map(5)
    knots = [row[row < np.inf] for row in bent.knots]
    values = [row[1 : 1 + len(k)] for row, k in zip(bent.segment_values, knots, strict=True)]
    knots[3], values[3] = np.array(FITTED), np.array([-5.0, -3.1, -1.0])
    return from_knots(knots, values, np.full(5, 0.7), np.full(5, 1.3))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports")
    return exported(folder, write_parts(folder, fitted_map()))


@pytest.fixture(scope="module")
def forms(made):
    return runtimes_of(made[0], load(made[0]))


def line_through(knots, values, left_slope, right_slope, logit):
    """What the map of a field value should be, by numpy.interp and two lines beyond."""
    inside = np.interp(logit, knots, values)
    below, above = np.minimum(logit - knots[0], 0), np.maximum(logit - knots[-1], 0)
    return inside + left_slope * below + right_slope * above


SCORES = [1e-6, 0.01, 0.2, 0.2000001, 0.99]
LOGITS = [-120.0, -20.0, 17.0, 18.0, 25.0, 120.0]


@pytest.mark.parametrize("id_type", [np.int32, np.int64])
def test_every_form_draws_the_line_through_the_knots_at_every_logit(forms, id_type):
    """Far out, on each knot and an ulp from it, at every batch size."""
    p, serving_map = np.array(SCORES), fitted_map()
    for row in range(5):
        knots = serving_map.knots[row][serving_map.knots[row] < np.inf]
        heights = serving_map.segment_values[row, 1 : 1 + len(knots)]
        beside = [np.nextafter(knots, end) for end in (-np.inf, np.inf)]
        logit = np.sort(np.concatenate([LOGITS, np.log(p / (1 - p)), knots, *beside]))
        expected = line_through(knots, heights, 0.7, 1.3, logit)
        for form in forms:
            for n in (0, 1, 2, 7, 256, 4096):
                some = np.arange(n) % len(logit)
                ours = form.step(logit[some], np.full(n, row, id_type))
                np.testing.assert_allclose(ours, expected[some], rtol=0, atol=1e-6)
            whole = form.step(logit, np.full(len(logit), row, id_type))
            assert (np.diff(whole) >= 0).all(), form.name
            assert np.isfinite(whole).all(), form.name


def test_every_form_says_what_base_then_map_say(made):
    """Batches, widths of ids and orders of columns are in the proof itself."""
    prove(*made, [rows(300), rows(0)])


def test_the_proof_looks_far_out_too(made, forms):
    """A form that is right at all knots and bends the wrong way beyond them is refused."""
    base, calibrator = made[1:]
    steeper = replace(fitted_map(), segment_slopes=fitted_map().segment_slopes * (1 + 1e-7))
    wrong = [replace(form, step=steeper) for form in forms]
    model, serving_map = load(made[0]), read_maps(calibrator / "maps.parquet")["adacalib"]
    with pytest.raises(ArtifactError, match="far from them differs by"):
        prove_parity(wrong, model, load_parts(base, calibrator), serving_map, [], tolerance=1e-6)


@pytest.mark.parametrize("n", [0, 1, 2, 7, 256, 4096])
def test_the_served_file_predicts_what_the_merged_model_predicts(made, n):
    """Nulls and unseen values are among the rows."""
    table = rows(n)
    scores, prediction = load_predictor(made[0]).predict(table), load(made[0]).predict(table)
    np.testing.assert_array_equal(scores.field_value_id, prediction.field_value_id)
    np.testing.assert_allclose(scores.calibrated_logit, prediction.calibrated_logit, atol=2e-5)
    np.testing.assert_allclose(scores.probability, prediction.probability, atol=2e-5)
    seen = np.array(table["carrier"].to_pylist(), dtype=object)
    np.testing.assert_array_equal(scores.unseen, seen == "ZZ")


def test_the_same_model_gives_the_same_bytes_and_no_path_is_in_them(made, tmp_path):
    again, *_ = exported(tmp_path, write_parts(tmp_path, fitted_map()))
    assert file_sums(again) == file_sums(made[0])
    assert "model.onnx" in verify(again)["files"]
    for file in again.iterdir():
        assert b"pipeline/release" not in file.read_bytes()
    assert not list(again.glob("*.data"))


def test_the_auxiliary_term_is_in_every_form(tmp_path):
    base, calibrator = write_parts(tmp_path)
    encoder = load_base(base).encoder
    auxiliary = AuxiliaryNetwork(encoder.vocabulary_sizes, len(encoder.numeric_columns))
    torch.nn.init.normal_(auxiliary.last.weight)
    add_auxiliary(calibrator, auxiliary.state_dict())
    prove(*exported(tmp_path, (base, calibrator)), [rows(50)])


def parts_of(folder, encoder, conventions):
    """The parts of a model with another encoder."""
    sizes = {
        "vocabulary_sizes": encoder.vocabulary_sizes,
        "n_numeric": len(encoder.numeric_columns),
        "embedding_size": 4,
        "hidden_sizes": [16, 8, 4],
    }
    base, calibrator = write_parts(folder)
    network = network_from(sizes)
    initialise(network, seed=2, response_rate=0.2)
    known = encoder.manifest()
    write_base(base, network, {"conventions": conventions, "network": sizes, **known})
    write_maps(calibrator / "maps.parquet", {"adacalib": bent_map(len(known["field"]["values"]))})
    about = {
        "chosen": "adacalib",
        "field": known["field"],
        "made_of": manifest_sums({"base": base}),
    }
    write_json(calibrator / "manifest.json", about)
    return base, calibrator


def test_joint_fields_strange_texts_and_features_of_one_kind_are_exported(tmp_path):
    """The empty text is a value, a null part makes a null key."""
    strange = Vocabulary(("", "\x1f", "001", "NA", "é"))
    joint = Vocabulary(("AA\x1fEWR", "UA\x1f"))
    encoder = Encoder({"carrier": strange}, (), ("carrier", "origin"), joint)
    conventions = CONVENTIONS | {"field": ["carrier", "origin"], "numeric": []}
    made = exported(tmp_path, parts_of(tmp_path, encoder, conventions))
    table = pa.table(
        {
            "carrier": ["AA", "UA", "UA", None, "AA", "é", "001"],
            "origin": ["EWR", "", None, "EWR", "JFK", "", "x"],
        }
    )
    prove(*made, [table])
    scores = load_predictor(made[0]).predict(table)
    assert scores.field_value_id.tolist() == [1, 2, 0, 0, 0, 0, 0]
    assert scores.unseen.tolist() == [False, False, False, False, True, True, True]
    assert null_text(encoder) == "\x1f\x1f"


def test_a_model_of_numbers_alone_is_exported(tmp_path):
    numbers = (Scaling("distance", 6.5, 0.8, True), Scaling("constant", 1.0, 0.0, False))
    encoder = Encoder({}, numbers, ("carrier",), Vocabulary(("AA", "B6")))
    made = exported(tmp_path, parts_of(tmp_path, encoder, CONVENTIONS | {"categorical": []}))
    extreme = pa.array([None, 0.0, -3.5, 1e300, -1e-300, 7.0, 2.5])
    table = rows(7).set_column(3, "distance", extreme).append_column("constant", extreme)
    prove(*made, [table])


def test_a_logit_beyond_the_outermost_knots_is_told(tmp_path):
    """An answer is given, and counted; a map with one knot has no range to leave."""
    folder, *_ = exported(tmp_path)
    table = rows(500)
    scores = load_predictor(folder).predict(table)
    knots = read_maps(folder / "calibration.parquet")["adacalib"].knots[scores.field_value_id]
    last = np.where(knots < np.inf, knots, -np.inf).max(axis=1)
    beyond = (scores.uncalibrated_logit < knots[:, 0]) | (scores.uncalibrated_logit > last)
    several = (knots < np.inf).sum(axis=1) > 1
    np.testing.assert_array_equal(scores.out_of_range, beyond & several)
    assert 0 < scores.out_of_range.sum() < 500
    alone = tmp_path / "identity"
    alone.mkdir()
    folder, *_ = exported(alone, write_parts(alone, identity_map(5)))
    assert not load_predictor(folder).predict(table).out_of_range.any()


@pytest.mark.parametrize("name", ["model.onnx", "the merged model"])
def test_a_file_of_another_model_is_noticed_by_the_proof(made, tmp_path, name):
    """No parity, no artifact: whatever form is wrong is named."""
    other = write_parts(tmp_path, bent_map(5, seed=3))
    wrong, *_ = exported(tmp_path, other)
    folder, base, calibrator = made
    model = load(folder)
    forms = runtimes_of(wrong, load(wrong))
    serving_map = read_maps(calibrator / "maps.parquet")["adacalib"]
    with pytest.raises(ArtifactError, match=rf"{name} is not its parts"):
        prove_parity(
            [form for form in forms if form.name == name],
            model,
            load_parts(base, calibrator),
            serving_map,
            [],
            tolerance=1e-6,
        )


def test_a_triton_repository_holds_the_very_file_and_its_signature(made, tmp_path):
    folder = triton_repository(made[0], tmp_path / "repository")
    assert (folder / "adacalib/1/model.onnx").read_bytes() == (made[0] / "model.onnx").read_bytes()
    assert triton_repository(made[0], folder) == folder
    (folder / "letter").touch()
    with pytest.raises(ReleaseError, match="holds letter"):
        triton_repository(made[0], folder)
    config = config_of(folder)
    assert (config.name, config.backend) == ("adacalib", "onnxruntime")
    kinds = {tensor.name: tensor.data_type for tensor in [*config.input, *config.output]}
    assert kinds["text.carrier"] == TYPES["TYPE_STRING"]
    assert kinds["number.distance"] == TYPES["TYPE_FP64"]
    assert kinds["out_of_range"] == TYPES["TYPE_BOOL"]


def config_of(repository):
    """The configuration as Triton's schema has it."""
    return text_format.Parse((repository / "adacalib/config.pbtxt").read_text(), model_config()())


@pytest.mark.parametrize("name", ['a "quoted" one', "back\\slash", "two\nlines", "Gerät"])
def test_a_triton_repository_has_the_names_of_columns_whatever_they_hold(made, tmp_path, name):
    folder = shutil.copytree(made[0], tmp_path / "model")
    model = onnx.load(folder / "model.onnx")
    renamed = f"text.{name}"
    for tensor in model.graph.input:
        tensor.name = renamed if tensor.name == "text.origin" else tensor.name
    for node in model.graph.node:
        node.input[:] = [renamed if one == "text.origin" else one for one in node.input]
    onnx.save(model, folder / "model.onnx")
    vectors = folder / "test_vectors.json"
    vectors.write_text(vectors.read_text().replace('"origin"', json.dumps(name)))
    (folder / "manifest.json").unlink()
    write_checksums(folder, {})
    config = config_of(triton_repository(folder, tmp_path / "repository"))
    assert renamed in {tensor.name for tensor in config.input}


def test_the_file_says_its_conventions_and_holds_the_table_in_float64(made):
    model = onnx.load(made[0] / "model.onnx")
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert metadata["map"] == "adacalib"
    assert '"time_zone": "UTC"' in metadata["conventions"]
    arrays = [numpy_helper.to_array(constant) for constant in model.graph.initializer]
    knots = read_maps(made[0] / "calibration.parquet")["adacalib"].knots
    assert any(a.dtype == np.float64 and np.array_equal(a, knots) for a in arrays)
