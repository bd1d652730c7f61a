"""The monotonicity probe: does the deployed file fall anywhere, is it what the table says?"""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from pipeline.checkpoint.serving_table import LARGEST_FALL, LOGIT64, MAPPED, part_of, read_table
from pipeline.serving.predictor import ONNX_FILE, verified

SCORES = 10_000
"""Logits that are looked at for every field value."""

BUDGET = 50_000_000
"""Rows of a probe: with more than BUDGET / SCORES field values each gets fewer, LEAST or more.
Between its knots the map is a line, which `serving_table.falls` proves on all of them."""

LEAST = 100
MARGIN = 5.0  # logits beyond the outermost knots
BATCH = 64  # field values of a call


def probe(model: Path, field_values: list[str | None]) -> tuple[list[str], float]:
    """What is wrong with the calibration step of model.onnx, and its distance from the table.

    Args:
        model: a checkpoint with its exports.
        field_values: text of each field value id, the first None.

    Returns:
        A sentence for each field value whose calibrated logit falls by more than LARGEST_FALL from
        one score to the next; and the largest difference in calibrated logit between model.onnx and
        the table in the checkpoint, inf where model.onnx gives what is no number.

    Raises:
        ArtifactError: a file is missing or damaged, or the checkpoint has no model.onnx.
    """
    verified(model)
    session = _calibration_step(model / ONNX_FILE)
    table = read_table(model, len(field_values))
    many = int(np.clip(BUDGET // len(field_values), LEAST, SCORES))
    sentences, distance = [], 0.0
    for start in range(0, len(field_values), BATCH):
        ids = np.arange(start, min(start + BATCH, len(field_values)))
        logit = _scores(table.knots[ids], many)
        each = np.repeat(ids, many)
        inputs = {LOGIT64: logit.ravel(), "field_value_id": each.astype(np.int64)}
        heights = session.run(None, inputs)[0].astype(np.float64)
        difference = np.abs(heights - table(logit.ravel(), each))
        distance = max(distance, float(np.nan_to_num(difference, nan=np.inf).max()))
        rows = heights.reshape(len(ids), many)
        sentences += _falls(rows, logit, [field_values[i] for i in ids])
    return sentences, distance


def _calibration_step(path: Path) -> onnxruntime.InferenceSession:
    part = part_of(onnx.load(path), [LOGIT64, "field_value_id"], [MAPPED])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(part, options, ["CPUExecutionProvider"])


def _scores(knots: np.ndarray, many: int) -> np.ndarray:
    """float64 [V, many]: ascending logits from MARGIN before the first knot to MARGIN after."""
    last = np.where(knots < np.inf, knots, -np.inf).max(axis=1)
    return np.linspace(knots[:, 0] - MARGIN, last + MARGIN, many, axis=1)


def _falls(heights: np.ndarray, logit: np.ndarray, names: list[str | None]) -> list[str]:
    drops = heights[:, :-1] - heights[:, 1:]
    worst = np.nanargmax(np.where(np.isnan(drops), -np.inf, drops), axis=1)
    sentences = []
    for row in np.flatnonzero((drops > LARGEST_FALL).any(axis=1)):
        at = worst[row]
        name = "the row of unseen values" if names[row] is None else f"field value {names[row]!r}"
        sentences.append(
            f"{ONNX_FILE}: the calibrated logit of {name} falls by {drops[row, at]:.3g} between "
            f"the scores {logit[row, at]:.6g} and {logit[row, at + 1]:.6g}"
        )
    return sentences
