"""Mini-batches of a shard: shuffled by block and within, made ahead on a thread of their own."""

import math
from collections.abc import Generator, Iterator
from typing import NamedTuple

import numpy as np
import torch

from pipeline.core.prefetch import prefetched
from pipeline.model.examples import Shard
from pipeline.model.ranks import Ranks

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
    Processes that train together have the batches of one, and each an even part of every batch:
    what is short of that is filled by the last example, which is then observed 0 times.

    Args:
        shard: of which a window is in memory at a time.
        ranks: this process among those that train together, and its device.
        batch_size: rows; the last batch of a window may have fewer.
        unseen_share: share of ids replaced by 0.
        seed: of orders and hidden ids.
    """

    def __init__(
        self, shard: Shard, ranks: Ranks, batch_size: int, unseen_share: float, seed: int
    ) -> None:
        self.shard, self.ranks, self._batch_size = shard, ranks, batch_size
        self._unseen_share, self._seed = unseen_share, seed

    def __len__(self) -> int:
        windows, rest = divmod(len(self.shard), BLOCK * WINDOW)
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
                of_part = math.ceil(len(rows) / self.ranks.number)
                first = of_part * self.ranks.rank
                part = torch.arange(first, first + of_part).clamp_(max=len(rows) - 1)
                mine = rows[part.numpy()]
                taken = [torch.from_numpy(array.take(mine, axis=0)) for array in (place, *arrays)]
                taken[1].masked_fill_(self._hidden(len(rows), generator).index_select(0, part), 0)
                taken[3][max(len(rows) - first, 0) :] = 0
                yield Batch(len(rows), taken[0], *(t.to(self.ranks.device) for t in taken[1:]))

    def _windows(self, number: int) -> Iterator[np.ndarray]:
        """Where the blocks of each window begin, ascending; a short block is in the last one."""
        whole, rest = divmod(len(self.shard), BLOCK)
        blocks = np.random.default_rng([self._seed, number]).permutation(whole)
        blocks = np.append(blocks, whole) if rest else blocks
        for first in range(0, len(blocks), WINDOW):
            yield np.sort(blocks[first : first + WINDOW]) * BLOCK

    def _read(self, starts: np.ndarray) -> tuple[np.ndarray, ...]:
        """Places of a window's rows in the shard, and copies of its arrays as batches have them."""
        blocks = [self.shard.read(start, BLOCK) for start in starts.tolist()]
        places = [np.arange(s, s + len(b)) for s, b in zip(starts, blocks, strict=True)]
        return (
            np.concatenate(places),
            np.concatenate([block.categorical for block in blocks]),
            np.concatenate([block.numeric for block in blocks]),
            np.concatenate([block.observed for block in blocks]).astype(np.float32),
        )

    def _hidden(self, rows: int, generator: torch.Generator) -> torch.Tensor:
        """Which ids of a whole batch are replaced by 0: bool [rows, C]."""
        hidden = torch.zeros(rows * self.shard.widths["categorical"], dtype=torch.bool)
        number = round(self._unseen_share * len(hidden))
        if number:
            places = torch.randint(len(hidden), (number,), generator=generator)
            hidden.index_fill_(0, places, True)
        return hidden.view(rows, -1)
