"""AdamW without `torch.optim.Optimizer`, whose constructor imports a compiler for two seconds."""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.optim.adam import adam


class AdamW:
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019); torch.optim.AdamW's own steps.

    The arithmetic is torch's, bit for bit; only the class around it is not.
    """

    def __init__(
        self, parameters: Iterable[Tensor], learning_rate: float, weight_decay: float
    ) -> None:
        """Start with no memory of gradients.

        Args:
            parameters: float tensors that ask for gradients; changed in place by `step`.
            learning_rate: > 0.
            weight_decay: share of a parameter taken off at each step, per unit of learning rate.
        """
        self.parameters = list(parameters)
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self._mean = [torch.zeros_like(p) for p in self.parameters]
        self._square = [torch.zeros_like(p) for p in self.parameters]
        self._steps = [torch.tensor(0.0) for _ in self.parameters]

    @torch.no_grad()
    def step(self, gradients: list[Tensor]) -> None:
        """Change the parameters by one step down these gradients, one for each parameter."""
        adam(
            self.parameters,
            gradients,
            self._mean,
            self._square,
            [],
            self._steps,
            decoupled_weight_decay=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self.learning_rate,
            weight_decay=self.weight_decay,
            eps=1e-8,
            maximize=False,
        )
