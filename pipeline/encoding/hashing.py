"""128-bit hashes of texts, equal on every machine."""

import numpy as np
import pyarrow as pa
from pandas.util import hash_array

KEYS = ("adacalib-first--", "adacalib-second-")  # 16 bytes each, as SipHash wants


def hashes(text: pa.StringArray) -> np.ndarray:
    """A hash of every text: uint64 [n, 2]; null as "".

    SipHash under two keys (`pandas.util.hash_array`): two different texts share both halves with a
    probability of about 2^-128.
    """
    texts = text.fill_null("").to_numpy(zero_copy_only=False)
    halves = [hash_array(texts, hash_key=key, categorize=False) for key in KEYS]
    return np.stack(halves, axis=1)


def shares(half: np.ndarray, parts: int) -> np.ndarray:
    """Which of `parts` equal shares of all texts each text is in: int64 [n] from 0.

    Args:
        half: uint64 [n], one half of `hashes`.
        parts: at most 2^31.
    """
    return (((half >> np.uint64(32)) * np.uint64(parts)) >> np.uint64(32)).astype(np.int64)
