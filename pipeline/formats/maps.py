"""The serving map: one increasing piecewise-linear function of the logit for every field value."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.core.columns import Columns, Float64, read_parquet
from pipeline.core.errors import ArtifactError, DataError
from pipeline.core.files import publish

PROBABILITY_CLIP = 1e-15  # probabilities lie in [this, 1 - this]; logits are never clipped
BLOCK_ROWS = 16_384  # looked up at a time: what is gathered for them stays in a core's cache


@dataclass(frozen=True)
class PiecewiseLinearMap(Columns):
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

    knots: Float64
    segment_knots: Float64
    segment_values: Float64
    segment_slopes: Float64

    @property
    def n_field_values(self) -> int:
        """Number of rows V."""
        return len(self.knots)

    @property
    def is_shared(self) -> bool:
        """Whether all field values have one row in memory, as in a `shared_map`."""
        return self.knots.strides[0] == 0

    def corrected(self, offset: float, slope: float) -> "PiecewiseLinearMap":
        """The map whose calibrated logit is offset + slope · this one's; slope > 0."""
        if (offset, slope) == (0.0, 1.0):
            return self
        one = self.take(np.arange(1)) if self.is_shared else self
        slopes = slope * one.segment_slopes
        last = (one.knots < np.inf).sum(axis=1)
        right = slopes[np.arange(len(last)), last]
        values = offset + slope * one.segment_values[:, 1:]
        corrected = from_padded(one.knots, values, slopes[:, 0], right)
        return corrected if one is self else corrected.repeated(self.n_field_values)

    def with_rows(self, ids: np.ndarray, rows: "PiecewiseLinearMap") -> "PiecewiseLinearMap":
        """The map with other rows, of as many knots, for some field value ids [n]."""
        arrays = {name: np.array(column) for name, column in self.columns().items()}
        for name, column in rows.columns().items():
            arrays[name][ids] = column
        return PiecewiseLinearMap(**arrays)

    def repeated(self, n_field_values: int) -> "PiecewiseLinearMap":
        """The only row of a map for every field value; the rows share memory."""
        rows = self.columns().values()
        return PiecewiseLinearMap(
            *(np.broadcast_to(row, (n_field_values, row.shape[1])) for row in rows)
        )

    def __call__(self, uncalibrated_logit: np.ndarray, field_value_id: np.ndarray) -> np.ndarray:
        """The calibrated logit, float64 [n], of logits [n] at field value ids [n] in [0, V).

        Raises:
            DataError: an id is none of these.
        """
        logits, ids = np.asarray(uncalibrated_logit), np.asarray(field_value_id)
        if len(ids) and not (ids.min() >= 0 and ids.max() < self.n_field_values):
            row = int(np.argmin((ids >= 0) & (ids < self.n_field_values)))
            raise DataError(
                f"field value ids are 0 to {self.n_field_values - 1}, row {row} has {ids[row]}; "
                "the id of null and of an unseen value is 0"
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
        if self.is_shared:
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


def _at(array: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The numbers at places in an array [V, M] that is read row by row."""
    rows = array[:1] if array.strides[0] == 0 else array  # as in a `shared_map`
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
    shape = (len(knots), max(len(k) for k in knots))
    padded, heights = np.full(shape, np.inf), np.zeros(shape)
    for row, (k, v) in enumerate(zip(knots, values, strict=True)):
        padded[row, : len(k)], heights[row, : len(k)] = k, v
    return from_padded(padded, heights, left_slopes, right_slopes)


def from_padded(
    knots: np.ndarray, values: np.ndarray, left_slopes: np.ndarray, right_slopes: np.ndarray
) -> PiecewiseLinearMap:
    """What `from_knots` returns, of points in two arrays.

    Args:
        knots: float64 [V, M], strictly ascending logits, padded with +inf; one or more in a row.
        values: float64 [V, M], the calibrated logits there; not read in the padding.
        left_slopes: float64 [V], slope left of the first knot.
        right_slopes: float64 [V], slope right of the last knot.
    """
    real, rows = knots < np.inf, np.arange(len(knots))
    at, height = np.where(real, knots, 0.0), np.where(real, values, 0.0)
    anchors, heights = (np.concatenate([c[:, :1], c], axis=1) for c in (at, height))
    slopes = np.ones(anchors.shape)
    both = real[:, 1:]
    gap = np.where(both, np.diff(at), 1.0)
    slopes[:, 1:-1] = np.where(both, np.diff(height) / gap, 1.0)
    slopes[:, 0], slopes[rows, real.sum(axis=1)] = left_slopes, right_slopes
    return PiecewiseLinearMap(knots, anchors, heights, slopes)


def identity_map(n_field_values: int) -> PiecewiseLinearMap:
    """The map that returns every logit as it is."""
    return affine_map(np.zeros(n_field_values), np.ones(n_field_values))


def affine_map(offsets: np.ndarray, slopes: np.ndarray, center: float = 0.0) -> PiecewiseLinearMap:
    """center + offset + slope · (logit - center); offsets, slopes float64 [V], by field value."""
    at = np.full((len(offsets), 1), center)
    return from_padded(at, at + offsets[:, None], slopes, slopes)


def shared_map(
    knots: np.ndarray,
    values: np.ndarray,
    left_slope: float,
    right_slope: float,
    n_field_values: int,
) -> PiecewiseLinearMap:
    """One function through (knots, values) for all field values; the rows share memory."""
    slopes = np.array([left_slope]), np.array([right_slope])
    return from_knots([knots], [values], *slopes).repeated(n_field_values)


SCHEMA = pa.schema(
    [
        ("map", pa.string()),
        ("field_value_id", pa.int32()),
        ("knots", pa.list_(pa.float64())),
        ("values", pa.list_(pa.float64())),
        ("left_slope", pa.float64()),
        ("right_slope", pa.float64()),
    ]
)


def _points(table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Knots and values of rows of SCHEMA: float64 [V, M] each, +inf after the last one of a row."""
    lists = [table[name].combine_chunks() for name in ("knots", "values")]
    lengths = [pc.list_value_length(each).fill_null(0).to_numpy() for each in lists]
    padded = np.full((2, len(table), np.max(lengths, initial=1)), np.inf)
    for rows, each, length in zip(padded, lists, lengths, strict=True):
        rows[np.arange(rows.shape[1]) < length[:, None]] = each.flatten().to_numpy()
    return padded[0], padded[1]


def _check(place: str, table: pa.Table) -> None:
    """Refuse the rows of one map if a logit cannot be looked up in them."""
    ids = table["field_value_id"].to_numpy()
    if not len(ids) or not np.array_equal(ids, np.arange(len(ids))):
        raise ArtifactError(
            f"{place}: field value ids must be 0..{len(ids) - 1} in order; rerun it"
        )
    knots, values = _points(table)
    ends = np.isposinf(knots)
    points = np.isfinite(knots) & np.isfinite(values) | ends & np.isposinf(values)
    ascend = (knots[:, 1:] > knots[:, :-1]) | ends[:, 1:]
    slopes = [table[side].to_numpy() for side in ("left_slope", "right_slope")]
    sound = points.all(axis=1) & ~ends[:, 0] & ascend.all(axis=1) & np.isfinite(slopes).all(axis=0)
    if not sound.all():
        row = int(np.argmin(sound))
        raise ArtifactError(
            f"{place}, field value id {row}: knots must be finite and strictly ascending, with as "
            f"many finite values, and finite slopes, not {table.slice(row, 1).to_pylist()}; fit it"
        )


def rows_of_map(name: str, serving_map: PiecewiseLinearMap, ids: np.ndarray) -> pa.Table:
    """A map as rows of SCHEMA, one for each of its V rows; `ids` int32 [V] name them."""
    rows = np.arange(serving_map.n_field_values)
    real = serving_map.knots != np.inf
    width = real.sum(axis=1)
    offsets = pa.array(np.concatenate([[0], np.cumsum(width)]).astype(np.int32))
    slopes = serving_map.segment_slopes
    columns = [
        pa.array([name] * len(rows), pa.string()),
        pa.array(ids.astype(np.int32)),
        pa.ListArray.from_arrays(offsets, serving_map.knots[real]),
        pa.ListArray.from_arrays(offsets, serving_map.segment_values[:, 1:][real]),
        pa.array(slopes[:, 0]),
        pa.array(slopes[rows, width]),
    ]
    return pa.table(columns, schema=SCHEMA)


def map_of_rows(table: pa.Table) -> PiecewiseLinearMap:
    """The map whose rows of SCHEMA these are, in their order."""
    slopes = (table[side].to_numpy() for side in ("left_slope", "right_slope"))
    return from_padded(*_points(table), *slopes)


def write_maps(
    path: Path, maps: dict[str, PiecewiseLinearMap], field_values: list[str | None] | None = None
) -> None:
    """Publish maps under their names, in the order of the dict; a row is a map at one field value.

    The file is the whole map: read back, it returns the same bits for every logit. Whether values
    ascend along the knots is not asked here: that is a fact which the gate reports by name.

    Args:
        path: the Parquet file to write.
        maps: maps made by `from_knots` or its relatives, all with V rows.
        field_values: text of every row, for people who open a file that travels alone; None: none.

    Raises:
        ArtifactError: a map jumps, or has knots, values or slopes that are not finite, or knots
            that do not ascend strictly.
    """
    tables = {
        name: rows_of_map(name, serving_map, np.arange(serving_map.n_field_values))
        for name, serving_map in maps.items()
    }
    for name, table in tables.items():
        _check(f"map {name}", table)
        held = map_of_rows(table).columns()
        if not all(np.array_equal(held[n], own) for n, own in maps[name].columns().items()):
            raise ArtifactError(
                f"map {name} is no continuous line through knots; make it by from_knots"
            )
    rows = pa.concat_tables(tables.values())
    if field_values is not None:
        rows = rows.add_column(2, "field_value", pa.array(field_values, pa.string()))
    with publish(path) as temporary:
        pq.write_table(rows, temporary, compression="zstd")


def read_maps(path: Path) -> dict[str, PiecewiseLinearMap]:
    """The maps of a file by name, each with one row per field value id.

    Raises:
        ArtifactError: the file is missing, is not such a file, lacks a field value id, or holds
            knots, values or slopes that are not finite, or knots that do not ascend strictly.
    """
    table = read_parquet(path, "calibrate", SCHEMA)
    names = table["map"].to_numpy()
    maps = {}
    for name in dict.fromkeys(names):
        rows = table.filter(pa.array(names == name))
        _check(f"{path}: map {name}", rows)
        maps[name] = map_of_rows(rows)
    return maps
