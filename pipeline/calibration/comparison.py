"""How sure a difference of out-of-sample losses is."""

import numpy as np

ENOUGH_DAYS = 5  # below, nothing is said about how a difference varies over days


def standard_error(difference: np.ndarray, impressions: np.ndarray) -> float:
    """Of a difference of losses per impression, the wider of two: field values or days as units.

    For a ratio r of sums over units u: √(n / (n - 1) · Σ_u (d_u - r · i_u)²) / Σ_u i_u. With fewer
    than ENOUGH_DAYS days field values are the only units. Days are the units because what shakes
    all field values at once (a campaign, a holiday) comes and goes by days: blocks of several
    days are fewer units of unequal size, and tell less about how far the difference varies.

    Args:
        difference: float64 [D, V], summed differences in nats by day (or by fold, see `choose`).
        impressions: float64 [D, V].
    """
    ratio = difference.sum() / impressions.sum()
    axes = (0, 1) if len(difference) >= ENOUGH_DAYS else (0,)
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
