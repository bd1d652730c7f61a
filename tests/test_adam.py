"""Adam: torch's own numbers, and rows of an embedding that wait until they come again."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from pipeline.core.adam import Adam
from pipeline.model.network import BaseNetwork
from tests.model.worlds import untrained


def steps(network: BaseNetwork, step, batches: list[list[list[int]]]) -> None:
    """A step for each batch of ids, on a loss that all weights have part in."""
    for ids in batches:
        numeric = torch.linspace(-1, 1, 2 * len(ids)).reshape(-1, 2)
        (network(torch.tensor(ids), numeric) ** 2).sum().backward()
        step()


def test_a_dense_step_is_that_of_the_paper():
    """Kingma & Ba 2015, algorithm 1, with the decay added to the gradient."""
    parameter = nn.Linear(3, 1, bias=False)
    weight = parameter.weight.detach().double()
    adam, mean, square = Adam(parameter, 0.01, 1e-3), torch.zeros(3), torch.zeros(3)
    for step in range(1, 6):
        gradient = torch.tensor([[1.0, -2.0, 1e-4]]) / step
        parameter.weight.grad = gradient.clone()
        adam.step()
        gradient = gradient + 1e-3 * weight
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        corrected = mean / (1 - 0.9**step), square / (1 - 0.999**step)
        weight = weight - 0.01 * corrected[0] / (corrected[1].sqrt() + 1e-8)
        np.testing.assert_allclose(parameter.weight.detach(), weight, rtol=1e-5)


@pytest.mark.parametrize("decoupled", [False, True])
def test_its_steps_are_those_of_torch_to_the_last_bit(decoupled):
    ours, theirs = nn.Linear(4, 3), nn.Linear(4, 3)
    theirs.load_state_dict(ours.state_dict())
    of_torch = torch.optim.AdamW if decoupled else torch.optim.Adam
    reference = of_torch(theirs.parameters(), 0.01, weight_decay=0.1, fused=True)
    optimizer = Adam(ours, 0.01, 0.1, decoupled=decoupled)
    for x in torch.randn(20, 8, 4):
        for network, one in ((ours, optimizer), (theirs, reference)):
            network.zero_grad()
            network(x).square().sum().backward()
            one.step()
    assert torch.equal(ours.weight, theirs.weight)
    assert torch.equal(ours.bias, theirs.bias)


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


def test_an_optimizer_goes_on_from_the_state_of_another():
    one, other = untrained(), untrained()
    first, second = Adam(one, 0.01, 1e-3), Adam(other, 0.01, 1e-3)
    steps(one, first.step, [[[1, 2]], [[3, 4]]])
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    for name, tensor in second.state().items():
        tensor.copy_(first.state()[name])
    for network, adam in ((one, first), (other, second)):
        steps(network, adam.step, [[[2, 2]]])
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


def test_every_parameter_has_a_state():
    network: nn.Module = untrained()
    assert len(Adam(network, 0.1, 0).state()) == 3 * len(list(network.parameters()))


@pytest.mark.parametrize("sparse", [False, True])
def test_gradients_are_forgotten_after_a_step(sparse):
    network = untrained()
    network.embedding.sparse = sparse
    steps(network, Adam(network, 0.01, 0).step, [[[1, 2]]])
    assert all(parameter.grad is None for parameter in network.parameters())
