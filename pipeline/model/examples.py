"""Rows to learn from: which days they are of, what was observed, and their shards on disk."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.core.errors import NotEnoughDataError
from pipeline.core.files import sha256_of
from pipeline.encoding.features import Encoder
from pipeline.encoding.values import counts, placed, weights
from pipeline.formats.scores import before_sampling


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
