"""Adam of the base network: torch's own, and row-wise steps for embeddings that are mostly idle."""

import torch
from torch import Tensor
from torch.optim.adam import adam

from pipeline.model.network import BaseNetwork

ROWS = "rows"  # begins the names of what belongs to a sparse embedding


class Adam:
    """Adam (Kingma & Ba 2015), with the weight decay added to the gradient.

    Where the network's embedding is sparse a step changes only the rows that a batch names: their
    moments and their decay wait until a row comes again, the count of steps goes on. Nothing kept
    does that: `torch.optim.SparseAdam` knows no weight decay, places epsilon elsewhere than Adam,
    and takes 2.5 times as long a step.

    Args:
        network: whose parameters are changed in place by `step`.
        learning_rate: > 0.
        weight_decay: >= 0, times the parameter.
    """

    def __init__(self, network: BaseNetwork, learning_rate: float, weight_decay: float) -> None:
        self._decay, self._learning_rate = weight_decay, learning_rate
        self._embedding: Tensor | None = None
        dense = list(network.parameters())
        if network.embedding.sparse:
            self._embedding = weight = network.embedding.weight
            dense = [p for p in dense if p is not weight]
            zeros = torch.zeros_like(weight), torch.zeros_like(weight)
            self._moments = (*zeros, torch.zeros((), device=zeros[0].device))
        self._dense = torch.optim.Adam(dense, learning_rate, weight_decay=weight_decay, fused=True)

    def state(self) -> dict[str, Tensor]:
        """Moments and counts of steps by name."""
        found = {
            f"{position}.{kind}": tensor
            for position, of_one in self._dense.state_dict()["state"].items()
            for kind, tensor in of_one.items()
        }
        if self._embedding is not None:
            found |= {f"{ROWS}.{i}": tensor for i, tensor in enumerate(self._moments)}
        return found

    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from what `state` of the same training returned."""
        of_dense: dict[int, dict[str, Tensor]] = {}
        for name, tensor in state.items():
            place, kind = name.split(".")
            if place == ROWS:
                self._moments[int(kind)].copy_(tensor)
            else:
                of_dense.setdefault(int(place), {})[kind] = tensor
        self._dense.load_state_dict(self._dense.state_dict() | {"state": of_dense})

    @torch.no_grad()
    def step(self) -> None:
        """Change the parameters by one step down their gradients, which are then forgotten."""
        self._dense.step()
        self._dense.zero_grad()
        if self._embedding is not None:
            self._step_rows(self._embedding)

    def _step_rows(self, embedding: Tensor) -> None:
        assert embedding.grad is not None
        gradient, embedding.grad = embedding.grad.coalesce(), None
        rows = gradient.indices()[0]
        *moments, steps = self._moments
        whole = (embedding, *moments)
        parameter, mean, square = taken = [t.index_select(0, rows) for t in whole]
        adam(
            [parameter], [gradient.values()], [mean], [square], [], [steps],
            fused=True, amsgrad=False, beta1=0.9, beta2=0.999, lr=self._learning_rate,
            weight_decay=self._decay, eps=1e-8, maximize=False,
        )  # fmt: skip
        for tensor, changed in zip(whole, taken, strict=True):
            tensor.index_copy_(0, rows, changed)
