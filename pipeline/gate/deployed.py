"""The file that is deployed says what was measured: on raw rows of the newest test day, and on
logits of every field value what the table says, which `serving_table.falls` proves to fall nowhere.
"""

from pathlib import Path
from typing import Any

import numpy as np

from pipeline.checkpoint.serving_table import END_TO_END, onnx_step
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
"""Rows in all: with more than BUDGET / SCORES field values each gets fewer, LEAST or more."""

LEAST = 100
MARGIN = 5.0  # logits beyond the outermost knots
BATCH = 64  # field values of a call


def from_table(model: Path, table: PiecewiseLinearMap) -> float:
    """The largest difference in calibrated logit between the calibration step of model.onnx and the
    table in the checkpoint; inf where model.onnx gives what is no number.

    Args:
        model: a checkpoint with its exports.
        table: its serving map.

    Raises:
        ArtifactError: a file is missing or damaged, or the checkpoint has no model.onnx.
    """
    verified(model)
    step = onnx_step(model / ONNX_FILE)
    many = int(np.clip(BUDGET // table.n_field_values, LEAST, SCORES))
    largest = 0.0
    for start in range(0, table.n_field_values, BATCH):
        ids = np.arange(start, min(start + BATCH, table.n_field_values))
        logit, each = _scores(table.knots[ids], many).ravel(), np.repeat(ids, many)
        difference = np.abs(step(logit, each) - table(logit, each))
        largest = max(largest, float(np.nan_to_num(difference, nan=np.inf).max()))
    return largest


def _scores(knots: np.ndarray, many: int) -> np.ndarray:
    """float64 [V, many]: ascending logits from MARGIN before the first knot to MARGIN after."""
    last = np.where(knots < np.inf, knots, -np.inf).max(axis=1)
    return np.linspace(knots[:, 0] - MARGIN, last + MARGIN, many, axis=1)
