"""Logits of a base model that was written and read back."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.core.errors import ArtifactError
from pipeline.encoding.features import Encoder, EncoderSums
from pipeline.model.network import BaseNetwork, initialise, network_from
from pipeline.model.scoring import base_state, load_base, logits_of, write_base
from tests import reference
from tests.tiny_logs import tiny_day

SIZES = {"vocabulary_sizes": [5], "n_numeric": 1, "embedding_size": 4, "hidden_sizes": [8, 6, 5]}
CONVENTIONS = {
    "label": "click",
    "impressions": "shown",
    "field": ["item"],
    "categorical": ["item"],
    "numeric": ["price"],
}


@pytest.fixture
def encoder() -> Encoder:
    sums = EncoderSums(["item"], ["price"])
    sums.add_features(tiny_day(4))
    return sums.encoder(10, ("item",))


@pytest.fixture
def folder(tmp_path, encoder) -> Path:
    """A base model on disk."""
    network = network_from(SIZES)
    initialise(network, 1, 0.2)
    write_base(
        tmp_path, network, {"network": SIZES, "conventions": CONVENTIONS, **encoder.manifest()}
    )
    return tmp_path


def test_a_model_read_back_gives_the_logits_of_the_network_by_hand(folder):
    base = load_base(folder)
    encoded = base.encoder.encode(tiny_day(2))
    weights = {name: tensor.numpy() for name, tensor in base.network.state_dict().items()}
    by_hand = reference.base_logit(weights, SIZES, encoded.categorical, encoded.numeric)
    logit = base.uncalibrated_logit(encoded, 64)
    assert logit.dtype == np.float32
    np.testing.assert_allclose(logit, by_hand, rtol=1e-5, atol=1e-6)


def test_writing_twice_gives_the_same_bytes(folder, tmp_path_factory):
    again = tmp_path_factory.mktemp("again")
    base = load_base(folder)
    write_base(again, base.network, base.manifest)
    for name in ("weights.safetensors", "manifest.json"):
        assert (again / name).read_bytes() == (folder / name).read_bytes()


def test_the_manifest_and_the_tensors_are_enough_to_build_the_network(folder):
    manifest, tensors = base_state(folder)
    network = network_from(manifest["network"])
    network.load_state_dict(tensors)
    encoded = load_base(folder).encoder.encode(tiny_day(3))
    ids = torch.from_numpy(encoded.categorical).long()
    with torch.inference_mode():
        logit = network(ids, torch.from_numpy(encoded.numeric)).numpy()
    np.testing.assert_array_equal(logit, load_base(folder).uncalibrated_logit(encoded, 64))


def test_it_says_which_columns_it_reads_and_knows_the_field_values_that_it_is_given(folder):
    base = load_base(folder)
    assert base.columns == ["item", "price", "click", "shown"]
    assert base.conventions == CONVENTIONS
    assert not base.encoder.encode(tiny_day(4)).field_value_id.any()
    field = {"columns": ["item"], "values": [None, "b", "a"], "pooled": []}
    named = load_base(folder, field).encoder.encode(tiny_day(4))
    assert named.field_value_id.tolist() == [2, 1, 0, 0]


@pytest.mark.parametrize("batch_size", [1, 7, 64, 10_000])
def test_neither_batch_size_nor_order_of_rows_matters_beyond_the_last_bits(folder, batch_size):
    base = load_base(folder)
    random = np.random.default_rng(1)
    ids = random.integers(0, 5, (500, 1)).astype(np.int32)
    numbers = random.normal(size=(500, 1)).astype(np.float32)
    logit = logits_of(base.network, ids, numbers, 500)
    order = random.permutation(500)
    other = logits_of(base.network, ids[order], numbers[order], batch_size)
    np.testing.assert_allclose(other, logit[order], rtol=0, atol=2e-6)


def test_logits_of_any_size_are_carried_as_they_are():
    """Base logits -120, -20, 17, 18, 25, 120 are log-odds, never recovered from p."""
    network = BaseNetwork([], 1, 1, [2, 2, 2])
    passes = torch.tensor([[1.0, -1.0], [0.0, 0.0]]).T  # relu(x) and relu(-x)
    with torch.no_grad():
        for layer, weight in zip(
            network.layers[::2],
            [passes[:, :1], torch.eye(2), torch.eye(2), torch.tensor([[1.0, -1.0]])],
            strict=True,
        ):
            layer.weight.copy_(weight)
            layer.bias.zero_()
    wanted = np.array([[-120], [-20], [17], [18], [25], [120]], np.float32)
    logit = logits_of(network, np.empty((6, 0), np.int32), wanted, 4)
    np.testing.assert_array_equal(logit, wanted[:, 0])


def test_no_rows_have_no_logits(folder):
    base = load_base(folder)
    assert base.uncalibrated_logit(base.encoder.encode(tiny_day(0)), 64).shape == (0,)


def test_weights_that_are_not_those_of_the_manifest_are_refused(folder):
    weights = folder / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(ArtifactError, match="is missing or not the one that"):
        load_base(folder)
    weights.unlink()
    with pytest.raises(ArtifactError, match="is missing or not the one that"):
        load_base(folder)


def test_a_manifest_of_another_format_is_refused(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "format": 0, "sha256": None}))
    with pytest.raises(ArtifactError, match="has format 0, this code reads 1"):
        load_base(folder)


def test_no_model_says_what_to_run(tmp_path):
    with pytest.raises(ArtifactError, match="does not exist; run the stage"):
        load_base(tmp_path)
