"""Logits and what is derived from them, stable at any size; and floats as sortable integers."""

import numpy as np

SIGN = np.uint32(0x80000000)
SURE = 30.0  # logits; farther out a probability is 0 or 1 for every count there will be


def sigmoid(logit: np.ndarray) -> np.ndarray:
    """The probability 1 / (1 + e^(-logit)), float64, of logits of any size; in [0, 1] by rounding.

    e is raised to minus the magnitude only, so nothing overflows and small probabilities keep all
    their digits: sigmoid(-100) is 3.7e-44, not 0.
    """
    x = np.asarray(logit, dtype=np.float64)
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def logit(probability: np.ndarray) -> np.ndarray:
    """The log-odds ln(p / (1 - p)), float64; -inf at 0, +inf at 1, NaN outside [0, 1]."""
    p = np.asarray(probability, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(p) - np.log1p(-p)


def bounded(logit: np.ndarray) -> np.ndarray:
    """Logits within ±SURE, float64: what fits read, so that no score is a lever of its own."""
    return np.clip(np.asarray(logit, dtype=np.float64), -SURE, SURE)


def softplus(logit: np.ndarray) -> np.ndarray:
    """ln(1 + e^logit), float64: the log-loss of an impression without a response."""
    x = np.asarray(logit, dtype=np.float64)
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def log_loss_from_logits(
    logit: np.ndarray, responses: np.ndarray, impressions: np.ndarray
) -> np.ndarray:
    """Summed log-loss of each row in nats, float64 [n]: impressions · softplus(f) - responses · f.

    That is -Σ [y ln p + (1 - y) ln(1 - p)] over the row's impressions with p = sigmoid(f); no
    probability is formed, so none is clipped, and every finite logit has a finite loss.

    Args:
        logit: the predicted logits f, [n].
        responses: number of responses of each row, [n].
        impressions: number of impressions of each row, [n].
    """
    f = np.asarray(logit, dtype=np.float64)
    misses = np.asarray(impressions) - np.asarray(responses)
    # two terms of one sign: nothing cancels where f is large and right
    return responses * softplus(-f) + misses * softplus(f)


def sortable_bits(values: np.ndarray) -> np.ndarray:
    """uint32 [n] that compare as the float32 values do; -0.0 and 0.0 are equal, as numbers are.

    bits ^ (0xFFFFFFFF where the sign is set, else 0x80000000); NaN has no place in the order.
    """
    bits = (np.asarray(values, dtype=np.float32) + np.float32(0)).view(np.uint32)
    flip = (bits.view(np.int32) >> np.int32(31)).view(np.uint32)
    flip |= SIGN
    return np.bitwise_xor(bits, flip, out=flip)


def from_sortable_bits(bits: np.ndarray) -> np.ndarray:
    """The float32 values whose `sortable_bits` these uint32 are."""
    bits = np.asarray(bits, dtype=np.uint32)
    flip = ~(bits.view(np.int32) >> np.int32(31)).view(np.uint32)
    flip |= SIGN
    return np.bitwise_xor(bits, flip, out=flip).view(np.float32)
