"""Logits: the loss of one, and the bound within which fits read them."""

import numpy as np
from scipy.special import log_expit

SURE = 30.0  # logits; farther out a probability is 0 or 1 for every count there will be


def bounded(logit: np.ndarray) -> np.ndarray:
    """Logits within ±SURE, float64: what fits read, so that no single score decides a slope."""
    return np.clip(np.asarray(logit, dtype=np.float64), -SURE, SURE)


def log_loss_from_logits(
    logit: np.ndarray, responses: np.ndarray, impressions: np.ndarray
) -> np.ndarray:
    """Summed log-loss of each row in nats, float64 [n]: -Σ [y ln p + (1 - y) ln(1 - p)].

    p = 1 / (1 + e^-logit) of the row's impressions; no probability is formed, so none is clipped,
    and every finite logit has a finite loss.

    Args:
        logit: the predicted logits, [n].
        responses: number of responses of each row, [n].
        impressions: number of impressions of each row, [n].
    """
    f = np.asarray(logit, dtype=np.float64)
    misses = np.asarray(impressions) - np.asarray(responses)
    # two terms of one sign: nothing cancels where f is large and right
    return -responses * log_expit(f) - misses * log_expit(-f)
