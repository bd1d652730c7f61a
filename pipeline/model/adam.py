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
        self._learning_rate, self._decay = learning_rate, weight_decay
        weight = network.embedding.weight
        self._embedding = weight if network.embedding.sparse else None
        self._dense: list[Tensor] = [p for p in network.parameters() if p is not self._embedding]
        # first and second moments, and counts of steps
        begun = {str(place): _begun(parameter) for place, parameter in enumerate(self._dense)}
        self._moments = begun | ({} if self._embedding is None else {ROWS: _begun(weight)})

    def state(self) -> dict[str, Tensor]:
        """Moments and counts of steps by name."""
        return {f"{n}.{i}": t for n, each in self._moments.items() for i, t in enumerate(each)}

    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from what `state` of the same training returned."""
        for name, own in self.state().items():
            own.copy_(state[name])

    @torch.no_grad()
    def step(self) -> None:
        """Change the parameters by one step down their gradients, which are then forgotten."""
        moments = [self._moments[str(place)] for place in range(len(self._dense))]
        gradients = [parameter.grad for parameter in self._dense if parameter.grad is not None]
        self._change(self._dense, gradients, moments)
        if self._embedding is not None:
            self._step_rows(self._embedding)
        for parameter in self._dense:
            parameter.grad = None

    def _step_rows(self, embedding: Tensor) -> None:
        assert embedding.grad is not None
        gradient, embedding.grad = embedding.grad.coalesce(), None
        rows = gradient.indices()[0]
        *moments, steps = self._moments[ROWS]
        whole = (embedding, *moments)
        parameter, *taken = (t.index_select(0, rows) for t in whole)
        self._change([parameter], [gradient.values()], [(*taken, steps)])
        for tensor, changed in zip(whole, (parameter, *taken), strict=True):
            tensor.index_copy_(0, rows, changed)

    def _change(
        self, parameters: list[Tensor], gradients: list[Tensor], moments: list[tuple[Tensor, ...]]
    ) -> None:
        """Torch's step. Its classes load the compiler, which takes longer than a short training."""
        means, squares, steps = map(list, zip(*moments, strict=True))
        adam(
            parameters, gradients, means, squares, [], steps,
            fused=True, amsgrad=False, beta1=0.9, beta2=0.999, lr=self._learning_rate,
            weight_decay=self._decay, eps=1e-8, maximize=False,
        )  # fmt: skip


def _begun(parameter: Tensor) -> tuple[Tensor, ...]:
    zeros = torch.zeros_like(parameter), torch.zeros_like(parameter)
    return *zeros, torch.zeros((), device=parameter.device)
