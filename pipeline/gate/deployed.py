"""The file that is deployed, on raw rows of the newest test day: it says what was measured."""

from pathlib import Path
from typing import Any

import numpy as np

from pipeline.checkpoint.serving_table import END_TO_END
from pipeline.core.checksums import MANIFEST, file_sums, refuse_others
from pipeline.core.errors import ArtifactError
from pipeline.core.files import read_json
from pipeline.formats.maps import PiecewiseLinearMap
from pipeline.formats.scores import Scores
from pipeline.serving.predictor import ServedScores

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
    refuse_others(calibrator, read_json(calibrator / MANIFEST).get("made_of", {}), parts)
    lineage = read_json(model / MANIFEST)["lineage"] or {}
    if lineage.get("calibrator") not in (None, file_sums(calibrator)):
        raise ArtifactError(f"{model} was merged of another calibrator; run dvc repro")
