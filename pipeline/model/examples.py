"""Rows to learn from: which days they are of, and what was observed."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipeline.core.errors import NotEnoughDataError
from pipeline.encoding.features import Encoder, counts, named, weights
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
        with named(day):
            encoded = encoder.encode(table)
            observed = before_sampling(
                *counts(table, label, impressions), weights(table, weight), keep_rate=1.0
            )
        columns = np.stack(observed, axis=1).astype(np.float64)
        yield Examples(encoded.categorical, encoded.numeric, columns)
