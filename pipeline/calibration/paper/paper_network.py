"""AdaCalib as published, its networks and their training on mini-batches of rows.

The auxiliary network: a term of the row's features that is added to the calibrated logit.

The paper's MLP_aux(x) (section 3.1.2, after Neural Calibration): with it the calibrated logit is
map(logit, z) + auxiliary(x), which can improve ranking. Monotone then means: at fixed features.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from pipeline.calibration.adacalib.knot_training import annealed, gumbel_weights
from pipeline.calibration.paper.paper_rows import LEVELS, Family, PaperRows, RowFeatures
from pipeline.calibration.statistics.bins import bears_bins
from pipeline.core.errors import TrainingError

EMBEDDING_SIZE = 8  # numbers per id
HIDDEN = 32  # units of each network


class AuxiliaryNetwork(nn.Module):
    """Embeddings and two fully-connected layers; the last starts at zero, as if not there.

    Args:
        sizes: number of ids of each categorical feature, 0 = unseen or null included.
        n_numeric: number of numeric features.
    """

    def __init__(self, sizes: list[int], n_numeric: int) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList([nn.Embedding(size, EMBEDDING_SIZE) for size in sizes])
        self.hidden = nn.Linear(EMBEDDING_SIZE * len(sizes) + n_numeric, HIDDEN)
        self.last = nn.Linear(HIDDEN, 1)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, categorical: Tensor, numeric: Tensor) -> Tensor:
        """The term [n] of categorical ids int64 [n, C] and standardised numbers float32 [n, N]."""
        embedded = [layer(categorical[:, i]) for i, layer in enumerate(self.embeddings)]
        hidden = functional.relu(self.hidden(torch.cat([*embedded, numeric], dim=1)))
        return self.last(hidden).squeeze(1)


@dataclass(frozen=True)
class PaperSettings:
    """How AdaCalib as published is fitted; the first four are the rows of its ablation table.

    Attributes:
        posterior_guidance: knots from statistics; else each knot is a free parameter.
        adaptive_function: bins of each field value; else bins of all rows together.
        adaptive_binning: a choice among the candidates; else the middle candidate for all values.
        auxiliary: add a network on the row's features, where features are given.
        epochs: passes over the rows.
        least_steps: gradient steps at least; a log of few rows is passed over more often.
        batch_size: rows in a step.
        learning_rate: of Adam, falling to a tenth along a cosine.
        candidates: bin counts; (5, 10, 20) for conversions, (2, 4, 8) for clicks in the paper.
        temperatures: of the Gumbel choice, first and last step, > 0.
        min_slope: least slope of the calibrated in the uncalibrated logit, after the repair.
        min_responses_per_bin: of a field value, for each bin that it may choose.
        seed: of initial weights, batches and Gumbel noise.
    """

    posterior_guidance: bool
    adaptive_function: bool
    adaptive_binning: bool
    auxiliary: bool
    epochs: int
    least_steps: int
    batch_size: int
    learning_rate: float
    candidates: tuple[int, ...]
    temperatures: tuple[float, float]
    min_slope: float
    min_responses_per_bin: int
    seed: int

    def counts(self) -> tuple[int, ...]:
        """The bin counts that take part."""
        wanted = tuple(sorted(set(self.candidates)))
        return wanted if self.adaptive_binning else (wanted[len(wanted) // 2],)


class StatisticKnots(nn.Module):
    """MLP(p_k): the knot values of one family from embedded discretised statistics."""

    def __init__(self, family: Family, start: float) -> None:
        super().__init__()
        self.ids = torch.from_numpy(family.statistic)
        self.rate = nn.Embedding(LEVELS, EMBEDDING_SIZE)
        self.responses = nn.Embedding(LEVELS, EMBEDDING_SIZE)
        self.hidden = nn.Linear(2 * EMBEDDING_SIZE, HIDDEN)
        self.last = nn.Linear(HIDDEN, 1)
        nn.init.constant_(self.last.bias, start)
        with torch.no_grad():  # ids are ordered: neighbours start alike, or the penalty flattens
            for embedding in (self.rate, self.responses):
                embedding.weight.mul_(0.1)[:, 0] = torch.linspace(-2, 2, LEVELS)

    def forward(self) -> Tensor:
        """Knot values [Z, K + 1]; the network runs once per pair of ids, not once per knot."""
        pair = torch.arange(LEVELS**2)
        embedded = [self.rate(pair // LEVELS), self.responses(pair % LEVELS)]
        hidden = functional.relu(self.hidden(torch.cat(embedded, dim=1)))
        return self.last(hidden).squeeze(1)[self.ids]


class FreeKnots(nn.Module):
    """Knot values of one family that are parameters of their own, starting at the identity."""

    def __init__(self, family: Family) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.from_numpy(family.bounds).float().clamp(-30, 30))

    def forward(self) -> Tensor:
        """Knot values [Z, K + 1]."""
        return self.values


class PaperNetwork(nn.Module):
    """All families, the choice among them, and the auxiliary term."""

    def __init__(
        self,
        families: Sequence[Family],
        frequency: np.ndarray,
        settings: PaperSettings,
        start: float,
        features: RowFeatures | None,
    ) -> None:
        super().__init__()
        self.knots = nn.ModuleList(
            StatisticKnots(f, start) if settings.posterior_guidance else FreeKnots(f)
            for f in families
        )
        self.frequency = torch.from_numpy(frequency).float()[:, None]
        borne = bears_bins(families[0].responses, settings.counts(), settings.min_responses_per_bin)
        self.borne = torch.from_numpy(borne)
        self.identity = nn.Embedding(len(frequency), EMBEDDING_SIZE)
        self.choice = nn.Linear(1 + EMBEDDING_SIZE, len(families))
        self.auxiliary = None
        if features is not None:
            self.auxiliary = AuxiliaryNetwork(list(features.sizes), features.numeric.shape[1])

    def log_attention(self) -> Tensor:
        """Log attention [Z, candidates] of every group: MLP_bin(s_z), s_z its frequency and id."""
        known = torch.cat([self.frequency, self.identity.weight], dim=1)
        attention = self.choice(known).masked_fill(~self.borne, -torch.inf)
        return functional.log_softmax(attention, dim=-1)

    def term(self, rows: PaperRows) -> Tensor:
        """The auxiliary term [B], zero without features."""
        if self.auxiliary is None:
            return torch.zeros(len(rows.group))
        return self.auxiliary(rows.categorical, rows.numeric)


def calibrated(knots: Sequence[Tensor], rows: PaperRows) -> Tensor:
    """The paper's equation 3 on logits: [B, candidates]."""
    each = []
    for i, values in enumerate(knots):
        low = values[rows.group, rows.bin_id[:, i]]
        high = values[rows.group, rows.bin_id[:, i] + 1]
        each.append(low + rows.share[:, i] * (high - low))
    return torch.stack(each, dim=1)


def penalties(knots: Sequence[Tensor], families: Sequence[Family]) -> Tensor:
    """Σ_k max(knot_k - knot_{k+1}, 0) over a group's bins, [Z, candidates] (equation 4)."""
    each = []
    for values, family in zip(knots, families, strict=True):
        used = torch.arange(values.shape[1] - 1) < torch.from_numpy(family.n_bins)[:, None]
        each.append(((values[:, :-1] - values[:, 1:]).clamp(min=0) * used).sum(dim=1))
    return torch.stack(each, dim=1)


def objective(
    network: PaperNetwork, rows: PaperRows, families: Sequence[Family], weights: Tensor
) -> Tensor:
    """Cross-entropy plus penalty of every candidate, plus cross-entropy of the selected output."""
    knots = [knot() for knot in network.knots]
    logits = calibrated(knots, rows) + network.term(rows)[:, None]
    decreasing = penalties(knots, families)[rows.group] * rows.impressions[:, None]
    probability = (torch.sigmoid(logits) * weights[rows.group]).sum(dim=1)
    probability = probability.clamp(1e-7, 1 - 1e-7)
    n, y = rows.impressions, rows.responses
    selected = -y * probability.log() - (n - y) * torch.log1p(-probability)
    each = n[:, None] * functional.softplus(logits) - y[:, None] * logits
    return ((each + decreasing).sum(dim=1) + selected).sum() / n.sum()


def train(
    network: PaperNetwork, rows: PaperRows, families: Sequence[Family], settings: PaperSettings
) -> None:
    """Mini-batches of rows, `epochs` times over all of them or more.

    Raises:
        TrainingError: the loss is not finite.
    """
    generator = torch.Generator().manual_seed(settings.seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.learning_rate)
    per_epoch = -(-len(rows.group) // settings.batch_size)
    total = max(per_epoch * settings.epochs, settings.least_steps)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, total, settings.learning_rate / 10
    )
    for step in range(total):
        if step % per_epoch == 0:
            order = torch.randperm(len(rows.group), generator=generator)
        start = step % per_epoch * settings.batch_size
        batch = rows.take(order[start : start + settings.batch_size])
        temperature = annealed(settings.temperatures, step / total)
        weights = gumbel_weights(network.log_attention(), temperature, generator)
        loss = objective(network, batch, families, weights)
        if not torch.isfinite(loss):
            raise TrainingError(
                f"calibrate (variant paper): the loss of step {step} is {loss.item()}; "
                "lower the learning rate"
            )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
