"""Mini-batches of a shard: shuffled by block and within, made ahead on a thread of their own."""

import math
from collections.abc import Generator, Iterator
from typing import NamedTuple

import numpy as np
import torch

from pipeline.core.prefetch import prefetched
from pipeline.model.examples import Shard

BLOCK = 8192  # rows that are read together
WINDOW = 128  # blocks that are in memory and shuffled together
PREFETCHED = 8  # batches that are ready before they are asked for


class Batch(NamedTuple):
    """Some examples on the device of the network, or the part of them that one process has.

    Attributes:
        size: number of examples of all parts together.
        rows: int64 [b], their places in the shard, on the CPU.
        categorical: int32 [b, C], some ids replaced by 0.
        numeric: float32 [b, N].
        observed: float32 [b, 2], impressions and responses.
    """

    size: int
    rows: torch.Tensor
    categorical: torch.Tensor
    numeric: torch.Tensor
    observed: torch.Tensor


class Batches:
    """All rows of a shard in mini-batches, in another order each epoch.

    The blocks of the shard are shuffled; WINDOW of them at a time are read, and their rows shuffled
    together. Order and hidden ids follow from the seed and the epoch's number alone, so an epoch is
    the same whether or not the ones before it ran in the same process, and whatever else is busy.
    Where several processes train, the batches are those of one, and each has an even part of every
    batch: what is short of that is filled by its last example, which is then observed 0 times.

    Args:
        shard: of which a window is in memory at a time.
        device: cpu or cuda.
        batch_size: rows; the last batch of a window may have fewer.
        unseen_share: share of ids replaced by 0.
        seed: of orders and hidden ids.
        rank: which part, from 0.
        number: of parts.
    """

    def __init__(
        self,
        shard: Shard,
        device: str,
        batch_size: int,
        unseen_share: float,
        seed: int,
        *,
        rank: int = 0,
        number: int = 1,
    ) -> None:
        self._shard, self._device, self._batch_size = shard, device, batch_size
        self._unseen_share, self._seed = unseen_share, seed
        self._rank, self._number = rank, number

    def __len__(self) -> int:
        windows, rest = divmod(len(self._shard), BLOCK * WINDOW)
        of_window = math.ceil(BLOCK * WINDOW / self._batch_size)
        return windows * of_window + math.ceil(rest / self._batch_size)

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of an epoch, which has a number from 1."""
        return prefetched(self._batches(number), PREFETCHED)

    def _batches(self, number: int) -> Generator[Batch, None, None]:
        generator = torch.Generator().manual_seed((self._seed * 1_000_003 + number) % 2**63)
        for starts in self._windows(number):
            place, *arrays = self._read(starts)
            order = torch.randperm(len(place), generator=generator).numpy()
            for start in range(0, len(order), self._batch_size):
                rows = order[start : start + self._batch_size]
                of_part = math.ceil(len(rows) / self._number)
                first = self._rank * of_part
                part = np.minimum(np.arange(first, first + of_part), len(rows) - 1)
                mine = [array.take(rows[part], axis=0) for array in (place, *arrays)]
                taken = [torch.from_numpy(array) for array in mine]
                hidden = self._hidden((len(rows), taken[1].shape[1]), generator)
                taken[1].masked_fill_(hidden[part], 0)
                taken[3][max(len(rows) - first, 0) :] = 0
                yield Batch(len(rows), taken[0], *(t.to(self._device) for t in taken[1:]))

    def _windows(self, number: int) -> Iterator[np.ndarray]:
        """Where the blocks of each window begin, ascending; a short block is in the last one."""
        whole, rest = divmod(len(self._shard), BLOCK)
        blocks = np.random.default_rng([self._seed, number]).permutation(whole)
        blocks = np.append(blocks, whole) if rest else blocks
        for first in range(0, len(blocks), WINDOW):
            yield np.sort(blocks[first : first + WINDOW]) * BLOCK

    def _read(self, starts: np.ndarray) -> tuple[np.ndarray, ...]:
        """Places of a window's rows in the shard, and copies of its arrays as batches have them."""
        blocks = [self._shard.read(start, BLOCK) for start in starts.tolist()]
        places = [np.arange(s, s + len(b)) for s, b in zip(starts, blocks, strict=True)]
        return (
            np.concatenate(places),
            np.concatenate([block.categorical for block in blocks]),
            np.concatenate([block.numeric for block in blocks]),
            np.concatenate([block.observed for block in blocks]).astype(np.float32),
        )

    def _hidden(self, shape: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
        """Which ids of a whole batch are replaced by 0."""
        hidden = torch.zeros(math.prod(shape), dtype=torch.bool)
        number = round(self._unseen_share * len(hidden))
        if number:
            hidden[torch.randint(len(hidden), (number,), generator=generator)] = True
        return hidden.view(shape)
