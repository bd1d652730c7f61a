"""The runtimes in which a checkpoint is published: making their files, and asking each of them.

Rows that a model ships with, and what it says of them: for whoever serves it elsewhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime
import pyarrow as pa
import torch

from pipeline.checkpoint.bundle import TABLE
from pipeline.checkpoint.merged_model import MergedModel
from pipeline.checkpoint.onnx_graph import onnx_model
from pipeline.checkpoint.serving_table import END_TO_END, IDS, LOGIT64, MAPPED, part_of
from pipeline.core.files import MANIFEST, read_json, write_checksums, write_json
from pipeline.encoding.features import Encoded, Encoder, LoggedScore, Scaling
from pipeline.encoding.values import SEPARATOR
from pipeline.encoding.vocabulary import Vocabulary
from pipeline.formats.maps import PiecewiseLinearMap, read_maps
from pipeline.serving.predictor import NUMBER, ONNX_FILE, VECTORS_FILE
from pipeline.serving.predictor import load as load_predictor

VALUES = 22  # of a column, from all over its vocabulary
DEVIATIONS = (-2.0, -1.0, 0.0, 1.0, 2.0)
LOGITS = (-8.0, -4.0, -2.0, 0.0, 2.0)
UNSEEN = "(a value that no log had)"


def end_to_end_tolerance(steepest: float) -> float:
    """How far a calibrated logit may lie from another runtime's, by the map's steepest slope."""
    return END_TO_END * max(1.0, steepest)


def vectors_of(model: MergedModel) -> dict[str, Any]:
    """The test vectors of a model.

    Returns:
        `columns`: NAME → value of each row, which /score takes as they are: known field values,
        null, and one that is unseen; `expected`: what the model says of the rows; `tolerance`: how
        far a logit may lie from that.
    """
    encoder = model.encoder
    field = _field_columns(encoder)
    rows = len(field[encoder.field[0]])
    columns = {
        n: _repeated(_some(values), rows) for n, values in encoder.categorical.items()
    } | field
    for column in encoder.numeric:
        both = columns.get(column.name)
        numbers = _numbers(column) if both is None else [*map(_as_number, both)]
        columns[column.name] = _repeated(numbers, rows)
    said = model.predict(pa.table(columns))
    steepest = float(model.network.lines[:, 2].abs().max())
    return {
        "columns": columns,
        "expected": {name: values.tolist() for name, values in vars(said).items()},
        "tolerance": end_to_end_tolerance(steepest),
    }


def _field_columns(encoder: Encoder) -> dict[str, list[Any]]:
    """Known field values, then unseen ones of known parents."""
    keys, depth = _some(encoder.field_values), len(encoder.parents)
    unknown = [UNSEEN] * depth
    parts = (key.split(SEPARATOR) for key in _spread(encoder.field_values.parents))
    above = [*((unknown + of_key)[-depth:] for of_key in parts), *[unknown][:depth]]
    columns: dict[str, list[Any]] = {
        name: [_part(key, place, len(encoder.field)) for key in keys] + [UNSEEN] * len(above)
        for place, name in enumerate(encoder.field)
    }
    for place, name in enumerate(encoder.parents):
        of_parents = [each[place] for each in above]
        known = columns.get(name, _repeated(of_parents, len(keys)))[: len(keys)]
        columns[name] = known + of_parents
    return columns


def _some(vocabulary: Vocabulary) -> list[str | None]:
    return [*_spread(vocabulary.values), *vocabulary.pooled[:1], None, UNSEEN]


def _spread(names: Sequence[str]) -> list[str]:
    """Some names from all over, in their order."""
    places = np.linspace(0, len(names) - 1, min(VALUES, len(names))).round().astype(int)
    return [names[place] for place in dict.fromkeys(places.tolist())]


def _part(key: str | None, position: int, parts: int) -> str | None:
    return key if key is None or key == UNSEEN or parts == 1 else key.split(SEPARATOR)[position]


def _numbers(column: Scaling | LoggedScore) -> list[float]:
    if isinstance(column, LoggedScore):
        logits = np.array(LOGITS)
        return (logits if column.space == "logit" else 1 / (1 + np.exp(-logits))).tolist()
    scaled = column.mean + column.scale * np.array(DEVIATIONS)
    return (np.sign(scaled) * np.expm1(np.abs(scaled))).tolist()


def _as_number(text: str | None) -> float | None:
    """The number of a column that is read as text as well; null where it is none."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if number.is_integer() and str(int(number)) == text else None


def _repeated(values: Sequence[Any], n: int) -> list[Any]:
    return [values[row % len(values)] for row in range(n)]


Logits = tuple[np.ndarray, np.ndarray]  # uncalibrated, calibrated: [n] each


@dataclass(frozen=True)
class TorchRuntime:
    """The network in memory."""

    model: MergedModel
    name: str = "the merged model"

    @torch.inference_mode()
    def step(self, logit: np.ndarray, field_value_id: np.ndarray) -> np.ndarray:
        """The network's own step."""
        network = self.model.network
        return network.calibrate(torch.tensor(logit), torch.tensor(field_value_id)).numpy()

    def whole(self, table: pa.Table, encoded: Encoded) -> list[Logits]:
        """Raw columns."""
        prediction = self.model.predict(table)
        return [(prediction.uncalibrated_logit, prediction.calibrated_logit)]


@dataclass(frozen=True)
class TableRuntime:
    """The bare calibration table, read by numpy."""

    serving_map: PiecewiseLinearMap
    name: str = TABLE

    def step(self, logit: np.ndarray, field_value_id: np.ndarray) -> np.ndarray:
        """The map."""
        return self.serving_map(logit, field_value_id)

    def whole(self, table: pa.Table, encoded: Encoded) -> list[Logits]:
        """There is no network."""
        return []


@dataclass(frozen=True)
class OnnxRuntime:
    """The ONNX file in onnxruntime: as it is served, and cut where ids or a logit go in."""

    predict: Callable[[pa.Table], Any]
    from_ids: onnxruntime.InferenceSession
    from_logit: onnxruntime.InferenceSession
    name: str = ONNX_FILE

    def step(self, logit: np.ndarray, field_value_id: np.ndarray) -> np.ndarray:
        """The part of the graph after the uncalibrated logit."""
        inputs = {LOGIT64: logit, "field_value_id": field_value_id.astype(np.int64)}
        return self.from_logit.run(None, inputs)[0]

    def whole(self, table: pa.Table, encoded: Encoded) -> list[Logits]:
        """Raw columns, and ids."""
        scores = self.predict(table)
        inputs: dict[str, np.ndarray] = {}
        for tensor in self.from_ids.get_inputs():
            if tensor.name == IDS:
                inputs[IDS] = encoded.categorical.astype(np.int64)
            elif tensor.name.startswith(NUMBER):
                column = table.column(tensor.name.removeprefix(NUMBER))
                inputs[tensor.name] = column.cast("float64").to_numpy()
            else:
                inputs[tensor.name] = encoded.field_value_id.astype(np.int64)
        before, after = self.from_ids.run(None, inputs)
        return [(scores.uncalibrated_logit, scores.calibrated_logit), (before, after)]


Runtime: TypeAlias = TorchRuntime | TableRuntime | OnnxRuntime
"""One runtime of a model: the `name` of its file for sentences; the calibration `step` alone,
float64 [n] of logits float64 [n] and integer ids [n]; and of the `whole` the logits of rows by
every way in: raw columns, ids; none where there is no network."""


def runtimes_of(folder: Path, model: MergedModel) -> list[Runtime]:
    """Every runtime of the folder of a checkpoint, read from its files.

    Args:
        folder: a checkpoint with its exports.
        model: what `checkpoint.load` made of it.

    Raises:
        ArtifactError: a file is missing or damaged.
    """
    table = read_maps(folder / TABLE)[model.manifest["map"]]
    return [TorchRuntime(model), TableRuntime(table), _onnx(folder, model)]


def _onnx(folder: Path, model: MergedModel) -> OnnxRuntime:
    made = onnx.load(folder / ONNX_FILE)
    numbers = [f"{NUMBER}{scaling.name}" for scaling in model.encoder.numeric]
    ids = [IDS] if model.encoder.categorical else []
    logits = ["uncalibrated_logit", "calibrated_logit"]
    parts = (
        part_of(made, [*ids, *numbers, "field_value_id"], logits),
        part_of(made, [LOGIT64, "field_value_id"], [MAPPED]),
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    sessions = (onnxruntime.InferenceSession(p, options, ["CPUExecutionProvider"]) for p in parts)
    return OnnxRuntime(load_predictor(folder).predict, *sessions)


def export(model: MergedModel, folder: Path) -> None:
    """Add model.onnx and test vectors to the folder of a checkpoint, with new checksums.

    Same model, same bytes.

    Args:
        model: what `checkpoint.load` made of the folder.
        folder: the checkpoint.

    Raises:
        ArtifactError: the model does not fit into one ONNX file.
    """
    (folder / ONNX_FILE).write_bytes(onnx_model(model).SerializeToString(deterministic=True))
    write_json(folder / VECTORS_FILE, vectors_of(model))
    manifest = read_json(folder / MANIFEST)
    (folder / MANIFEST).unlink()
    write_checksums(folder, manifest)
