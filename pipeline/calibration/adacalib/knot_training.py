"""Fitting the networks: out of sample in time by the folds, and across field values by groups.

AdaCalib's networks: corrections of knots from evidence, and the choice among bin counts.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

import numpy as np
import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.adamw import adamw

from pipeline.calibration.adacalib.knot_examples import KnotExamples
from pipeline.calibration.choice import standard_error
from pipeline.core.errors import TrainingError
from pipeline.formats.sort_keys import usable_threads


class KnotNetwork(nn.Module):
    """Correction of the anchored logit at a knot, from the evidence of its bin and its field value.

    The last layer starts at zero, so an untrained network is the anchor.
    """

    def __init__(self, n_bin_inputs: int, n_value_inputs: int):
        super().__init__()
        self.of_bin = nn.Linear(n_bin_inputs, 48)
        self.of_value = nn.Linear(n_value_inputs, 48, bias=False)
        self.hidden = nn.Linear(48, 24)
        self.correction = nn.Linear(24, 1)
        nn.init.zeros_(self.correction.weight)
        nn.init.zeros_(self.correction.bias)

    def forward(self, bins: Tensor, value: Tensor) -> Tensor:
        """Corrections [..., K] of bins [..., K, n_bin_inputs] of values [..., n_value_inputs]."""
        first = functional.silu(self.of_bin(bins) + self.of_value(value).unsqueeze(-2))
        return self.correction(functional.silu(self.hidden(first))).squeeze(-1)


class BinChoice(nn.Module):
    """Attention logits over the candidate bin counts, from the field value's evidence."""

    def __init__(self, n_value_inputs: int, n_candidates: int):
        super().__init__()
        self.hidden = nn.Linear(n_value_inputs, 16)
        self.attention = nn.Linear(16, n_candidates)
        nn.init.zeros_(self.attention.weight)
        nn.init.zeros_(self.attention.bias)

    def forward(self, value: Tensor, borne: Tensor) -> Tensor:
        """Log attention [..., n_candidates], of values and of the candidates that they may choose.

        The others' (bool `borne` [..., n_candidates] is false) is -inf.
        """
        hidden = functional.silu(self.hidden(value))
        attention = self.attention(hidden).masked_fill(~borne, -torch.inf)
        return functional.log_softmax(attention, dim=-1)


def annealed(temperatures: tuple[float, float], share: float) -> float:
    """The temperature after a share of the steps, from the first to the last geometrically."""
    first, last = temperatures
    return float(first * (last / first) ** share)


def gumbel_weights(log_attention: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    """Gumbel-softmax weights over the last axis (Jang et al. 2017; the paper's section 3.2).

    The noise -ln(-ln u) is made of exponential draws, which are never zero, so no logarithm of
    zero is taken; the temperature divides what the greatest lies above the others, so that it may
    be as small as a number above zero can be.
    """
    noise = torch.empty_like(log_attention).exponential_(generator=generator)
    noise = -noise.clamp(min=torch.finfo(noise.dtype).tiny).log()
    noisy = log_attention + noise
    below = noisy - noisy.amax(dim=-1, keepdim=True)
    return functional.softmax(below / max(temperature, torch.finfo(noise.dtype).tiny), dim=-1)


class Head(nn.Module):
    """The knot network and the choice among candidates, fitted together.

    The level of a field value is the anchor's: corrections are taken about their mean over the
    value's expected responses, so that they change a curve's shape, not its level.
    """

    def __init__(self, n_bin_inputs: int, n_value_inputs: int, requested_bins: Sequence[int]):
        super().__init__()
        self.knots = KnotNetwork(n_bin_inputs, n_value_inputs)
        self.choice = BinChoice(n_value_inputs, len(requested_bins))
        blocks = torch.block_diag(*(torch.ones(bins, bins) for bins in requested_bins))
        self.register_buffer("same_candidate", blocks)  # [J, J], of the knots side by side

    def at_knots(self, bins: Tensor, shares: Tensor, value: Tensor) -> Tensor:
        """Corrections [S, J] at the knots of all candidates; the arguments as in `KnotExamples`."""
        raw = self.knots(bins, value)
        return raw - (shares * raw) @ self.get_buffer("same_candidate")

    def corrections(self, examples: KnotExamples) -> Tensor:
        """Corrections of the target cells under each candidate, [S, C, n_candidates]."""
        at_knots = self.at_knots(examples.bins, examples.shares, examples.value)
        left = examples.left.flatten(1)
        start = at_knots.gather(1, left)
        end = at_knots.gather(1, (left + 1).clamp(max=at_knots.shape[1] - 1))
        between = start + examples.share.flatten(1) * (end - start)
        return between.view_as(examples.share)

    def chosen_correction(self, examples: KnotExamples) -> Tensor:
        """Correction [S, C] under the candidate each field value chooses, without randomness."""
        with torch.no_grad():
            best = self.choice(examples.value, examples.borne).argmax(dim=-1)
            each = self.corrections(examples)
            return each.gather(2, best[:, None, None].expand(-1, each.shape[1], 1)).squeeze(-1)


GROUPS = 2  # groups of field values, each predicted by the network of the others
CHECKPOINTS = 8  # times at which a fit may be stopped
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the correction; the out-of-sample loss chooses one
BATCH = 256  # (fold, field value) pairs in a step
MEMORY = 0.97  # of the running mean of weights, which is what is used

_drawing = Lock()  # of initial weights, which torch draws from one generator for all threads


@contextmanager
def single_thread() -> Iterator[None]:
    """Run linear algebra on one thread, so that sums come out the same everywhere."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(threads)


def log_loss(examples: KnotExamples, correction: Tensor) -> Tensor:
    """Summed log-loss [S, …] of the target cells at anchored logit + correction [S, C, …]."""
    n, y, anchored = examples.impressions, examples.responses, examples.anchored
    if correction.dim() == 3:
        n, y, anchored = n[..., None], y[..., None], anchored[..., None]
    logit = anchored + correction
    return (n * functional.softplus(logit) - y * logit).sum(dim=1)


class FitSettings(Protocol):
    """How AdaCalib is fitted: the section calibrate of params.yaml, or the notebooks' estimator.

    Attributes:
        steps: gradient steps of the network at most.
        learning_rate: of AdamW.
        weight_decay: of AdamW.
        temperatures: of the Gumbel choice, first and last step, > 0.
        min_slope: least slope of the calibrated in the uncalibrated logit.
        min_responses_per_bin: of a field value, for each bin that it may choose.
        seed: of initial weights, batches and Gumbel noise.
    """

    steps: int
    learning_rate: float
    weight_decay: float
    temperatures: tuple[float, float]
    min_slope: float
    min_responses_per_bin: int
    seed: int


def objective(head: Head, batch: KnotExamples, weights: Tensor) -> Tensor:
    """Log-loss per impression of every candidate plus that of the selected output.

    The paper sums the candidates' losses only, which gives the choice no gradient; the last term
    does.
    """
    corrections = head.corrections(batch)
    selected = (corrections * weights[:, None, :]).sum(dim=-1)
    each = log_loss(batch, corrections).mean(dim=-1)
    return (each + log_loss(batch, selected)).sum() / batch.impressions.sum()


def _head(examples: KnotExamples) -> Head:
    return Head(examples.bins.shape[-1], examples.value.shape[-1], examples.requested_bins)


def _average(mean: Head, head: Head, memory: float) -> None:
    with torch.no_grad():
        for kept, new in zip(mean.parameters(), head.parameters(), strict=True):
            kept.lerp_(new, 1.0 - memory)


def train(examples: KnotExamples, settings: FitSettings, seed: int) -> Iterator[Head]:
    """Fit a head by mini-batches of field values and yield its running mean at every checkpoint.

    Raises:
        TrainingError: the loss is not finite.
    """
    generator = torch.Generator().manual_seed(seed)
    with _drawing, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = _head(examples)
    mean = deepcopy(head)
    weights: list[Tensor] = list(head.parameters())
    means, squares = ([torch.zeros_like(weight) for weight in weights] for _ in range(2))
    counts = [torch.zeros(()) for _ in weights]
    for step in range(1, settings.steps + 1):
        rows = torch.randperm(len(examples), generator=generator)[:BATCH]
        batch = examples.take(rows)
        temperature = annealed(settings.temperatures, step / settings.steps)
        attention = head.choice(batch.value, batch.borne)
        shares = gumbel_weights(attention, temperature, generator)
        loss = objective(head, batch, shares)
        if not torch.isfinite(loss):
            raise TrainingError(
                f"calibrate: the loss of step {step} is {loss.item()}; "
                "lower calibrate.learning_rate"
            )
        gradients = list(torch.autograd.grad(loss, weights))
        with torch.no_grad():  # torch's optimizer classes would load its compiler first
            adamw(
                weights, gradients, means, squares, [], counts,
                fused=True, amsgrad=False, beta1=0.9, beta2=0.999, lr=settings.learning_rate,
                weight_decay=settings.weight_decay, eps=1e-8, maximize=False,
            )  # fmt: skip
        _average(mean, head, min(MEMORY, step / (step + 10)))
        if step % max(settings.steps // CHECKPOINTS, 1) == 0:
            yield mean


@dataclass(frozen=True)
class Heads:
    """The fitted heads, one for each group of field values left out, and how far to trust them.

    Attributes:
        heads: to be averaged; head g has not seen the field values whose id modulo their number is
            g.
        share: λ, how much of the correction is kept.
        checkpoint: share of the steps after which the fits were stopped.
    """

    heads: list[Head]
    share: float
    checkpoint: float


def fit_heads(examples: KnotExamples, settings: FitSettings) -> Heads:
    """Heads fitted on all groups of field values but one, stopped and weighed by the one left out.

    Field values are exchangeable, so a head's loss on values it never saw, in folds whose history
    ends before their target, is what it will cost on fresh counts. Stop and λ are the same for all
    heads.
    """
    n_groups = len((examples.field_value_id % GROUPS).unique())
    if n_groups == 0:
        return Heads([_head(examples)], 0.0, 0.0)
    group = examples.field_value_id % n_groups

    def checkpoints_without(left_out: int) -> list[Head]:
        rows = torch.nonzero((group != left_out) | (n_groups == 1)).squeeze(1)
        fit = train(examples.take(rows), settings, settings.seed + left_out)
        return [deepcopy(head) for head in fit]

    with ThreadPoolExecutor(usable_threads()) as pool:  # a fit has draws and sums of its own
        fits = list(pool.map(checkpoints_without, range(n_groups)))
    corrections = torch.zeros(len(fits[0]), *examples.anchored.shape)
    for left_out, checkpoints in enumerate(fits):
        rows = torch.nonzero(group == left_out).squeeze(1)
        outside = examples.take(rows)
        for stop, head in enumerate(checkpoints):
            corrections[stop, rows] = head.chosen_correction(outside)
    stop, share = _best(examples, corrections)
    return Heads(
        [checkpoints[stop] for checkpoints in fits],
        SHARES[share],
        (stop + 1) / len(fits[0]),
    )


def _best(examples: KnotExamples, corrections: Tensor) -> tuple[int, int]:
    """Checkpoint and share of least held-out loss; share 0 where the gain is not sure."""
    each = torch.stack(
        [torch.stack([log_loss(examples, s * c).double() for s in SHARES]) for c in corrections]
    )
    stop, share = divmod(int(each.sum(dim=-1).argmin()), len(SHARES))
    shape = (int(examples.fold.max()) + 1, int(examples.field_value_id.max()) + 1)
    gain, impressions = np.zeros(shape), np.zeros(shape)
    place = (examples.fold.numpy(), examples.field_value_id.numpy())
    gain[place] = (each[stop, 0] - each[stop, share]).numpy()
    impressions[place] = examples.impressions.double().sum(dim=1).numpy()
    sure = gain.sum() > impressions.sum() * standard_error(gain, impressions)
    return stop, share if sure else 0
