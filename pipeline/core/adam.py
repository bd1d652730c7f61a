"""Adam without `torch.optim.Optimizer`, whose constructor imports a compiler for two seconds."""

import torch
from torch import Tensor, nn
from torch.optim.adam import adam


class Adam:
    """Adam (Kingma & Ba 2015) or AdamW (Loshchilov & Hutter 2019), bit for bit torch's fused one.

    A sparse gradient, of an embedding, changes only the rows that it names: their moments and
    their decay wait until a row comes again, the count of steps goes on.

    Args:
        network: whose parameters are changed in place by `step`.
        learning_rate: > 0.
        weight_decay: added to the gradient, times the parameter.
        decoupled: AdamW: the decay takes its share of the parameter itself, per unit of learning
            rate.
    """

    def __init__(
        self,
        network: nn.Module,
        learning_rate: float,
        weight_decay: float,
        *,
        decoupled: bool = False,
    ) -> None:
        self._learning_rate, self._weight_decay = learning_rate, weight_decay
        self._decoupled = decoupled
        self._parameters = dict(network.named_parameters())
        self._state = {
            name: (torch.zeros_like(p), torch.zeros_like(p), torch.zeros((), device=p.device))
            for name, p in self._parameters.items()
        }

    def state(self) -> dict[str, Tensor]:
        """Moments and counts of steps by name; to write into them is to go on from there."""
        kinds = ("mean", "square", "steps")
        return {
            f"{name}.{kind}": tensor
            for name, tensors in self._state.items()
            for kind, tensor in zip(kinds, tensors, strict=True)
        }

    @torch.no_grad()
    def step(self) -> None:
        """Change the parameters by one step down their gradients, which are then forgotten."""
        dense: list[tuple[Tensor, ...]] = []
        for name, parameter in self._parameters.items():
            gradient, parameter.grad = parameter.grad, None
            assert gradient is not None
            if gradient.is_sparse:
                self._step_rows(name, parameter, gradient.coalesce())
            else:
                dense.append((parameter, gradient, *self._state[name]))
        self._adam(dense)

    def _step_rows(self, name: str, parameter: Tensor, gradient: Tensor) -> None:
        mean, square, steps = self._state[name]
        rows = gradient.indices()[0]
        whole = (parameter, mean, square)
        taken = [tensor.index_select(0, rows) for tensor in whole]
        self._adam([(taken[0], gradient.values(), taken[1], taken[2], steps)])
        for tensor, changed in zip(whole, taken, strict=True):
            tensor.index_copy_(0, rows, changed)

    def _adam(self, tensors: list[tuple[Tensor, ...]]) -> None:
        parameters, gradients, means, squares, steps = map(list, zip(*tensors, strict=True))
        adam(
            parameters,
            gradients,
            means,
            squares,
            [],
            steps,
            fused=True,
            decoupled_weight_decay=self._decoupled,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self._learning_rate,
            weight_decay=self._weight_decay,
            eps=1e-8,
            maximize=False,
        )
