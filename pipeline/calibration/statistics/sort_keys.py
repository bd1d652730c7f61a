"""Rows in the order of (field value, logit): the one sort behind every statistic of the field."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from threading import Lock

import numpy as np

from pipeline.calibration.statistics.logits import from_sortable_bits, sortable_bits
from pipeline.core.errors import DataError
from pipeline.formats.scores import Scores, unit_of

MOST_DAYS = 1 << 16  # between the first and the last day of a log: 179 years
NUMBERED = 1 << 21  # rows of a range that leave room for their positions beside the sorted keys
BLOCK = 1 << 16  # rows handled at once: few calls, and the arrays of a pass stay near the core


def usable_threads() -> int:
    """Number of processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def blocks(start: int, stop: int) -> Iterator[slice]:
    """Slices of at most BLOCK rows that cover [start, stop)."""
    for first in range(start, stop, BLOCK):
        yield slice(first, min(first + BLOCK, stop))


@dataclass(frozen=True)
class KeyLayout:
    """What a uint64 key holds, from its top: field value id, sortable bits of the logit, low part.

    The low part is 2 · (day - first_day) + response where a row is one impression (`packed`), and
    absent where days and counts travel beside the keys. Impressions are counted in parts of one,
    `unit` of them, where a sampled log makes them fractional.
    """

    first_day: int
    n_days: int
    low_bits: int
    packed: bool
    unit: int = 1

    @classmethod
    def choose(
        cls, first_day: int, last_day: int, n_field_values: int, single: bool, unit: int = 1
    ) -> "KeyLayout":
        """The layout for a log: packed if every row is one impression and 64 bits are enough.

        Raises:
            DataError: the days span so many years that they cannot be days.
        """
        n_days = last_day - first_day + 1
        if n_days > MOST_DAYS:
            raise DataError(
                f"day must be days since 1970-01-01, these span {n_days} days from {first_day} on"
            )
        low_bits = (2 * n_days - 1).bit_length()
        packed = single and unit == 1 and (n_field_values - 1).bit_length() + 32 + low_bits <= 64
        return cls(first_day, n_days, low_bits if packed else 0, packed, unit)

    @classmethod
    def of(cls, scores: Scores, threads: int = 1) -> "KeyLayout":
        """The layout for these rows."""
        if not len(scores):
            return cls.choose(0, 0, scores.n_field_values, single=False)
        counts, days = scores.impressions, scores.day
        with ThreadPoolExecutor(threads) as pool:
            ends = pool.map(lambda end: int(end()), (counts.min, counts.max, days.min, days.max))
            least, most, first_day, last_day = ends
        return cls.choose(
            first_day, last_day, scores.n_field_values, least == most == 1, unit_of(counts)
        )

    def keys(self, scores: Scores, rows: slice | np.ndarray) -> np.ndarray:
        """uint64 keys of some rows; nothing of `scores` is written to."""
        keys = scores.field_value_id[rows].astype(np.uint64)
        keys <<= np.uint64(32)
        keys |= sortable_bits(scores.uncalibrated_logit[rows]).astype(np.uint64)
        if self.packed:
            keys <<= np.uint64(self.low_bits)
            low = scores.day[rows] - scores.day.dtype.type(self.first_day)
            low *= 2
            low += scores.responses[rows].astype(low.dtype)
            keys |= low.astype(np.uint64)
        return keys


@dataclass(frozen=True)
class RowCounts:
    """What travels beside the keys where a row is several impressions; all in the keys' order.

    Impressions and responses are counted in the layout's parts of one.
    """

    day: np.ndarray  # int64 [n], days since the layout's first day
    impressions: np.ndarray  # int64 [n], > 0
    responses: np.ndarray  # int64 [n]
    impressions_before: np.ndarray  # int64 [n + 1], impressions of all earlier rows


@dataclass(frozen=True)
class SortedRows:
    """The rows of one range of field values, ascending by (field value, logit).

    Attributes:
        keys: uint64 [n] as `layout` says, ascending.
        layout: what the keys hold.
        counts: days and counts of rows that are several impressions; None where the keys hold them.
        ids: the half-open range of field value ids [first, last) these rows may have.
    """

    keys: np.ndarray
    layout: KeyLayout
    counts: RowCounts | None
    ids: tuple[int, int]

    def heads(self, rows: np.ndarray | slice) -> np.ndarray:
        """uint64: field value id << 32 | sortable bits of the logit."""
        return self.keys[rows] >> np.uint64(self.layout.low_bits)

    def logits(self, rows: np.ndarray | slice) -> np.ndarray:
        """float32 logits of some rows."""
        return from_sortable_bits(self.heads(rows).astype(np.uint32))

    def position(self, heads: np.ndarray) -> np.ndarray:
        """int64: number of rows before the first one with a given head or a greater one."""
        return np.searchsorted(self.keys, heads << np.uint64(self.layout.low_bits))

    def impressions_before(self, rows: np.ndarray) -> np.ndarray:
        """int64: impressions of all rows before the given ones (a row number up to n)."""
        return rows if self.counts is None else self.counts.impressions_before[rows]

    def row_of(self, impression: np.ndarray) -> np.ndarray:
        """int64: the row that holds the impression of a given number, counted from 0."""
        if self.counts is None:
            return impression
        return np.searchsorted(self.counts.impressions_before, impression, side="right") - 1


@dataclass(frozen=True)
class Stretch:
    """Some rows of a log: `load` reads or names the scores, of which `rows` are meant."""

    load: Callable[[], Scores]
    rows: tuple[int, int]


def sorted_ranges(scores: Scores, threads: int) -> list[SortedRows]:
    """The rows in order, in parts that threads work on: consecutive ranges of field value ids.

    Every thread packs one stretch of the rows, then sorts one range of field values (numpy lets go
    of the interpreter meanwhile). A field value is never cut.
    """
    threads = max(1, min(threads, len(scores) // BLOCK))
    layout, ids = KeyLayout.of(scores, threads), scores.field_value_id
    n_ranges = threads if layout.packed else max(threads, len(scores) // NUMBERED)
    limits = _range_limits(ids, scores.n_field_values, n_ranges)
    with ThreadPoolExecutor(threads) as pool:
        if not layout.packed:
            parts = pairwise(limits)
            return list(pool.map(lambda part: sort_counted(scores, layout, part), parts))
        below = list(pool.map(lambda limit: int(np.count_nonzero(ids < limit)), limits))
        cuts = [len(scores) * i // threads for i in range(threads + 1)]
        stretches = [Stretch(lambda: scores, rows) for rows in pairwise(cuts)]
        return sort_packed(stretches, layout, limits, np.diff(below).tolist(), pool)


def _range_limits(field_value_id: np.ndarray, n_field_values: int, n_ranges: int) -> list[int]:
    """Ids that cut all field values into at most `n_ranges` ranges with about equally many rows.

    Judged on a sample: the limits decide which thread does what, never a result.
    """
    sample = np.sort(field_value_id[:: max(1, len(field_value_id) // 10_000)])
    inner = [int(sample[len(sample) * i // n_ranges]) for i in range(1, n_ranges)]
    return sorted({0, *inner, n_field_values})


def sort_packed(
    stretches: Iterable[Stretch],
    layout: KeyLayout,
    limits: Sequence[int],
    sizes: Sequence[int],
    pool: ThreadPoolExecutor,
) -> list[SortedRows]:
    """The sorted rows of ranges of field values, of rows that are one impression each.

    Args:
        stretches: all the rows; those of other field values are passed over.
        layout: what keys hold.
        limits: ids [ranges + 1]; range r has the field values [limits[r], limits[r + 1]).
        sizes: number of rows of each range.
        pool: threads that pack one stretch each, then sort one range each.
    """
    keys = [np.empty(size, dtype=np.uint64) for size in sizes]
    filled, lock = [0] * len(sizes), Lock()

    def pack(stretch: Stretch) -> None:
        scores = stretch.load()
        for rows in blocks(*stretch.rows):
            of_block, ids = layout.keys(scores, rows), scores.field_value_id[rows]
            for r, (first, last) in enumerate(pairwise(limits)):
                piece = of_block.compress((ids >= first) & (ids < last))
                with lock:  # any order will do: the keys are sorted next
                    place = filled[r]
                    filled[r] += len(piece)
                keys[r][place : place + len(piece)] = piece

    list(pool.map(pack, stretches))
    list(pool.map(np.ndarray.sort, keys))
    ranges = zip(keys, pairwise(limits), strict=True)
    return [SortedRows(of_range, layout, None, ids) for of_range, ids in ranges]


def sort_counted(scores: Scores, layout: KeyLayout, ids: tuple[int, int]) -> SortedRows:
    """The sorted rows of a range of field values, of rows that are any number of impressions.

    Rows without impressions are left out.
    """
    inside = (scores.field_value_id >= ids[0]) & (scores.field_value_id < ids[1])
    rows = np.flatnonzero(inside & (scores.impressions > 0))
    keys = layout.keys(scores, rows)
    order = _order(keys, ids)
    rows = rows[order]
    impressions, responses = (
        np.multiply(column[rows], layout.unit).astype(np.int64)
        for column in (scores.impressions, scores.responses)
    )
    counts = RowCounts(
        day=scores.day[rows].astype(np.int64) - layout.first_day,
        impressions=impressions,
        responses=responses,
        impressions_before=np.concatenate([[0], np.cumsum(impressions)]),
    )
    return SortedRows(keys[order], layout, counts, ids)


def _order(keys: np.ndarray, ids: tuple[int, int]) -> np.ndarray:
    """int64: positions that put the keys of a range of field values in order.

    Where the bits allow it, position and all, by a sort in place: a fifth of the time of argsort.
    """
    bits = len(keys).bit_length()
    if (ids[1] - ids[0]).bit_length() + 32 + bits > 64:
        return np.argsort(keys)
    numbered = keys - (np.uint64(ids[0]) << np.uint64(32))
    numbered <<= np.uint64(bits)
    numbered |= np.arange(len(keys), dtype=np.uint64)
    numbered.sort()
    numbered &= np.uint64((1 << bits) - 1)
    return numbered.view(np.int64)
