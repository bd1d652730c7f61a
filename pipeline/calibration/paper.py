"""AdaCalib as published: a knot network on discretised posterior statistics, trained on rows.

Wei et al., SIGIR 2022, "Posterior Probability Matters: Doubly-Adaptive Calibration for Neural
Predictions in Online Advertising". Between the bounds b_k(z) of a field value's bins the calibrated logit
is the line from MLP(p_k(z)) to MLP(p_{k+1}(z)); p_k is the bin's response rate and number of
responses, discretised to ids and embedded (its footnote); p_{K+1} are the maxima of both. One such
family per candidate bin count, a Gumbel choice among them by the value's frequency and identity, a
penalty on decreasing knots, and optionally a term of the row's features.

What the paper leaves open is decided thus: statistics and mixture are differentiable only through
the networks; the selected output's loss is added to the objective, since the candidates' losses alone give
the choice no gradient; attention is a log-softmax, noise acts in training only, and each field value
is served by its most attended candidate; knots that still decrease are repaired afterwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from pipeline.calibration.anchor import Anchor, fit_anchor
from pipeline.calibration.auxiliary import AuxiliaryNetwork
from pipeline.calibration.bins import tabulate
from pipeline.calibration.fitting import single_thread
from pipeline.calibration.monotone import increasing
from pipeline.calibration.network import gumbel_weights
from pipeline.calibration.piecewise import PiecewiseLinearMap, from_knots
from pipeline.calibration.tables import BinTable
from pipeline.errors import TrainingError
from pipeline.scores import Scores


@dataclass(frozen=True)
class PaperSettings:
    """How AdaCalib as published is fitted; the first four are the rows of its ablation table.

    Attributes:
        posterior_guidance: knots from statistics; else knots are free parameters, shared by all values.
        adaptive_function: bins of each field value; else bins of all rows together.
        adaptive_binning: a choice among the candidates; else the middle candidate for all values.
        auxiliary: add a network on the row's features, where features are given.
        candidates: bin counts; (5, 10, 20) for conversions, (2, 4, 8) for clicks in the paper.
        levels: ids per discretised statistic.
        embedding_size: numbers per id.
        hidden: units of the knot network.
        epochs: passes over the rows.
        batch_size: rows in a step.
        learning_rate: of Adam, falling to a tenth along a cosine.
        temperatures: of the Gumbel choice, first and last step, > 0.
        min_slope: least slope of the calibrated in the uncalibrated logit, after the repair.
        seed: of initial weights, batches and Gumbel noise.
    """

    posterior_guidance: bool = True
    adaptive_function: bool = True
    adaptive_binning: bool = True
    auxiliary: bool = False
    candidates: tuple[int, ...] = (5, 10, 20)
    levels: int = 64
    embedding_size: int = 8
    hidden: int = 32
    epochs: int = 5
    batch_size: int = 1024
    learning_rate: float = 0.01
    temperatures: tuple[float, float] = (1.0, 0.1)
    min_slope: float = 0.05
    seed: int = 1

    def counts(self) -> tuple[int, ...]:
        """The bin counts that take part."""
        wanted = tuple(sorted(set(self.candidates)))
        return wanted if self.adaptive_binning else (wanted[len(wanted) // 2],)


@dataclass(frozen=True)
class Features:
    """Encoded features of the rows: categorical int32 [n, C], numeric float32 [n, N], ids per column."""

    categorical: np.ndarray
    numeric: np.ndarray
    sizes: tuple[int, ...]

    def take(self, rows: np.ndarray) -> "Features":
        """The rows that a boolean mask or an index array picks."""
        return Features(self.categorical[rows], self.numeric[rows], self.sizes)


@dataclass(frozen=True)
class Family:
    """Bounds and statistics of one candidate bin count, a row per group (field value, or all).

    Attributes:
        bounds: float64 [Z, K + 1], ascending, padded with the last.
        n_bins: int64 [Z], effective bins; 0 for groups without rows.
        impressions: float64 [Z, K].
        statistic: int64 [Z, K + 1], id of the discretised statistics of each knot.
    """

    bounds: np.ndarray
    n_bins: np.ndarray
    impressions: np.ndarray
    statistic: np.ndarray


def _edges(amounts: np.ndarray, levels: int) -> np.ndarray:
    """Inner edges that cut amounts into at most `levels` equally filled ids."""
    return np.unique(np.quantile(amounts, np.arange(1, levels) / levels))


def make_families(
    bins: BinTable, counts: Sequence[int], n_groups: int, levels: int
) -> list[Family]:
    """The families of all candidates; ids of statistics run over (levels + 1)² pairs.

    The last id of each statistic is that of the maximum, which knot K + 1 carries.
    """
    rate_edges = _edges(bins.posterior, levels)
    response_edges = _edges(np.log1p(bins.responses), levels)
    families = []
    for requested in counts:
        table = bins.candidate(requested)
        place = (table.field_value_id, table.bin_id)
        lower = np.full((n_groups, requested + 1), -np.inf)
        lower[place] = table.lower_bound
        lower[table.field_value_id, table.effective_bins] = table.upper_bound
        n_bins = np.zeros(n_groups, dtype=np.int64)
        n_bins[table.field_value_id] = table.effective_bins
        impressions = np.zeros((n_groups, requested))
        impressions[place] = table.impressions
        statistic = np.full((n_groups, requested + 1), (levels + 1) ** 2 - 1)
        rate = np.searchsorted(rate_edges, table.posterior)
        responses = np.searchsorted(response_edges, np.log1p(table.responses))
        statistic[place] = rate * (levels + 1) + responses
        bounds = np.maximum.accumulate(lower, axis=1)
        families.append(Family(bounds, n_bins, impressions, statistic))
    return families


@dataclass(frozen=True)
class Rows:
    """Rows ready for batches; per candidate, in which bin a row lies and where between its bounds.

    Attributes:
        bin_id: int64 [n, candidates].
        share: float32 [n, candidates], 0 at the lower and 1 at the upper bound.
        group: int64 [n].
        impressions, responses: float32 [n].
        categorical, numeric: features, [n, 0] where there are none.
    """

    bin_id: Tensor
    share: Tensor
    group: Tensor
    impressions: Tensor
    responses: Tensor
    categorical: Tensor
    numeric: Tensor

    def take(self, rows: Tensor) -> "Rows":
        """The rows that an index picks."""
        return Rows(
            self.bin_id[rows], self.share[rows], self.group[rows], self.impressions[rows],
            self.responses[rows], self.categorical[rows], self.numeric[rows],
        )  # fmt: skip


def make_rows(
    scores: Scores, group: np.ndarray, families: Sequence[Family], features: Features | None
) -> Rows:
    """The scores' rows with impressions, placed among the bounds of every family."""
    logit = scores.uncalibrated_logit.astype(np.float64)
    bin_ids, shares = [], []
    for family in families:
        bin_id = np.zeros(len(logit), dtype=np.int64)
        for inner in range(1, family.bounds.shape[1] - 1):
            inside = inner < family.n_bins[group]
            bin_id += inside & (logit >= family.bounds[group, inner])
        low, high = family.bounds[group, bin_id], family.bounds[group, bin_id + 1]
        width = np.where(high > low, high - low, 1.0)
        bin_ids.append(bin_id)
        shares.append(np.where(high > low, (logit - low) / width, 0.0))
    none = np.zeros((len(logit), 0))
    rows = Rows(
        torch.from_numpy(np.stack(bin_ids, axis=1)),
        torch.from_numpy(np.stack(shares, axis=1)).float(),
        torch.from_numpy(group.astype(np.int64)),
        torch.from_numpy(scores.impressions.astype(np.float32)),
        torch.from_numpy(scores.responses.astype(np.float32)),
        torch.from_numpy((features.categorical if features else none).astype(np.int64)),
        torch.from_numpy((features.numeric if features else none).astype(np.float32)),
    )
    return rows.take(torch.from_numpy(np.flatnonzero(scores.impressions > 0)))


class StatisticKnots(nn.Module):
    """MLP(p_k): the knot values of one family from embedded discretised statistics."""

    def __init__(self, family: Family, settings: PaperSettings, start: float) -> None:
        super().__init__()
        self.ids: Tensor
        self.register_buffer("ids", torch.from_numpy(family.statistic))
        self.levels = settings.levels + 1
        self.rate = nn.Embedding(self.levels, settings.embedding_size)
        self.responses = nn.Embedding(self.levels, settings.embedding_size)
        self.hidden = nn.Linear(2 * settings.embedding_size, settings.hidden)
        self.last = nn.Linear(settings.hidden, 1)
        nn.init.constant_(self.last.bias, start)

    def forward(self) -> Tensor:
        """Knot values [Z, K + 1]; the network runs once per pair of ids, not once per knot."""
        pair = torch.arange(self.levels**2)
        embedded = [self.rate(pair // self.levels), self.responses(pair % self.levels)]
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
        sizes: tuple[int, ...] | None,
        n_numeric: int,
    ) -> None:
        super().__init__()
        self.knots = nn.ModuleList(
            StatisticKnots(f, settings, start) if settings.posterior_guidance else FreeKnots(f)
            for f in families
        )
        self.frequency: Tensor
        self.register_buffer("frequency", torch.from_numpy(frequency).float()[:, None])
        self.identity = nn.Embedding(len(frequency), settings.embedding_size)
        self.choice = nn.Linear(1 + settings.embedding_size, len(families))
        self.auxiliary = None if sizes is None else AuxiliaryNetwork(list(sizes), n_numeric)

    def log_attention(self) -> Tensor:
        """Log attention [Z, candidates] of every group: MLP_bin(s_z), s_z its frequency and id."""
        known = torch.cat([self.frequency, self.identity.weight], dim=1)
        return functional.log_softmax(self.choice(known), dim=-1)

    def term(self, rows: Rows) -> Tensor:
        """The auxiliary term [B], zero without features."""
        if self.auxiliary is None:
            return torch.zeros(len(rows.group))
        return self.auxiliary(rows.categorical, rows.numeric)


def calibrated(knots: Sequence[Tensor], rows: Rows) -> Tensor:
    """The paper's equation 3 on logits: [B, candidates]."""
    each = []
    for i, values in enumerate(knots):
        low = values[rows.group, rows.bin_id[:, i]]
        high = values[rows.group, rows.bin_id[:, i] + 1]
        each.append(low + rows.share[:, i] * (high - low))
    return torch.stack(each, dim=1)


def penalties(knots: Sequence[Tensor], families: Sequence[Family]) -> Tensor:
    """Σ_k max(knot_k - knot_{k+1}, 0) over a group's bins, [Z, candidates] (the paper's equation 4)."""
    each = []
    for values, family in zip(knots, families, strict=True):
        used = torch.arange(values.shape[1] - 1) < torch.from_numpy(family.n_bins)[:, None]
        each.append(((values[:, :-1] - values[:, 1:]).clamp(min=0) * used).sum(dim=1))
    return torch.stack(each, dim=1)


def _loss(logit: Tensor, rows: Rows) -> Tensor:
    n, y = rows.impressions, rows.responses
    if logit.dim() == 2:
        n, y = n[:, None], y[:, None]
    return n * functional.softplus(logit) - y * logit


def objective(
    network: PaperNetwork, rows: Rows, families: Sequence[Family], weights: Tensor
) -> Tensor:
    """Cross-entropy plus penalty of every candidate, plus cross-entropy of the selected output."""
    knots = [knot() for knot in network.knots]
    logits = calibrated(knots, rows) + network.term(rows)[:, None]
    decreasing = penalties(knots, families)[rows.group] * rows.impressions[:, None]
    probability = (torch.sigmoid(logits) * weights[rows.group]).sum(dim=1)
    probability = probability.clamp(1e-7, 1 - 1e-7)
    n, y = rows.impressions, rows.responses
    selected = -y * probability.log() - (n - y) * torch.log1p(-probability)
    return ((_loss(logits, rows) + decreasing).sum(dim=1) + selected).sum() / n.sum()


def train(
    network: PaperNetwork, rows: Rows, families: Sequence[Family], settings: PaperSettings
) -> None:
    """Mini-batches of rows, `epochs` times over all of them.

    Raises:
        TrainingError: the loss is not finite.
    """
    generator = torch.Generator().manual_seed(settings.seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.learning_rate)
    per_epoch = -(-len(rows.group) // settings.batch_size)
    total = per_epoch * settings.epochs
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, total, settings.learning_rate / 10
    )
    first, last = settings.temperatures
    for step in range(total):
        if step % per_epoch == 0:
            order = torch.randperm(len(rows.group), generator=generator)
        start = step % per_epoch * settings.batch_size
        batch = rows.take(order[start : start + settings.batch_size])
        temperature = first * (last / first) ** (step / total)
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


@dataclass(frozen=True)
class PaperFit:
    """AdaCalib as published, fitted.

    Attributes:
        serving: the map of (logit, field value), repaired to increase.
        auxiliary: the term of the features, to be added to it; None without.
        chosen_bins: int64 [V], the candidate that serves each field value; 0: none of its own.
        moved_knots: knots that the repair moved.
        decreasing: share of neighbouring knots that decreased before the repair.
    """

    serving: PiecewiseLinearMap
    auxiliary: AuxiliaryNetwork | None
    chosen_bins: np.ndarray
    moved_knots: int
    decreasing: float


def fit_paper(
    scores: Scores, settings: PaperSettings, features: Features | None = None
) -> PaperFit:
    """AdaCalib as published, fitted on rows.

    Args:
        scores: the rows whose statistics and labels are used.
        settings: which parts take part, and how they are trained.
        features: of the same rows; needed where `settings.auxiliary` asks for the network on them.

    Raises:
        NotEnoughDataError: no row stands for an impression.
        TrainingError: the loss is not finite.
    """
    counts = settings.counts()
    group = (
        scores.field_value_id
        if settings.adaptive_function
        else np.zeros_like(scores.field_value_id)
    )
    n_groups = scores.n_field_values if settings.adaptive_function else 1
    grouped = replace(scores, field_value_id=group, n_field_values=n_groups)
    with single_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        still = _still(scores)
        bins, _ = tabulate(grouped, counts, int(np.lcm.reduce(counts)))
        families = make_families(bins, counts, n_groups, settings.levels)
        size = np.log1p(np.bincount(group, scores.impressions, n_groups))
        frequency = (size - size.mean()) / max(size.std(), 1e-6)
        rate = (scores.responses.sum() + 0.5) / (scores.impressions.sum() + 1.0)
        used = features if settings.auxiliary else None
        network = PaperNetwork(
            families, frequency, settings, float(np.log(rate / (1 - rate))),
            used.sizes if used else None, used.numeric.shape[1] if used else 0,
        )  # fmt: skip
        train(network, make_rows(scores, group, families, used), families, settings)
        return _compile(network, families, counts, still, settings)


def _still(scores: Scores) -> Anchor:
    """Empirical-Bayes Platt, for the row of unseen values."""
    _, cells = tabulate(scores, (1,), 160)
    counts = (cells.impressions, cells.responses)
    logit = cells.logit_sum / cells.impressions
    return fit_anchor(cells.field_value_id, logit, *counts, scores.n_field_values)


def _compile(
    network: PaperNetwork,
    families: Sequence[Family],
    counts: Sequence[int],
    still: Anchor,
    settings: PaperSettings,
) -> PaperFit:
    """Knots at the bounds of each value's chosen family; a straight anchor where it has no bins.

    Without adaptive function all values share the one curve, the unseen ones too. Beyond the outer
    bounds the correction of the outer knot holds: slope 1.
    """
    with torch.no_grad():
        heights = [knot().double().numpy() for knot in network.knots]
        chosen = network.log_attention().argmax(dim=1).numpy()
    n_values = len(still.offsets)
    knots, values, chosen_bins = [], [], np.zeros(n_values, dtype=np.int64)
    moved, decreasing, pairs = 0, 0, 0
    for z in range(n_values):
        g = z if settings.adaptive_function else 0
        family, height = families[chosen[g]], heights[chosen[g]]
        n = family.n_bins[g]
        if n == 0 or (z == 0 and settings.adaptive_function):
            knots.append(np.array([still.center]))
            values.append(np.array([still.center + still.offsets[z]]))
            continue
        at, first = np.unique(family.bounds[g, : n + 1], return_index=True)
        value = height[g, : n + 1][first]
        weights = np.r_[family.impressions[g, :n], family.impressions[g, n - 1]][first]
        repaired = increasing(at, value, weights, settings.min_slope)
        moved += int((repaired != value).sum())
        decreasing, pairs = decreasing + int((np.diff(value) < 0).sum()), pairs + len(value) - 1
        chosen_bins[z] = counts[chosen[g]]
        knots.append(at)
        values.append(repaired)
    own = np.where(chosen_bins > 0, 1.0, still.slopes)
    serving = from_knots(knots, values, own, own)
    return PaperFit(serving, network.auxiliary, chosen_bins, moved, decreasing / max(pairs, 1))


def fit(scores: Scores, settings: PaperSettings | None = None) -> PiecewiseLinearMap:
    """The map of AdaCalib as published, without the auxiliary network."""
    return fit_paper(scores, settings or PaperSettings()).serving


def predict(fitted: PaperFit, scores: Scores, features: Features | None = None) -> np.ndarray:
    """The calibrated logit, float64 [n], of rows: the map plus the auxiliary term where there is one."""
    logit = fitted.serving(scores.uncalibrated_logit, scores.field_value_id)
    if fitted.auxiliary is None or features is None:
        return logit
    with torch.no_grad():
        term = fitted.auxiliary(
            torch.from_numpy(features.categorical.astype(np.int64)),
            torch.from_numpy(features.numeric.astype(np.float32)),
        )
    return logit + term.double().numpy()
