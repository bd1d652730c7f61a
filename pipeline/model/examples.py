"""Rows to learn from: which days they are of, what was observed, in which order they come."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch

from pipeline.errors import NotEnoughDataError
from pipeline.model.features import Encoder, counts, named, weights
from pipeline.scores import before_sampling


def hold_out(days: Sequence[str], share: float) -> tuple[list[str], list[str]]:
    """The days to fit on, and the newest `share` of them, in whole days, to decide when to stop.

    Args:
        days: training days, ascending.
        share: of the days, rounded up.

    Raises:
        NotEnoughDataError: nothing would be left to fit on.
    """
    held_out = math.ceil(round(share * len(days), 9))
    if held_out >= len(days):
        raise NotEnoughDataError(
            f"held_out_share {share} of {len(days)} training days leaves none to fit on; "
            f"train on more days (split.training_days)"
        )
    return list(days[:-held_out]), list(days[-held_out:])


@dataclass(frozen=True)
class Examples:
    """Encoded rows with what was observed.

    Attributes:
        categorical: int32 [n, C].
        numeric: float32 [n, N].
        impressions: int32 [n]; int64 or float64 where rows have weights.
        responses: likewise, at most impressions.
        numeric_columns: names of the N columns, for messages.
    """

    categorical: np.ndarray
    numeric: np.ndarray
    impressions: np.ndarray
    responses: np.ndarray
    numeric_columns: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.impressions)

    @property
    def arrays(self) -> list[np.ndarray]:
        """Everything that decides what is learned from the rows."""
        return [self.categorical, self.numeric, self.impressions, self.responses]

    @property
    def response_rate(self) -> float:
        """(responses + ½) / (impressions + 1): inside (0, 1) even where nobody responded."""
        return float((self.responses.sum() + 0.5) / (self.impressions.sum() + 1.0))


def examples_of(
    encoder: Encoder,
    days: Mapping[str, pa.Table],
    label: str,
    impressions: str | None,
    weight: str | None = None,
) -> Examples:
    """The rows of `days`, day by day.

    Args:
        encoder: of the features.
        days: day → its rows; one or more.
        label: column with the response, or their number.
        impressions: column with the impressions of a row; None: every row is one.
        weight: column with how often a row counts; None: once.

    Raises:
        DataError: a column is missing or does not hold what it should; the day is named.
    """
    parts = []
    for day, table in days.items():
        with named(day):
            encoded = encoder.encode(table)
            observed = before_sampling(
                *counts(table, label, impressions), weights(table, weight), keep_rate=1.0
            )
        parts.append((encoded.categorical, encoded.numeric, *observed))
    categorical, numeric, shown, responses = map(np.concatenate, zip(*parts, strict=True))
    return Examples(categorical, numeric, shown, responses, tuple(encoder.numeric_columns))


class Batch(NamedTuple):
    """Some examples on the device of the network.

    Attributes:
        rows: int64 [b], their places among the examples, on the CPU.
        categorical: int32 [b, C], some ids replaced by 0.
        numeric: float32 [b, N].
        observed: float32 [b, 2], impressions and responses.
    """

    rows: torch.Tensor
    categorical: torch.Tensor
    numeric: torch.Tensor
    observed: torch.Tensor


class Batches:
    """All examples in mini-batches, in another order each epoch; a batch is three gathers.

    Order and hidden ids follow from the seed and the epoch's number alone, so an epoch is the same
    whether or not the ones before it ran in the same process.

    Args:
        examples: held on the device as a whole.
        device: cpu or cuda.
        batch_size: rows; the last batch of an epoch may have fewer.
        unseen_share: share of ids replaced by 0.
        seed: of orders and hidden ids.
    """

    def __init__(
        self, examples: Examples, device: str, batch_size: int, unseen_share: float, seed: int
    ) -> None:
        observed = np.stack([examples.impressions, examples.responses], axis=1)
        arrays = examples.categorical, examples.numeric, observed.astype(np.float32)
        self._tensors = [torch.from_numpy(array).to(device) for array in arrays]
        self._device, self._batch_size = device, batch_size
        self._unseen_share, self._seed = unseen_share, seed

    def __len__(self) -> int:
        return math.ceil(len(self._tensors[0]) / self._batch_size)

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of an epoch, which has a number from 1."""
        generator = torch.Generator().manual_seed((self._seed * 1_000_003 + number) % 2**63)
        order = torch.randperm(len(self._tensors[0]), generator=generator)
        for rows in order.split(self._batch_size):
            place = rows.to(self._device)
            batch = Batch(rows, *(tensor.index_select(0, place) for tensor in self._tensors))
            self._hide(batch.categorical.view(-1), generator)
            yield batch

    def _hide(self, ids: torch.Tensor, generator: torch.Generator) -> None:
        hidden = round(self._unseen_share * len(ids))
        if hidden:
            places = torch.randint(len(ids), (hidden,), generator=generator)
            ids.index_fill_(0, places.to(self._device), 0)
