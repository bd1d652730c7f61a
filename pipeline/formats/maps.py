"""The serving map: one increasing piecewise-linear function of the logit for every field value."""

from dataclasses import dataclass

import numpy as np

from pipeline.core.errors import DataError

BLOCK_ROWS = 16_384  # looked up at a time: what is gathered for them stays in a core's cache


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
        """The calibrated logit, float64 [n], of logits [n] at field value ids [n] in [0, V).

        Raises:
            DataError: an id is negative.
        """
        logits, ids = np.asarray(uncalibrated_logit), np.asarray(field_value_id)
        if len(ids) and ids.min() < 0:
            row = int(np.argmax(ids < 0))
            raise DataError(
                f"field value ids are 0 or more, row {row} has {ids[row]}; the id of null and of "
                "an unseen value is 0"
            )
        calibrated = np.empty(len(logits))
        for start in range(0, len(logits), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            logit = np.array(logits[rows], dtype=np.float64)
            line = self._segments(logit, ids[rows])
            logit -= _at(self.segment_knots, line)
            logit *= _at(self.segment_slopes, line)
            logit += _at(self.segment_values, line)
            calibrated[rows] = logit
        return calibrated

    def _segments(self, logit: np.ndarray, field_value_id: np.ndarray) -> np.ndarray:
        """Where the segments of a block of logits lie in the arrays, read row by row: int64 [n].

        Σ_k (logit ≥ knot_k) by halving, since knots ascend: log₂ M comparisons instead of M.
        """
        width = self.knots.shape[1]
        row = np.array(field_value_id, dtype=np.int64)
        if _is_shared(self.knots):
            row[:] = 0
        place = row * width - 1  # of the last knot that is known to be reached
        last = place + width
        for step in (1 << bit for bit in reversed(range(width.bit_length()))):
            ahead = np.minimum(place + step, last)
            reached = logit >= _at(self.knots, ahead)
            ahead -= place
            ahead *= reached
            place += ahead
        return place + row + 1  # a row has one segment more than knots


def _is_shared(array: np.ndarray) -> bool:
    """Whether all rows are one row in memory, as in a `shared_map`."""
    return array.strides[0] == 0


def _at(array: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The numbers at places in an array [V, M] that is read row by row."""
    rows = array[:1] if _is_shared(array) else array
    return rows.reshape(-1).take(places)


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
