"""The serving map inside a checkpoint, in its weights and its ONNX file, read without torch."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from safetensors import safe_open

from pipeline.core.errors import ArtifactError
from pipeline.formats.maps import PiecewiseLinearMap

WEIGHTS = "weights.safetensors"
PREFIX = "calibration."
LINES = ("segment_knots", "segment_values", "segment_slopes")  # point, height there, slope
ARRAYS = ("knots", *LINES)
IDS, LOGIT64, MAPPED = "categorical_ids", "uncalibrated_logit_64", "mapped_logit"
"""Inner tensors: ids of the base network's columns; the logit before and after the map."""

END_TO_END = 2e-5  # float32 logits of one network differ so much between batch sizes and runtimes
LARGEST_FALL = 1e-9  # in calibrated logit: what rounding may cost between two neighbouring logits


def arrays_of(serving_map: PiecewiseLinearMap) -> dict[str, np.ndarray]:
    """The arrays of a map by their names in a checkpoint, float64."""
    return {f"{PREFIX}{name}": np.array(getattr(serving_map, name)) for name in ARRAYS}


def map_of(arrays: Mapping[str, np.ndarray], n_field_values: int) -> PiecewiseLinearMap:
    """The map that `arrays_of` took apart, after its form was checked.

    Raises:
        ArtifactError: an array is missing, has another shape or holds what is no number, or the
            knots of a field value do not ascend.
    """
    missing = [name for name in ARRAYS if f"{PREFIX}{name}" not in arrays]
    if missing:
        raise ArtifactError(
            f"the checkpoint's serving table lacks {missing}; rerun dvc repro merge"
        )
    serving_map = PiecewiseLinearMap(*(arrays[f"{PREFIX}{name}"] for name in ARRAYS))
    width = serving_map.knots.shape[-1]
    shapes = [(n_field_values, width)] + 3 * [(n_field_values, width + 1)]
    if [array.shape for array in arrays_of(serving_map).values()] != shapes:
        raise ArtifactError(
            f"the checkpoint's serving table is not made for its {n_field_values} field values; "
            "rerun dvc repro merge"
        )
    _check_numbers(serving_map)
    return serving_map


def _check_numbers(serving_map: PiecewiseLinearMap) -> None:
    knots = serving_map.knots
    sorted_rows = ((knots[:, 1:] > knots[:, :-1]) | (knots[:, 1:] == np.inf)).all(axis=1)
    finite = np.isfinite(np.hstack([getattr(serving_map, name) for name in LINES])).all(axis=1)
    bad = np.flatnonzero(~(sorted_rows & finite & (knots > -np.inf).all(axis=1)))
    if len(bad):
        raise ArtifactError(
            f"the serving table of field value id {bad[0]} must have ascending knots and finite "
            f"values, it has the knots {knots[bad[0]].tolist()}; rerun dvc repro calibrate"
        )


def read_table(folder: Path, n_field_values: int) -> PiecewiseLinearMap:
    """The serving map inside a checkpoint folder, read without torch.

    Raises:
        ArtifactError: the checkpoint holds no such table, or a damaged one.
    """
    with safe_open(folder / WEIGHTS, framework="numpy") as tensors:
        names = [name for name in tensors.keys() if name.startswith(PREFIX)]  # noqa: SIM118
        return map_of({name: tensors.get_tensor(name) for name in names}, n_field_values)


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
