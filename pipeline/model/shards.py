"""Encoded rows on disk: a training reads them by blocks, whatever their number."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.core.files import sha256_of
from pipeline.model.examples import Examples

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
