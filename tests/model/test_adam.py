"""Adam: rows of an embedding wait until they come again, and a state goes on."""

import copy

import numpy as np
import pytest
import torch

from pipeline.model.network import Adam, BaseNetwork
from tests.model.worlds import untrained


def steps(network: BaseNetwork, step, batches: list[list[list[int]]]) -> None:
    """A step for each batch of ids, on a loss that all weights have part in."""
    for ids in batches:
        numeric = torch.linspace(-1, 1, 2 * len(ids)).reshape(-1, 2)
        (network(torch.tensor(ids), numeric) ** 2).sum().backward()
        step()


def test_a_sparse_step_changes_the_rows_it_names_as_a_dense_one_would_and_no_other():
    dense, sparse = untrained(), untrained()
    sparse.embedding.sparse = True
    before = sparse.embedding.weight.detach().clone()
    for network in (dense, sparse):
        steps(network, Adam(network, 0.01, 1e-3).step, [[[1, 2], [1, 4]]])
    named = torch.tensor([1, 4 + 2, 4 + 4])
    others = torch.tensor([row for row in range(len(before)) if row not in named])
    np.testing.assert_allclose(
        sparse.embedding.weight[named].detach(), dense.embedding.weight[named].detach(), atol=1e-7
    )
    assert torch.equal(sparse.embedding.weight[others], before[others])
    assert (sparse.embedding.weight[named] != before[named]).any()


@pytest.mark.parametrize("sparse", [False, True])
def test_an_optimizer_goes_on_from_the_state_of_another(sparse):
    one, other = untrained(), untrained()
    one.embedding.sparse = other.embedding.sparse = sparse
    first, second = Adam(one, 0.01, 1e-3), Adam(other, 0.01, 1e-3)
    steps(one, first.step, [[[1, 2]], [[3, 4]]])
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    second.load({name: tensor.clone() for name, tensor in first.state().items()})
    for network, adam in ((one, first), (other, second)):
        steps(network, adam.step, [[[2, 2]]])
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


@pytest.mark.parametrize("sparse", [False, True])
def test_gradients_are_forgotten_after_a_step(sparse):
    network = untrained()
    network.embedding.sparse = sparse
    steps(network, Adam(network, 0.01, 0).step, [[[1, 2]]])
    assert all(parameter.grad is None for parameter in network.parameters())
