"""How sure a difference of out-of-sample losses is."""

import numpy as np

ENOUGH_FOLDS = 5  # below, nothing is said about how a difference varies over days


def standard_error(difference: np.ndarray, impressions: np.ndarray) -> float:
    """Of a difference of losses per impression, the wider of two: field values or folds as units.

    For a ratio r of sums over units u: √(n / (n - 1) · Σ_u (d_u - r · i_u)²) / Σ_u i_u. With fewer
    than ENOUGH_FOLDS folds field values are the only units.

    Args:
        difference: float64 [F, V], summed differences in nats.
        impressions: float64 [F, V].
    """
    ratio = difference.sum() / impressions.sum()
    axes = (0, 1) if len(difference) >= ENOUGH_FOLDS else (0,)
    return max(
        _of_units(difference.sum(axis=axis), impressions.sum(axis=axis), ratio) for axis in axes
    )


def _of_units(difference: np.ndarray, impressions: np.ndarray, ratio: float) -> float:
    used = impressions > 0
    n = int(used.sum())
    if n < 2:
        return 0.0
    away = (difference - ratio * impressions)[used]
    return float(np.sqrt(n / (n - 1) * (away**2).sum()) / impressions.sum())
