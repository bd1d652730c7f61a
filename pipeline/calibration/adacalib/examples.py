"""Examples for the networks: what a fold knew of a field value, and the cells that came after."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pipeline.calibration.adacalib.features import Evidence, Grid, Target, interpolation


@dataclass(frozen=True)
class Examples:
    """(fold, field value) pairs: what was known of the value and the cells that came after.

    Attributes:
        bins: per candidate, float32 [S, K, n_bin_inputs], standardised.
        shares: per candidate, float32 [S, K], shares of the value's expected responses.
        left: per candidate, int64 [S, C], the knot at the left of each target cell.
        share: per candidate, float32 [S, C], share of the way to the next knot.
        value: float32 [S, n_value_inputs], standardised.
        impressions: float32 [S, C].
        responses: float32 [S, C].
        anchored: float32 [S, C], anchored logit.
        fold: int64 [S].
        field_value_id: int64 [S].
    """

    bins: tuple[Tensor, ...]
    shares: tuple[Tensor, ...]
    left: tuple[Tensor, ...]
    share: tuple[Tensor, ...]
    value: Tensor
    impressions: Tensor
    responses: Tensor
    anchored: Tensor
    fold: Tensor
    field_value_id: Tensor

    def __len__(self) -> int:
        return len(self.value)

    def take(self, rows: Tensor) -> "Examples":
        """The pairs that an index picks."""
        return Examples(
            tuple(each[rows] for each in self.bins),
            tuple(each[rows] for each in self.shares),
            tuple(each[rows] for each in self.left),
            tuple(each[rows] for each in self.share),
            self.value[rows],
            self.impressions[rows],
            self.responses[rows],
            self.anchored[rows],
            self.fold[rows],
            self.field_value_id[rows],
        )


def _concatenate(parts: Sequence[Examples]) -> Examples:
    def of_candidates(name: str) -> tuple[Tensor, ...]:
        columns = zip(*(getattr(part, name) for part in parts), strict=True)
        return tuple(torch.cat(column) for column in columns)

    def of_all(name: str) -> Tensor:
        return torch.cat([getattr(part, name) for part in parts])

    return Examples(
        of_candidates("bins"),
        of_candidates("shares"),
        of_candidates("left"),
        of_candidates("share"),
        of_all("value"),
        of_all("impressions"),
        of_all("responses"),
        of_all("anchored"),
        of_all("fold"),
        of_all("field_value_id"),
    )


@dataclass(frozen=True)
class Scale:
    """Mean and spread of the inputs over all examples, as they are fed to the networks."""

    bins: tuple[np.ndarray, np.ndarray]
    value: tuple[np.ndarray, np.ndarray]

    def __call__(self, found: Evidence) -> tuple[tuple[Tensor, ...], Tensor]:
        """Standardised inputs: per candidate [V, K, n_bin_inputs], and [V, n_value_inputs]."""
        bins = tuple(torch.from_numpy((b - self.bins[0]) / self.bins[1]) for b in found.bins)
        return bins, torch.from_numpy((found.value - self.value[0]) / self.value[1])


def _moments(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    flat = array.reshape(-1, array.shape[-1]).astype(np.float64)
    if len(flat) == 0:  # all rows are of unseen or null field values
        flat = np.zeros((1, array.shape[-1]))
    mean, spread = flat.mean(axis=0), flat.std(axis=0)
    return mean.astype(np.float32), np.where(spread > 1e-6, spread, 1.0).astype(np.float32)


def make_scale(found: Sequence[Evidence], live: np.ndarray) -> Scale:
    """The scale of the live field values' inputs over all folds."""
    bins = np.concatenate([b[live].reshape(-1, b.shape[-1]) for e in found for b in e.bins])
    return Scale(_moments(bins), _moments(np.concatenate([e.value[live] for e in found])))


def make_examples(
    grid: Grid, found: Sequence[Evidence], targets: Sequence[Target], scale: Scale
) -> Examples:
    """All (fold, field value) pairs with something to predict, fold by fold, values ascending."""
    parts = []
    for fold, (known, later) in enumerate(zip(found, targets, strict=True)):
        rows = torch.from_numpy(np.flatnonzero(grid.live & (later.impressions.sum(axis=1) > 0)))
        places = [interpolation(knots, later.logit) for knots in grid.candidates]
        bins, value = scale(known)
        everything = Examples(
            bins,
            tuple(torch.from_numpy(share) for share in known.shares),
            tuple(torch.from_numpy(left) for left, _ in places),
            tuple(torch.from_numpy(share) for _, share in places),
            value,
            torch.from_numpy(later.impressions),
            torch.from_numpy(later.responses),
            torch.from_numpy(later.anchored),
            torch.full((grid.n_field_values,), fold),
            torch.arange(grid.n_field_values),
        )
        parts.append(everything.take(rows))
    return _concatenate(parts)
