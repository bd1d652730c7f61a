"""The auxiliary network: a term of the row's features that is added to the calibrated logit.

The paper's MLP_aux(x) (section 3.1.2, after Neural Calibration): with it the calibrated logit is
map(logit, z) + auxiliary(x), which can improve ranking. Monotone then means: at fixed features.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class AuxiliaryNetwork(nn.Module):
    """Embeddings and two fully-connected layers; the last starts at zero, as if not there.

    Args:
        sizes: number of ids of each categorical feature, 0 = unseen or null included.
        n_numeric: number of numeric features.
        embedding_size: numbers per categorical value.
        hidden: units of the hidden layer.
    """

    def __init__(
        self, sizes: list[int], n_numeric: int, embedding_size: int = 8, hidden: int = 32
    ) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList([nn.Embedding(size, embedding_size) for size in sizes])
        self.hidden = nn.Linear(embedding_size * len(sizes) + n_numeric, hidden)
        self.last = nn.Linear(hidden, 1)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, categorical: Tensor, numeric: Tensor) -> Tensor:
        """The term [n] of categorical ids int64 [n, C] and standardised numbers float32 [n, N]."""
        embedded = [layer(categorical[:, i]) for i, layer in enumerate(self.embeddings)]
        hidden = functional.relu(self.hidden(torch.cat([*embedded, numeric], dim=1)))
        return self.last(hidden).squeeze(1)
