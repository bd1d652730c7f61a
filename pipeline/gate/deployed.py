"""The file that is deployed, on raw rows of the newest test day: it says what was measured.

The monotonicity probe: does the deployed file fall anywhere, is it what the table says?
"""

from pathlib import Path
from typing import Any

import numpy as np

from pipeline.checkpoint.serving_table import END_TO_END, LARGEST_FALL, onnx_step, read_table
from pipeline.core.errors import ArtifactError
from pipeline.core.files import MANIFEST, file_sums, read_json, refuse_others
from pipeline.formats.maps import PiecewiseLinearMap
from pipeline.formats.scores import Scores
from pipeline.serving.predictor import ONNX_FILE, ServedScores, verified

PARITY = 1e-6  # in calibrated logit from equal logits


def prove_deployed(
    served: ServedScores, stored: Scores, serving_map: PiecewiseLinearMap | None
) -> dict[str, Any]:
    """How far the deployed file is from the stored scores and from the shipped map, on a day.

    Args:
        served: what the deployed file says of the day's raw rows.
        stored: the same rows as they were scored.
        serving_map: what ships; None where features are added to it, which no map holds.

    Returns:
        `rows`, and the largest difference in `uncalibrated_logit` and `calibrated_logit`.

    Raises:
        ArtifactError: the rows are others, or a difference is larger than merge allows.
    """
    if not np.array_equal(served.field_value_id, stored.field_value_id):
        raise ArtifactError(
            "model.onnx reads other field values from the newest test day than artifacts/scores "
            "holds; run dvc repro"
        )
    apart = {"uncalibrated_logit": (served.uncalibrated_logit, stored.uncalibrated_logit)}
    if serving_map:
        mapped = serving_map(served.uncalibrated_logit, served.field_value_id)
        apart["calibrated_logit"] = (served.calibrated_logit, mapped)
    found = {name: float(np.abs(a - b).max(initial=0.0)) for name, (a, b) in apart.items()}
    limits = {"uncalibrated_logit": END_TO_END, "calibrated_logit": PARITY}
    for name, largest in found.items():
        if not largest <= limits[name]:  # so that NaN is refused too
            raise ArtifactError(
                f"model.onnx is not what was measured: on the newest test day its {name} differs "
                f"by {largest:.3g}, at most {limits[name]:g} is allowed; run dvc repro merge"
            )
    return {"rows": len(stored), **found}


def refuse_another_run(calibrator: Path, parts: dict[str, Path], model: Path) -> None:
    """Refuse a calibrator and a model that were not made of one another, or of these parts.

    Args:
        calibrator: its folder.
        parts: what it was made of, by name.
        model: the checkpoint.

    Raises:
        ArtifactError: one is of another run.
    """
    refuse_others(calibrator, parts)
    lineage = read_json(model / MANIFEST)["lineage"] or {}
    if lineage.get("calibrator") not in (None, file_sums(calibrator)):
        raise ArtifactError(f"{model} was merged of another calibrator; run dvc repro")


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
    step = onnx_step(model / ONNX_FILE)
    table = read_table(model, len(field_values))
    many = int(np.clip(BUDGET // len(field_values), LEAST, SCORES))
    sentences, distance = [], 0.0
    for start in range(0, len(field_values), BATCH):
        ids = np.arange(start, min(start + BATCH, len(field_values)))
        logit = _scores(table.knots[ids], many)
        each = np.repeat(ids, many)
        heights = step(logit.ravel(), each).astype(np.float64)
        difference = np.abs(heights - table(logit.ravel(), each))
        distance = max(distance, float(np.nan_to_num(difference, nan=np.inf).max()))
        rows = heights.reshape(len(ids), many)
        sentences += _falls(rows, logit, [field_values[i] for i in ids])
    return sentences, distance


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
