"""The serving map: one increasing piecewise-linear function of the logit for every field value."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class PiecewiseLinearMap:
    """calibrated_logit = value[s] + slope[s] · (logit - knot[s]), with s = Σ_k (logit ≥ knot_k).

    The arrays hold one row per field value id. Segment 0 lies left of the first knot, segment s
    between knot s and knot s + 1, the last one right of the last knot, so that the same gather,
    comparison sum and line serve numpy, torch and ONNX. Rows with fewer knots are padded with +inf
    knots, which no logit reaches.

    Attributes:
        knots: float64 [V, M], ascending in each row, padded with +inf.
        segment_knots: float64 [V, M + 1], the point at which segment s is anchored.
        segment_values: float64 [V, M + 1], the calibrated logit at that point.
        segment_slopes: float64 [V, M + 1], the slope of segment s, > 0.
    """

    knots: np.ndarray
    segment_knots: np.ndarray
    segment_values: np.ndarray
    segment_slopes: np.ndarray

    @property
    def n_field_values(self) -> int:
        """Number of rows V."""
        return len(self.knots)

    def __call__(self, uncalibrated_logit: np.ndarray, field_value_id: np.ndarray) -> np.ndarray:
        """The calibrated logit, float64 [n], of logits [n] at field value ids [n] in [0, V)."""
        logit = np.asarray(uncalibrated_logit, dtype=np.float64)
        row = np.asarray(field_value_id, dtype=np.int64)
        segment = np.zeros(len(logit), dtype=np.int64)
        for knot in self.knots.T:  # one column at a time: no [n, M] array
            segment += logit >= knot[row]
        return self.segment_values[row, segment] + self.segment_slopes[row, segment] * (
            logit - self.segment_knots[row, segment]
        )


def from_knots(
    knots: list[np.ndarray],
    values: list[np.ndarray],
    left_slopes: np.ndarray,
    right_slopes: np.ndarray,
) -> PiecewiseLinearMap:
    """The map through given points of each field value, with its own slope beyond the outer ones.

    Args:
        knots: V arrays of strictly ascending logits, each with one or more.
        values: the calibrated logits there, same lengths.
        left_slopes: float64 [V], slope left of the first knot.
        right_slopes: float64 [V], slope right of the last knot.
    """
    width = max(len(k) for k in knots)
    shape = (len(knots), width + 1)
    padded = np.full((len(knots), width), np.inf)
    anchors, heights, slopes = np.zeros(shape), np.zeros(shape), np.ones(shape)
    for row, (k, v) in enumerate(zip(knots, values, strict=True)):
        n = len(k)
        padded[row, :n] = k
        anchors[row, 0], anchors[row, 1 : n + 1] = k[0], k
        heights[row, 0], heights[row, 1 : n + 1] = v[0], v
        slopes[row, 0], slopes[row, n] = left_slopes[row], right_slopes[row]
        slopes[row, 1:n] = np.diff(v) / np.diff(k)
    return PiecewiseLinearMap(padded, anchors, heights, slopes)


def identity_map(n_field_values: int) -> PiecewiseLinearMap:
    """The map that returns every logit as it is."""
    return affine_map(np.zeros(n_field_values), np.ones(n_field_values))


def affine_map(offsets: np.ndarray, slopes: np.ndarray, center: float = 0.0) -> PiecewiseLinearMap:
    """center + offset + slope · (logit - center); offsets, slopes float64 [V], by field value."""
    at = np.full(len(offsets), center)
    return from_knots(list(at[:, None]), list((at + offsets)[:, None]), slopes, slopes)


def shared_map(
    knots: np.ndarray,
    values: np.ndarray,
    left_slope: float,
    right_slope: float,
    n_field_values: int,
) -> PiecewiseLinearMap:
    """One function through (knots, values) for all field values; the rows share memory."""
    slopes = np.array([left_slope]), np.array([right_slope])
    one = from_knots([knots], [values], *slopes)
    rows = (one.knots, one.segment_knots, one.segment_values, one.segment_slopes)
    return PiecewiseLinearMap(
        *(np.broadcast_to(row, (n_field_values, row.shape[1])) for row in rows)
    )
