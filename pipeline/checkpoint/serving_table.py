"""The serving map of a checkpoint, without torch: where it falls, and the ONNX file's own step."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from pipeline.core.errors import ArtifactError
from pipeline.formats.maps import PiecewiseLinearMap, read_maps

TABLE = "calibration.parquet"
IDS, LOGIT64, MAPPED = "categorical_ids", "uncalibrated_logit_64", "mapped_logit"
"""Inner tensors: ids of the base network's columns; the logit before and after the map."""

END_TO_END = 2e-5  # float32 logits of one network differ so much between batch sizes and runtimes
LARGEST_FALL = 1e-9  # in calibrated logit: what rounding may cost between two neighbouring logits


def read_table(folder: Path, n_field_values: int) -> PiecewiseLinearMap:
    """The serving map of a checkpoint folder.

    Raises:
        ArtifactError: the checkpoint holds no such table, a damaged one, or one for another number
            of field values.
    """
    (table,) = read_maps(folder / TABLE).values()
    if table.n_field_values != n_field_values:
        raise ArtifactError(
            f"{folder / TABLE} has no row for each of {n_field_values} values; rerun merge"
        )
    return table


def falls(serving_map: PiecewiseLinearMap, field_values: list[str | None]) -> list[str]:
    """A sentence for each field value whose calibrated logit falls somewhere; none if none does.

    The map is a line between neighbouring knots, so it never falls if it does not fall from one end
    of a segment to the other nor at a knot. Both ends of all segments are looked at, the outer ones
    over one unit of logit: that covers every pair of logits, not only those on a grid.

    Args:
        serving_map: the map of V field values.
        field_values: V texts, index = field value id, the first None.
    """
    knots, slopes = serving_map.knots, serving_map.segment_slopes
    starts = np.hstack([knots[:, :1] - 1.0, knots])
    used = starts < np.inf
    starts = np.where(used, starts, 0.0)
    ends = np.hstack([knots, np.full((len(knots), 1), np.inf)])
    lengths = np.where(ends < np.inf, ends - starts, 1.0) * used
    at = np.where(knots < np.inf, knots, 0.0)
    beside = [  # heights at each knot, on the line before it and on the one after it
        serving_map.segment_values[:, part]
        + slopes[:, part] * (at - serving_map.segment_knots[:, part])
        for part in (slice(None, -1), slice(1, None))
    ]
    jumps = np.where(knots < np.inf, beside[0] - beside[1], 0.0)
    drops = np.hstack([-slopes * lengths, jumps])
    return [
        _sentence(field_values[row], float(drops[row].max()), int(drops[row].argmax()), knots[row])
        for row in np.flatnonzero((drops > LARGEST_FALL).any(axis=1))
    ]


def _sentence(field_value: str | None, fall: float, position: int, knots: np.ndarray) -> str:
    bounds = [-np.inf, *knots.tolist(), np.inf]
    if position > len(knots):
        place = f"at the knot {knots[position - len(knots) - 1]:.6g}"
    else:
        place = f"between the knots {bounds[position]:.6g} and {bounds[position + 1]:.6g}"
    name = "the row of unseen values" if field_value is None else f"field value {field_value!r}"
    return f"the calibrated logit of {name} falls by {fall:.3g} {place}"


def part_of(
    made: onnx.ModelProto, inputs: Sequence[str], outputs: Sequence[str]
) -> onnxruntime.InferenceSession:
    """The part of a model between tensors: from `IDS` on for ids, from `LOGIT64` for logits; it
    runs on one thread."""
    part = onnx.utils.Extractor(made).extract_model(list(inputs), list(outputs))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    content = part.SerializeToString()
    return onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])


def onnx_step(path: Path) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The calibration step alone of an ONNX file, in onnxruntime.

    Returns:
        A function of logits float64 [n] and integer field value ids [n].
    """
    names = [LOGIT64, "field_value_id"]
    session = part_of(onnx.load(path), names, [MAPPED])

    def step(logit: np.ndarray, field_value_id: np.ndarray) -> np.ndarray:
        ids = field_value_id.astype(np.int64)
        return session.run(None, dict(zip(names, (logit, ids), strict=True)))[0]

    return step
