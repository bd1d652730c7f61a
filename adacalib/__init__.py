"""AdaCalib for people who import it: the calibrator for notebooks, and models that were published.

from adacalib import AdaCalib, load
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.calibration.sklearn import AdaCalib
    from pipeline.serving.predictor import Predictor

__all__ = ["AdaCalib", "load"]


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


def __getattr__(name: str) -> Any:
    """`AdaCalib`, imported when it is first asked for: it needs torch, a serving host has none.

    Raises:
        ImportError: a package that fitting needs is not installed.
        AttributeError: there is no such name.
    """
    if name != "AdaCalib":
        raise AttributeError(f"module 'adacalib' has no attribute {name!r}")
    try:
        from pipeline.calibration.sklearn import AdaCalib
    except ModuleNotFoundError as error:
        raise ImportError(
            f"adacalib.AdaCalib needs the package {error.name}, which is not installed; "
            "activate the project's environment, or pip install '.[pipeline]' in its clone"
        ) from error
    return AdaCalib
