"""What a checkpoint was made from: rows, parameters, code, libraries. No clock, host or commit.

A commit would change the model's bytes though nothing changed that made them; the registry's tag
names it. Here is what the bytes depend on, and `dvc.yaml` lists the same as dependencies.
"""

from importlib.metadata import version
from pathlib import Path
from typing import Any

from pipeline.core.checksums import MANIFEST, file_sums
from pipeline.core.files import read_json, sha256_of
from pipeline.params.dag import code_of

PROJECT = Path(__file__).parents[2]
LIBRARIES = ("numpy", "onnx", "pyarrow", "safetensors", "scikit-learn", "scipy", "torch")
"""Libraries whose version may decide bytes."""


def lineage_of(split: Path, base: Path, calibrator: Path, params: dict[str, Any]) -> dict[str, Any]:
    """The lineage of what is merged of a base and a calibrator, equal on every machine.

    Args:
        split: folder that `split` left.
        base: folder that `train_base` left.
        calibrator: folder that `calibrate` left.
        params: of `merge`.

    Returns:
        `base` and `calibrator`: file → sha256; `data`: the days of each part, and day → sha256 of
        its rows; `params`: stage → its section of params.yaml; `code`: file → sha256, of every
        stage from `split` to `merge`; `libraries`: name → version of those that merged.

    Raises:
        ArtifactError: a manifest is missing or damaged.
        AdaCalibError: the project has no dvc.yaml.
    """
    folders = (split, base, calibrator)
    divided, *made = [read_json(folder / MANIFEST) for folder in folders]
    sections: dict[str, Any] = {}
    for manifest in (divided, *made):
        sections |= manifest.get("params", {})
    return {
        "base": file_sums(base),
        "calibrator": file_sums(calibrator),
        "data": {"days": divided["parts"], "content_sha256": divided.get("data", {})},
        "params": sections | {"merge": params},
        "code": {
            path.relative_to(PROJECT).as_posix(): sha256_of(path)
            for path in code_of(PROJECT, "merge")
        },
        "libraries": {name: version(name).partition("+")[0] for name in LIBRARIES},
    }
