"""The forms in which a model is published, each as functions that can be held to one another."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx
import onnxruntime
import pyarrow as pa
import torch
from torch.fx import Interpreter

from pipeline.checkpoint.bundle import TABLE
from pipeline.checkpoint.exports import PROGRAM_FILE
from pipeline.checkpoint.merged_model import MergedModel
from pipeline.checkpoint.onnx_parts import IDS, LOGIT64, MAPPED, part_of
from pipeline.encoding.features import Encoded
from pipeline.formats.maps import PiecewiseLinearMap, read_maps
from pipeline.serving.predictor import NUMBER, ONNX_FILE
from pipeline.serving.predictor import load as load_predictor

Logits = tuple[np.ndarray, np.ndarray]  # uncalibrated, calibrated: [n] each


class Form(Protocol):
    """One form of a model."""

    @property
    def name(self) -> str:
        """Its file, for sentences."""

    def step(self, logit: np.ndarray, field_value_id: np.ndarray) -> np.ndarray:
        """The calibration step alone: float64 [n] of logits float64 [n] and integer ids [n]."""

    def whole(self, table: pa.Table, encoded: Encoded) -> list[Logits]:
        """The logits of rows by every way in: raw columns, ids; none where there is no network."""


@dataclass(frozen=True)
class Merged:
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
class Table:
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
class Program:
    """The exported program; its step begins where the graph has the uncalibrated logit."""

    module: Any
    model: MergedModel
    name: str = PROGRAM_FILE

    @torch.inference_mode()
    def step(self, logit: np.ndarray, field_value_id: np.ndarray) -> np.ndarray:
        """The graph with the uncalibrated logit put in, less the auxiliary term of empty rows."""
        encoder, nodes = self.model.encoder, self.module.graph.nodes
        rows = len(logit)
        ids = torch.zeros(rows, len(encoder.categorical), dtype=torch.int64)
        numbers = torch.zeros(rows, len(encoder.numeric_columns))
        (results,) = (node.args[0] for node in nodes if node.op == "output")
        # The logit is float32 there, and the step takes float64 as well: no guard against it.
        known = {n: None for n in nodes if "_assert_tensor_metadata" in str(n.target)}
        known |= {results[0]: torch.tensor(logit)}
        arguments = ids, numbers, torch.tensor(field_value_id).long()
        calibrated = Interpreter(self.module).run(*arguments, initial_env=known)[1]
        if self.model.network.auxiliary is not None:
            calibrated = calibrated - self.model.network.auxiliary(ids, numbers).double()
        return calibrated.numpy()

    @torch.inference_mode()
    def whole(self, table: pa.Table, encoded: Encoded) -> list[Logits]:
        """Ids."""
        arrays = encoded.categorical, encoded.numeric, encoded.field_value_id
        categorical, numeric, field_value_id = map(torch.tensor, arrays)
        before, after = self.module(categorical.long(), numeric, field_value_id.long())
        return [(before.numpy(), after.numpy())]


@dataclass(frozen=True)
class Onnx:
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


def forms_of(folder: Path, model: MergedModel) -> list[Form]:
    """Every form in the folder of a checkpoint, read from its files.

    Args:
        folder: a checkpoint with its exports.
        model: what `checkpoint.load` made of it.

    Raises:
        ArtifactError: a file is missing or damaged.
    """
    table = read_maps(folder / TABLE)[model.manifest["map"]]
    program = torch.export.load(folder / PROGRAM_FILE).module()
    return [Merged(model), Table(table), Program(program, model), _onnx(folder, model)]


def _onnx(folder: Path, model: MergedModel) -> Onnx:
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
    return Onnx(load_predictor(folder).predict, *sessions)
