"""Rows to learn from: which days they are of, what was observed, and their shards on disk.

Mini-batches of a shard: shuffled by block and within, made ahead on a thread of their own.
"""

import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch

from pipeline.core.errors import NotEnoughDataError
from pipeline.core.files import sha256_of
from pipeline.core.work import prefetched
from pipeline.encoding.features import Encoder
from pipeline.encoding.values import counts, placed, weights
from pipeline.formats.scores import before_sampling
from pipeline.model.ranks import Ranks


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
        observed: float64 [n, 2], impressions and responses, the latter at most the former; whole
            numbers unless rows have weights.
    """

    categorical: np.ndarray
    numeric: np.ndarray
    observed: np.ndarray

    def __len__(self) -> int:
        return len(self.observed)


def examples_of(
    encoder: Encoder,
    days: Iterable[tuple[str, pa.Table]],
    label: str,
    impressions: str | None,
    weight: str | None = None,
) -> Iterator[Examples]:
    """The rows of each of `days`, one day in memory at a time.

    Args:
        encoder: of the features.
        days: days and their rows.
        label: column with the response, or their number.
        impressions: column with the impressions of a row; None: every row is one.
        weight: column with how often a row counts; None: once.

    Raises:
        DataError: a column is missing or does not hold what it should; the day is named.
    """
    for day, table in days:
        with placed(f"day {day}, "):
            categorical, numeric = encoder.features(table)
            observed = before_sampling(
                *counts(table, label, impressions), weights(table, weight), keep_rate=1.0
            )
        columns = np.stack(observed, axis=1).astype(np.float64)
        yield Examples(categorical, numeric, columns)


TYPES = {"categorical": "<i4", "numeric": "<f4", "observed": "<f8"}  # a file each, row by row


@dataclass(frozen=True)
class Shard:
    """Rows in a folder of their own, which are mapped into memory only where they are read.

    Attributes:
        folder: with one file for each array of `Examples`.
        rows: their number n.
        widths: columns of each array.
        numeric_columns: names of the numeric columns, for messages.
        impressions, responses: of all rows.
    """

    folder: Path
    rows: int
    widths: dict[str, int]
    numeric_columns: tuple[str, ...]
    impressions: float
    responses: float

    def __len__(self) -> int:
        return self.rows

    @property
    def response_rate(self) -> float:
        """(responses + ½) / (impressions + 1): inside (0, 1) even where nobody responded."""
        return (self.responses + 0.5) / (self.impressions + 1.0)

    @property
    def sha256s(self) -> list[str]:
        """Of every file: what is learned from the rows depends on nothing else of them."""
        return [sha256_of(self.folder / name) for name in TYPES]

    def read(self, start: int, rows: int) -> Examples:
        """At most `rows` rows from the place `start` on; they are read when they are looked at."""
        rows = min(rows, self.rows - start)
        return Examples(**{name: self._mapped(name, start, rows) for name in TYPES})

    def _mapped(self, name: str, start: int, rows: int) -> np.ndarray:
        kind, shape = np.dtype(TYPES[name]), (rows, self.widths[name])
        if not rows * self.widths[name]:
            return np.empty(shape, kind)  # nothing cannot be mapped
        offset = start * self.widths[name] * kind.itemsize
        return np.memmap(self.folder / name, kind, "c", offset, shape)


def write_shard(
    folder: Path, parts: Iterable[Examples], n_categorical: int, numeric_columns: Sequence[str]
) -> Shard:
    """Write the rows of `parts`, one part in memory at a time, over what is in `folder`.

    Args:
        folder: is made where it is missing.
        parts: rows, in the order in which they shall lie.
        n_categorical: number C of categorical columns.
        numeric_columns: names of the N numeric columns.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows, totals = 0, np.zeros(2)
    with ExitStack() as stack:
        files = {name: stack.enter_context((folder / name).open("wb")) for name in TYPES}
        for part in parts:
            rows, totals = rows + len(part), totals + part.observed.sum(axis=0)
            for name, file in files.items():
                np.ascontiguousarray(getattr(part, name), TYPES[name]).tofile(file)
    widths = {"categorical": n_categorical, "numeric": len(numeric_columns), "observed": 2}
    return Shard(folder, rows, widths, tuple(numeric_columns), *totals.tolist())


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
        *inputs, observed = (np.concatenate([getattr(b, name) for b in blocks]) for name in TYPES)
        return np.concatenate(places), *inputs, observed.astype(np.float32)

    def _hidden(self, rows: int, generator: torch.Generator) -> torch.Tensor:
        """Which ids of a whole batch are replaced by 0: bool [rows, C]."""
        hidden = torch.zeros(rows * self.shard.widths["categorical"], dtype=torch.bool)
        number = round(self._unseen_share * len(hidden))
        if number:
            places = torch.randint(len(hidden), (number,), generator=generator)
            hidden.index_fill_(0, places, True)
        return hidden.view(rows, -1)
