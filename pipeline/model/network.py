"""The base network: embeddings and standardised numbers into four fully-connected layers.

Adam of the base network: torch's own, and row-wise steps for embeddings that are mostly idle.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from pipeline.core.errors import ArtifactError

LOGGED = "served"  # kind of a network that passes on the logged score
EMBEDDING_SPREAD = 0.1  # standard deviation of an embedding before training


class BaseNetwork(nn.Module):
    """logit = L₄(relu L₃(relu L₂(relu L₁([e₁(id₁), …, e_C(id_C), numbers])))), not calibrated.

    The paper's base model is a stack of four fully-connected layers; `hidden_sizes` has the first
    three. All embeddings lie in one matrix, those of a feature below those of the one before, so
    that a batch is one gather.

    Args:
        vocabulary_sizes: number of ids of each of C categorical features, the id 0 included.
        n_numeric: number N of numeric columns.
        embedding_size: numbers per id.
        hidden_sizes: units of the layers before the last, which has one.
    """

    first_row: torch.Tensor

    def __init__(
        self,
        vocabulary_sizes: Sequence[int],
        n_numeric: int,
        embedding_size: int,
        hidden_sizes: Sequence[int],
    ) -> None:
        super().__init__()
        first_row = [sum(vocabulary_sizes[:i]) for i in range(len(vocabulary_sizes))]
        self.register_buffer("first_row", torch.tensor(first_row, dtype=torch.int64), False)
        self.embedding = nn.Embedding(sum(vocabulary_sizes), embedding_size)
        widths = [len(vocabulary_sizes) * embedding_size + n_numeric, *hidden_sizes]
        layers: list[nn.Module] = []
        for inputs, units in pairwise(widths):
            layers += [nn.Linear(inputs, units), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], 1))

    def forward(self, categorical: torch.Tensor, numeric: torch.Tensor) -> torch.Tensor:
        """The uncalibrated logit of every row: float32 [n], log-odds.

        Args:
            categorical: int64 or int32 [n, C], ids; 0 = unseen or null.
            numeric: float32 [n, N], standardised.
        """
        embedded = self.embedding(categorical + self.first_row).flatten(1)
        return self.layers(torch.cat([embedded, numeric], dim=1)).squeeze(1)


class LoggedScoreNetwork(nn.Module):
    """logit = the one numeric column, which is the logged logit; there are no weights."""

    def forward(self, categorical: torch.Tensor, numeric: torch.Tensor) -> torch.Tensor:
        """The uncalibrated logit of every row: float32 [n], log-odds.

        Args:
            categorical: int64 or int32 [n, 0].
            numeric: float32 [n, 1].
        """
        return numeric.squeeze(1)


Network: TypeAlias = BaseNetwork | LoggedScoreNetwork


def network_from(sizes: Mapping[str, Any]) -> Network:
    """The network whose sizes a manifest holds under `network`; its weights are to be loaded."""
    if sizes.get("kind") == LOGGED:
        return LoggedScoreNetwork()
    return BaseNetwork(
        sizes["vocabulary_sizes"],
        sizes["n_numeric"],
        sizes["embedding_size"],
        sizes["hidden_sizes"],
    )


@torch.no_grad()
def initialise(network: BaseNetwork, seed: int, response_rate: float) -> None:
    """Draw the weights from which training starts; same seed, same weights.

    Layers are uniform in ±1/√inputs. Embeddings are small and random, those of the id 0 zero: what
    is not known says nothing until training says otherwise. The last layer's bias is the log-odds
    of the response rate, so that the first steps are not spent on finding it.

    Args:
        network: changed in place.
        seed: of the draw.
        response_rate: in (0, 1).
    """
    generator = torch.Generator().manual_seed(seed)
    network.embedding.weight.normal_(0.0, EMBEDDING_SPREAD, generator=generator)
    network.embedding.weight[network.first_row] = 0.0
    linear = [layer for layer in network.layers if isinstance(layer, nn.Linear)]
    for layer in linear:
        bound = layer.in_features**-0.5
        layer.weight.uniform_(-bound, bound, generator=generator)
        layer.bias.uniform_(-bound, bound, generator=generator)
    linear[-1].bias.fill_(math.log(response_rate / (1.0 - response_rate)))


def fill(network: nn.Module, tensors: Mapping[str, torch.Tensor], place: Path) -> None:
    """Give a network its weights.

    Args:
        network: of any kind.
        tensors: by the names that the network gives them.
        place: where they were read, for the sentence.

    Raises:
        ArtifactError: a tensor is missing, has another shape, or is not the network's.
    """
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise ArtifactError(f"{place} has other weights: {reason}; run dvc repro") from None


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
