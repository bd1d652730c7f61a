"""Neural calibration, NeuCalib (Pan, Ao, Tang, Lu, Liu, Xiao & He 2020).

calibrated_logit = line(logit) + auxiliary(field value): an isotonic line-plot over ten
equal-frequency bins, shared by all, plus a field-aware network. Of the rows' features the network
reads the field value, so that the map stays a function of (logit, field value).
"""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.baselines.rows import global_bins
from pipeline.calibration.adacalib.knot_training import single_thread
from pipeline.calibration.paper.paper_rows import merged, response_rate
from pipeline.formats.maps import PiecewiseLinearMap, from_knots
from pipeline.formats.scores import Scores

BINS = 10  # as in the paper's experiments
EMBEDDING = 8
HIDDEN = 16
BATCH = 256  # rows at least
STEPS = 500  # batches in an epoch at most
EPOCHS = 30  # at most
PATIENCE = 3  # epochs without a gain on held-out rows
LEARNING_RATE = 0.003
WEIGHT_DECAY = 1e-4
UNSEEN_SHARE = 0.05  # of the rows of a batch that train the unseen value's row
SEED = 1


class NeuCalib(nn.Module):
    """The line-plot and the auxiliary network; before training it is the identity.

    Args:
        bounds: float64 [K + 1], ascending logits.
        n_field_values: number of ids.
    """

    def __init__(self, bounds: np.ndarray, n_field_values: int):
        super().__init__()
        self.bounds = torch.tensor(bounds, dtype=torch.float32)
        self.start = nn.Parameter(self.bounds[0].clone())
        one = float(np.log(np.expm1(1.0)))  # softplus(one) = 1
        self.raw_slopes = nn.Parameter(torch.full((len(bounds) - 1,), one))
        self.embedding = nn.Embedding(n_field_values, EMBEDDING)
        self.hidden, self.last = nn.Linear(EMBEDDING, HIDDEN), nn.Linear(HIDDEN, 1)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def auxiliary(self, field_value_id: Tensor) -> Tensor:
        """The logit [n] that the network adds at each field value id."""
        return self.last(functional.relu(self.hidden(self.embedding(field_value_id)))).squeeze(-1)

    def forward(self, logit: Tensor, field_value_id: Tensor) -> Tensor:
        """The calibrated logit [n]; beyond the outer bounds the outer slopes go on."""
        slopes = functional.softplus(self.raw_slopes)
        low, high = self.bounds[:-1].clone(), self.bounds[1:].clone()
        low[0], high[-1] = -torch.inf, torch.inf
        inside = torch.minimum(torch.maximum(logit[:, None], low), high)
        anchored = inside - torch.cat([self.bounds[:1], low[1:]])
        return self.start + anchored @ slopes + self.auxiliary(field_value_id)

    def as_map(self) -> PiecewiseLinearMap:
        """The same function: the line's knots, shifted by each field value's auxiliary logit."""
        with torch.no_grad():
            every = torch.arange(self.embedding.num_embeddings)
            shifts = self.auxiliary(every).double().numpy()
            slopes = functional.softplus(self.raw_slopes).double().numpy()
            start = float(self.start)
        knots = self.bounds[:-1].double().numpy()
        line = start + np.append(0.0, np.cumsum(slopes[:-1] * np.diff(knots)))
        left, right = (np.full(len(shifts), slope) for slope in (slopes[0], slopes[-1]))
        return from_knots([knots] * len(shifts), list(line + shifts[:, None]), left, right)


class _TrainingRows:
    """Calibration rows as tensors; a row weighs what its impressions do."""

    def __init__(self, scores: Scores):
        columns = (scores.uncalibrated_logit, scores.impressions, scores.responses)
        self.logit, self.impressions, self.responses = (
            torch.tensor(column, dtype=torch.float32) for column in columns
        )
        self.field_value_id = torch.tensor(scores.field_value_id, dtype=torch.int64)

    def loss(self, model: NeuCalib, rows: Tensor, unseen: Tensor | None = None) -> Tensor:
        """Summed log-loss of the picked rows, those marked as `unseen` under the id 0."""
        ids = self.field_value_id[rows]
        ids = ids if unseen is None else ids.masked_fill(unseen, 0)
        logit = model(self.logit[rows], ids)
        misses = self.impressions[rows] - self.responses[rows]
        hits = self.responses[rows] * functional.softplus(-logit)
        return (hits + misses * functional.softplus(logit)).sum()


def _train(
    model: NeuCalib, rows: _TrainingRows, training: Tensor, held_out: Tensor, epochs: int
) -> int:
    """Fit by mini-batches until the held-out loss stops falling; returns the best epoch."""
    generator = torch.Generator().manual_seed(SEED)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    size = max(BATCH, len(training) // STEPS)
    scale = len(training) / float(rows.impressions[training].sum()) / size
    best, best_loss = 0, float("inf")
    for epoch in range(1, epochs + 1):
        for batch in training[torch.randperm(len(training), generator=generator)].split(size):
            unseen = torch.rand(len(batch), generator=generator) < UNSEEN_SHARE
            optimizer.zero_grad()
            (scale * rows.loss(model, batch, unseen)).backward()
            optimizer.step()
        with torch.no_grad():
            loss = float(rows.loss(model, held_out)) if len(held_out) else -epoch
        if loss < best_loss:
            best, best_loss = epoch, loss
        if epoch >= best + PATIENCE:
            break
    return best


def _new_model(scores: Scores) -> NeuCalib:
    bins = global_bins(scores, BINS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        bounds = np.append(bins.lower_bound, bins.upper_bound[-1])
        return NeuCalib(bounds, scores.n_field_values)


def neucalib(scores: Scores) -> PiecewiseLinearMap:
    """The network trained for as many epochs as were best for the last tenth of rows by day.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    response_rate(scores)  # refuses scores without impressions
    scores = merged(scores)
    rows = _TrainingRows(scores)
    by_day = torch.from_numpy(np.argsort(scores.day, kind="stable"))
    cut = max(len(by_day) - max(len(by_day) // 10, 1), 1)
    with single_thread():
        epochs = _train(_new_model(scores), rows, by_day[:cut], by_day[cut:], EPOCHS)
        model = _new_model(scores)
        _train(model, rows, by_day, by_day[:0], epochs)
    return model.as_map()
