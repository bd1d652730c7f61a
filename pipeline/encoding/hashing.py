"""128-bit hashes of texts, equal on every machine and in every version."""

import numpy as np
import pyarrow as pa

SEED = 8_191
EMPTY = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)  # the hash of ""
SHORT = 256  # bytes; texts up to here are hashed side by side, place by place


def hashes(text: pa.StringArray) -> np.ndarray:
    """A hash of every text: uint64 [n, 2]; null as "".

    Multilinear: h = h("") + Σ_i (byte_i + 1)·r_i mod 2^64, twice, with random r_i that are the same
    in every run. Two different texts share both halves with a probability of at most 2^-114, so
    among 10^9 texts all are told apart with a probability of 1 − 10^-16 (Carter & Wegman 1979).
    """
    text = text.fill_null("")
    _, offsets, data = text.buffers()
    ends = np.frombuffer(offsets, "<i4")[text.offset : text.offset + len(text) + 1].astype(np.int64)
    spelled = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
    starts, lengths = ends[:-1], np.diff(ends)
    order = np.argsort(lengths, kind="stable")
    short = int(np.searchsorted(lengths[order], SHORT, side="right"))
    found = np.tile(EMPTY, (len(text), 1))
    found[order[:short]] += _side_by_side(spelled, starts[order[:short]], lengths[order[:short]])
    for row in order[short:]:
        found[row] += _alone(spelled[starts[row] : ends[row + 1]])
    return found


def _side_by_side(spelled: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The sums of texts that begin at `starts`, in ascending order of their lengths."""
    sums = np.zeros((2, len(starts)), np.uint64)
    factors = _factors(SHORT)
    for place in range(int(lengths.max(initial=0))):
        first = int(np.searchsorted(lengths, place, side="right"))
        values = spelled[starts[first:] + place].astype(np.uint64) + np.uint64(1)
        for half in range(2):
            sums[half, first:] += values * factors[half, place]
    return sums.T


def _alone(spelled: np.ndarray) -> np.ndarray:
    """The sums of one text."""
    values = spelled.astype(np.uint64) + np.uint64(1)
    return (_factors(len(spelled)) * values).sum(axis=1, dtype=np.uint64)


def _factors(length: int) -> np.ndarray:
    """r_i of the first `length` places: uint64 [2, length]; longer texts only add to them."""
    return np.stack([np.random.PCG64([SEED, half]).random_raw(length) for half in range(2)])


def shares(half: np.ndarray, parts: int) -> np.ndarray:
    """Which of `parts` equal shares of all texts each text is in: int64 [n] from 0.

    Args:
        half: uint64 [n], one half of `hashes`.
        parts: at most 2^31.
    """
    return (((half >> np.uint64(32)) * np.uint64(parts)) >> np.uint64(32)).astype(np.int64)
