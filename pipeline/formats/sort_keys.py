"""Rows in the order of (group, logit), as 64-bit keys: the one sort behind bins, ranks and ties."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from threading import Lock

import numpy as np

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


def sortable_bits(values: np.ndarray) -> np.ndarray:
    """uint32 or uint64 [n] that compare as the float32 or float64 values do; -0.0 equals 0.0.

    bits ^ (all ones where the sign is set, else the sign alone); NaN has no place in the order.
    """
    bits = (np.asarray(values) + 0.0).view(f"i{values.dtype.itemsize}")
    top = 8 * bits.dtype.itemsize - 1
    flip = (bits >> top).view(f"u{bits.dtype.itemsize}")
    flip |= flip.dtype.type(1 << top)
    return np.bitwise_xor(bits.view(flip.dtype), flip, out=flip)


def from_sortable_bits(bits: np.ndarray) -> np.ndarray:
    """The float32 or float64 values whose `sortable_bits` these uint32 or uint64 are."""
    size = bits.dtype.itemsize
    top = 8 * size - 1
    flip = ~(bits.view(f"i{size}") >> top).view(bits.dtype)
    flip |= flip.dtype.type(1 << top)
    return np.bitwise_xor(bits, flip, out=flip).view(f"f{size}")


@dataclass(frozen=True)
class KeyLayout:
    """What a uint64 key holds, from its top: group, sortable bits of the logit, low part.

    The group is a field value id, or whatever a metric groups by. The low part has the response,
    of scores also the day: 2 · (day - first_day) + response where a row is one impression
    (`packed`); where it stands for any number, counts travel beside the keys.

    Attributes:
        logit_bits: 32 hold a float32 whole; more are sign, exponent and the leading mantissa bits
            of a float64, finer than float32 up to 2^28 groups; logits that agree in those are tied.
        low_bits: of the low part.
        packed: whether the keys hold everything.
        first_day: of scores, the first day since 1970-01-01.
        n_days: of scores, days from the first to the last.
        unit: parts of one in which impressions are counted, where a sampled log makes them
            fractional.
    """

    logit_bits: int
    low_bits: int
    packed: bool
    first_day: int = 0
    n_days: int = 1
    unit: int = 1

    @classmethod
    def choose(
        cls, first_day: int, last_day: int, n_field_values: int, single: bool, unit: int = 1
    ) -> "KeyLayout":
        """The layout for scores: packed if every row is one impression and 64 bits are enough.

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
        return cls(32, low_bits if packed else 0, packed, first_day, n_days, unit)

    @classmethod
    def of(cls, scores: Scores) -> "KeyLayout":
        """The layout for these rows."""
        if not len(scores):
            return cls.choose(0, 0, scores.n_field_values, single=False)
        counts, days = scores.impressions, scores.day
        single = bool(counts.min() == 1 == counts.max())
        ends = int(days.min()), int(days.max())
        return cls.choose(*ends, scores.n_field_values, single, unit_of(counts))

    def heads(self, group: np.ndarray, logit: np.ndarray) -> np.ndarray:
        """uint64: group << logit_bits | sortable bits of the logit."""
        heads = group.astype(np.uint64)
        heads <<= np.uint64(self.logit_bits)
        if self.logit_bits == 32:
            heads |= sortable_bits(logit.astype(np.float32, copy=False)).astype(np.uint64)
        else:
            heads |= sortable_bits(logit.astype(np.float64)) >> np.uint64(64 - self.logit_bits)
        return heads

    def keys(self, scores: Scores, rows: slice | np.ndarray) -> np.ndarray:
        """uint64 keys of some rows; nothing of `scores` is written to."""
        keys = self.heads(scores.field_value_id[rows], scores.uncalibrated_logit[rows])
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

    Impressions and responses of scores are counted in the layout's parts of one, those of metrics
    as they come.
    """

    impressions: np.ndarray  # [n], int64 of scores
    responses: np.ndarray  # likewise [n]
    day: np.ndarray  # int64 [n], days since the layout's first day

    @cached_property
    def impressions_before(self) -> np.ndarray:
        """int64 [n + 1]: impressions of all earlier rows."""
        return np.concatenate([[0], np.cumsum(self.impressions)])


@dataclass(frozen=True)
class SortedRows:
    """The rows of one range of groups, ascending by (group, logit).

    Attributes:
        keys: uint64 [n] as `layout` says, ascending.
        layout: what the keys hold.
        counts: counts of rows that are several impressions; None where the keys hold them.
        ids: the half-open range of groups [first, last) these rows may have.
    """

    keys: np.ndarray
    layout: KeyLayout
    counts: RowCounts | None
    ids: tuple[int, int]

    def heads(self, rows: np.ndarray | slice) -> np.ndarray:
        """uint64: group << logit_bits | sortable bits of the logit."""
        return self.keys[rows] >> np.uint64(self.layout.low_bits)

    def groups(self, rows: np.ndarray | slice) -> np.ndarray:
        """int64 groups of some rows."""
        return (self.heads(rows) >> np.uint64(self.layout.logit_bits)).view(np.int64)

    def logits(self, rows: np.ndarray | slice) -> np.ndarray:
        """Logits of some rows: float32, or the float64 nearest to 0 that the key can stand for."""
        heads = self.heads(rows)
        if self.layout.logit_bits == 32:
            return from_sortable_bits(heads.astype(np.uint32))
        dropped = np.uint64(64 - self.layout.logit_bits)
        bits = heads << dropped
        negative = bits >> np.uint64(63) == 0
        bits |= np.where(negative, (np.uint64(1) << dropped) - np.uint64(1), np.uint64(0))
        return from_sortable_bits(bits)

    def position(self, heads: np.ndarray) -> np.ndarray:
        """int64: number of rows before the first one with a given head or a greater one."""
        return np.searchsorted(self.keys, heads << np.uint64(self.layout.low_bits))

    def group_starts(self) -> np.ndarray:
        """Where the rows of each group of the range begin, int64 [groups + 1], last their end."""
        groups = np.arange(*self.ids, dtype=np.uint64) << np.uint64(self.layout.logit_bits)
        return np.append(self.position(groups), len(self.keys))

    def tie_starts(self) -> np.ndarray:
        """int64: the first row of every run of equal (group, logit)."""
        heads = self.heads(slice(None))
        return np.flatnonzero(np.append(True, heads[1:] != heads[:-1])[: len(heads)])

    def impressions_before(self, rows: np.ndarray) -> np.ndarray:
        """int64: impressions of all rows before the given ones (a row number up to n)."""
        return rows if self.counts is None else self.counts.impressions_before[rows]

    def row_of(self, impression: np.ndarray) -> np.ndarray:
        """int64: the row that holds the impression of a given number, counted from 0."""
        if self.counts is None:
            return impression
        return np.searchsorted(self.counts.impressions_before, impression, side="right") - 1


def sort_by_group(
    logit: np.ndarray,
    impressions: np.ndarray,
    responses: np.ndarray,
    group: np.ndarray,
    n_groups: int,
) -> SortedRows:
    """The rows of one range of groups by (group, logit), the logit in as many bits as are left.

    Args:
        logit: float [n], finite.
        impressions: int or float [n], how many impressions (or which weight) a row stands for.
        responses: [n], 0 ≤ responses ≤ impressions.
        group: int [n] in [0, n_groups).
        n_groups: number of groups.
    """
    single = np.issubdtype(impressions.dtype, np.integer) and bool((impressions == 1).all())
    layout = KeyLayout(63 - max(n_groups - 1, 0).bit_length(), 1, single)
    keys = np.empty(len(logit), dtype=np.uint64)
    for rows in blocks(0, len(logit)):
        keys[rows] = layout.heads(group[rows], logit[rows]) << np.uint64(1)
    if single:
        keys |= responses.astype(np.uint64)
        keys.sort()
        return SortedRows(keys, layout, None, (0, n_groups))
    order = np.argsort(keys)
    counts = RowCounts(impressions[order], responses[order], np.zeros(len(order), np.int64))
    return SortedRows(keys[order], layout, counts, (0, n_groups))


@dataclass(frozen=True)
class Stretch:
    """Some rows of a log: `load` reads or names the scores, of which `rows` are meant, or all."""

    load: Callable[[], Scores]
    rows: tuple[int, int] | None = None


def sorted_ranges(scores: Scores, threads: int) -> list[SortedRows]:
    """The rows in order, in parts that threads work on: consecutive ranges of field value ids.

    Every thread packs one stretch of the rows, then sorts one range of field values (numpy lets go
    of the interpreter meanwhile). A field value is never cut.
    """
    threads = max(1, min(threads, len(scores) // BLOCK))
    layout, ids = KeyLayout.of(scores), scores.field_value_id
    n_ranges = threads if layout.packed else max(threads, len(scores) // NUMBERED)
    # Ranges with about equally many rows, by a sample: they decide which thread does what alone.
    sample = np.sort(ids[:: max(1, len(ids) // 10_000)])
    inner = {int(sample[len(sample) * i // n_ranges]) for i in range(1, n_ranges)}
    limits = sorted({0, *inner, scores.n_field_values})
    with ThreadPoolExecutor(threads) as pool:
        if not layout.packed:
            parts = pairwise(limits)
            return list(pool.map(lambda part: sort_counted(scores, layout, part), parts))
        below = list(pool.map(lambda limit: int(np.count_nonzero(ids < limit)), limits))
        cuts = [len(scores) * i // threads for i in range(threads + 1)]
        stretches = [Stretch(lambda: scores, rows) for rows in pairwise(cuts)]
        return sort_packed(stretches, layout, limits, np.diff(below).tolist(), pool)


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
        for rows in blocks(*(stretch.rows or (0, len(scores)))):
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
    counts = RowCounts(impressions, responses, scores.day[rows].astype(np.int64) - layout.first_day)
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
