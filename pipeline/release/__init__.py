"""From a fitted calibrator to production: one checkpoint, the gate, the registry, promotion."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.serving.predictor import Predictor


def load(folder: str | Path, threads: int = 1) -> "Predictor":
    """The model of a checkpoint folder, after its checksums; `.predict(table)` scores rows.

    It runs the ONNX file that is deployed and needs numpy, pyarrow and onnxruntime, no torch.

    Args:
        folder: a checkpoint, for example artifacts/model or what `adacalib pull` brought.
        threads: of one call; 0 = as many as there are cores.

    Raises:
        ArtifactError: a file is missing, damaged or of another format.
    """
    from pipeline.serving.predictor import load as load_predictor  # only who scores pays for it

    return load_predictor(Path(folder), threads)
