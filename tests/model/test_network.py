"""The base network: embeddings into four layers, the same numbers as written out by hand."""

import numpy as np
import pytest
import torch

from pipeline.model.network import BaseNetwork, initialise, network_from
from tests import reference

SIZES = {
    "vocabulary_sizes": [3, 5],
    "n_numeric": 2,
    "embedding_size": 4,
    "hidden_sizes": [8, 6, 5],
}


def rows(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(1)
    ids = np.stack([random.integers(0, size, n) for size in SIZES["vocabulary_sizes"]], axis=1)
    return torch.from_numpy(ids), torch.from_numpy(random.normal(size=(n, 2)).astype(np.float32))


@pytest.fixture
def network() -> BaseNetwork:
    made = network_from(SIZES)
    initialise(made, seed=1, response_rate=0.1)
    return made


def test_the_logit_is_that_of_a_network_written_out_by_hand(network):
    categorical, numeric = rows(20)
    weights = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    by_hand = reference.base_logit(weights, SIZES, categorical.numpy(), numeric.numpy())
    logit = network(categorical, numeric).detach()
    assert logit.dtype == torch.float32
    np.testing.assert_allclose(logit, by_hand, rtol=1e-5, atol=1e-6)


def test_it_has_four_fully_connected_layers(network):
    linear = [layer for layer in network.layers if isinstance(layer, torch.nn.Linear)]
    assert [layer.out_features for layer in linear] == [8, 6, 5, 1]
    assert linear[0].in_features == 2 * 4 + 2


def test_same_seed_same_weights_and_another_seed_others():
    draws = []
    for seed in (1, 1, 2):
        draws.append(network_from(SIZES))
        initialise(draws[-1], seed, 0.1)
    same, again, other = (torch.cat([p.flatten() for p in n.parameters()]) for n in draws)
    assert torch.equal(same, again)
    assert not torch.equal(same, other)


def test_drawing_weights_leaves_torchs_own_random_numbers_alone(network):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    initialise(network, 1, 0.1)
    assert torch.equal(torch.rand(3), expected)


def test_what_is_not_known_says_nothing_before_training(network):
    unknown = network.embedding.weight[network.first_row]
    assert torch.equal(unknown, torch.zeros(2, 4))
    assert network.embedding.weight.abs().sum() > 0


def test_training_starts_at_the_response_rate(network):
    probability = torch.sigmoid(network(*rows(100)).detach())
    assert float(probability.mean()) == pytest.approx(0.1, abs=0.03)


def test_ids_of_32_and_64_bits_are_the_same_ids(network):
    categorical, numeric = rows(10)
    assert torch.equal(network(categorical.int(), numeric), network(categorical.long(), numeric))


@pytest.mark.parametrize(("vocabulary_sizes", "n_numeric"), [([], 2), ([3, 5], 0)])
def test_one_kind_of_feature_is_enough(vocabulary_sizes, n_numeric):
    network = BaseNetwork(vocabulary_sizes, n_numeric, 4, [8, 6, 5])
    initialise(network, 1, 0.1)
    categorical, numeric = rows(7)
    logit = network(categorical[:, : len(vocabulary_sizes)], numeric[:, :n_numeric])
    assert logit.shape == (7,)
    assert torch.isfinite(logit).all()
