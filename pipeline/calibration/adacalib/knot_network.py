"""AdaCalib's networks: corrections of knots from evidence, and the choice among bin counts."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipeline.calibration.adacalib.knot_examples import KnotExamples


class KnotNetwork(nn.Module):
    """Correction of the anchored logit at a knot, from the evidence of its bin and its field value.

    The last layer starts at zero, so an untrained network is the anchor.
    """

    def __init__(self, n_bin_inputs: int, n_value_inputs: int, hidden: tuple[int, int] = (48, 24)):
        super().__init__()
        self.of_bin = nn.Linear(n_bin_inputs, hidden[0])
        self.of_value = nn.Linear(n_value_inputs, hidden[0], bias=False)
        self.hidden = nn.Linear(*hidden)
        self.correction = nn.Linear(hidden[1], 1)
        nn.init.zeros_(self.correction.weight)
        nn.init.zeros_(self.correction.bias)

    def forward(self, bins: Tensor, value: Tensor) -> Tensor:
        """Corrections [..., K] of bins [..., K, n_bin_inputs] of values [..., n_value_inputs]."""
        first = functional.silu(self.of_bin(bins) + self.of_value(value).unsqueeze(-2))
        return self.correction(functional.silu(self.hidden(first))).squeeze(-1)


class BinChoice(nn.Module):
    """Attention logits over the candidate bin counts, from the field value's evidence."""

    def __init__(self, n_value_inputs: int, n_candidates: int, hidden: int = 16):
        super().__init__()
        self.hidden = nn.Linear(n_value_inputs, hidden)
        self.attention = nn.Linear(hidden, n_candidates)
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
