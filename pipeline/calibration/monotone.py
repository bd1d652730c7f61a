"""Hard monotonicity: knot values moved least until the line through them increases."""

import numpy as np


def isotonic_fit(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The non-decreasing sequence nearest to `values` in weighted squares: pooled neighbours.

    Args:
        values: float64 [n].
        weights: float64 [n], > 0.
    """
    blocks: list[list[float]] = []  # mean, weight, length
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        blocks.append([value, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            mean, total, length = blocks.pop()
            before = blocks[-1]
            blocks[-1] = [
                (before[0] * before[1] + mean * total) / (before[1] + total),
                before[1] + total,
                before[2] + length,
            ]
    return np.repeat([b[0] for b in blocks], [int(b[2]) for b in blocks])


def increasing(
    knots: np.ndarray, values: np.ndarray, weights: np.ndarray, min_slope: float
) -> np.ndarray:
    """`values` moved least so that every slope between knots is at least `min_slope` > 0.

    Pool adjacent violators works on value - min_slope · knot; adding the line back leaves no
    plateau, which would tie logits and cost ranking. Values that keep the rule come back bit for
    bit.

    Args:
        knots: float64 [n], strictly ascending logits.
        values: float64 [n], calibrated logits there.
        weights: float64 [n], > 0: how much a knot resists being moved.
        min_slope: least slope of the calibrated in the uncalibrated logit.
    """
    if (np.diff(values) >= min_slope * np.diff(knots)).all():
        return values
    line = min_slope * knots
    return isotonic_fit(values - line, weights) + line
