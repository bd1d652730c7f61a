"""ONE checkpoint: base network, vocabularies, serving table, conventions, lineage, checksums."""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from pipeline.checkpoint.merged_model import MergedModel, vectors_of
from pipeline.checkpoint.onnx_graph import onnx_model
from pipeline.checkpoint.serving_table import TABLE, read_table
from pipeline.core import files
from pipeline.core.errors import ArtifactError
from pipeline.core.files import MANIFEST, json_sha256, read_json, sha256_of, write_json
from pipeline.encoding.features import Encoder
from pipeline.formats.maps import PROBABILITY_CLIP, read_maps, write_maps
from pipeline.formats.rolling import FILE, read_rolling, write_rolling
from pipeline.model.network import fill, network_from
from pipeline.model.scoring import WEIGHTS, base_state
from pipeline.params.params_file import code_of
from pipeline.serving.predictor import ONNX_FILE, VECTORS_FILE

PROJECT = Path(__file__).parents[2]
LIBRARIES = ("numpy", "onnx", "pyarrow", "safetensors", "scikit-learn", "scipy", "torch")
"""Libraries whose version may decide bytes."""

KNOWN_ELSEWHERE = (  # of a calibrator: in the lineage or with the field, or evidence
    "params", "field", "made_of", "label_days", "learning_days", "responses",
)  # fmt: skip
FORMAT = "adacalib model 1"
BASE, AUXILIARY = "base.", "auxiliary."

SERVING = {
    "unseen_field_value": "its nearest known parent's map, else that of field value id 0",
    "null_field_value": "its nearest known parent's map, else its own, else that of id 0",
    "out_of_range_logit": "the line beyond the outermost knot goes on with its own slope",
    "probability_clip": PROBABILITY_CLIP,
    "dtypes": {
        "uncalibrated_logit": "float32",
        "calibrated_logit": "float64",
        "probability": "float64",
        "field_value_id": "int32",
    },
}


def merge(
    base_folder: Path,
    calibrator_folder: Path,
    target: Path,
    lineage: Mapping[str, Any] | None = None,
) -> None:
    """Write the checkpoint of a base model and its chosen calibrator into a new folder.

    The calibrator's rolling maps come along: by them a later run holds its own procedure against
    this one, on days that the map which serves has learned from.

    Same parts, same bytes: nothing in it depends on when or where it was made.

    Args:
        base_folder: what `train_base` left.
        calibrator_folder: what `calibrate` left.
        target: the folder to make.
        lineage: `lineage_of` the parts; None where nothing is known of them.

    Raises:
        ArtifactError: a part is missing or damaged, or the two were not made for each other.
    """
    base, base_tensors = base_state(base_folder)
    calibrator = read_json(calibrator_folder / MANIFEST)
    files.refuse_others(calibrator_folder, {"base": base_folder})
    base["field"] = calibrator["field"]
    maps, chosen = read_maps(calibrator_folder / "maps.parquet"), calibrator["chosen"]
    sizes = {name: one.n_field_values for name, one in maps.items()}
    if sizes.get(chosen) != len(base["field"]["values"]):
        raise ArtifactError(
            f"{calibrator_folder} chose the map {chosen!r} of {len(base['field']['values'])} field "
            f"values and holds {sizes}; run dvc repro calibrate"
        )
    rolling = read_rolling(calibrator_folder / FILE)
    ships = chosen == "adacalib" and calibrator.get("auxiliary")
    auxiliary = _auxiliary_tensors(calibrator_folder) if ships else {}
    target.mkdir()
    parts = {BASE: base_tensors, AUXILIARY: auxiliary}
    tensors = {f"{prefix}{n}": t for prefix, part in parts.items() for n, t in part.items()}
    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    (target / WEIGHTS).write_bytes(save(whole))
    write_maps(target / TABLE, {chosen: maps[chosen]}, base["field"]["values"])
    write_rolling(target / FILE, {chosen: rolling[chosen]})
    known = json_sha256([base["categorical"], base["field"]])
    files.write_checksums(
        target,
        {
            "format": FORMAT,
            "map": chosen,
            "auxiliary": bool(auxiliary),
            "base": {name: said for name, said in base.items() if name != "params"},
            "calibrator": {n: said for n, said in calibrator.items() if n not in KNOWN_ELSEWHERE},
            "conventions": base["conventions"] | {"serving": SERVING, "vocabulary_sha256": known},
            "lineage": lineage,
        },
    )


def _auxiliary_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """The weights of AdaCalib's auxiliary network.

    Raises:
        ArtifactError: the file is missing or damaged.
    """
    path = folder / "auxiliary.safetensors"
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ArtifactError(
            f"{path} is missing or damaged ({error}); run dvc repro calibrate"
        ) from None


def _below(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def load(folder: Path) -> MergedModel:
    """The model of a checkpoint folder, after every byte in it was found as it was written.

    Raises:
        ArtifactError: a file is missing or damaged, or the checkpoint has another format.
    """
    manifest = files.verify(folder)
    if manifest["format"] != FORMAT:
        raise ArtifactError(
            f"{folder / MANIFEST} has format {manifest['format']!r}, not {FORMAT!r}; rerun merge"
        )
    tensors = load_file(folder / WEIGHTS)
    encoder = Encoder.from_manifest(manifest["base"])
    network = network_from(manifest["base"]["network"])
    fill(network, _below(BASE, tensors), folder / WEIGHTS)
    serving_map = read_table(folder, len(encoder.field_values.names))
    auxiliary = None
    if manifest["auxiliary"]:
        from pipeline.calibration.paper.paper_network import AuxiliaryNetwork

        auxiliary = AuxiliaryNetwork(encoder.vocabulary_sizes, len(encoder.numeric_columns)).eval()
        fill(auxiliary, _below(AUXILIARY, tensors), folder / WEIGHTS)
    return MergedModel(manifest, encoder, network.eval(), serving_map, auxiliary)


def export(model: MergedModel, folder: Path) -> None:
    """Add model.onnx and test vectors to the folder of a checkpoint, with new checksums.

    Same model, same bytes.

    Args:
        model: what `load` made of the folder.
        folder: the checkpoint.

    Raises:
        ArtifactError: the model does not fit into one ONNX file.
    """
    (folder / ONNX_FILE).write_bytes(onnx_model(model).SerializeToString(deterministic=True))
    write_json(folder / VECTORS_FILE, vectors_of(model))
    manifest = read_json(folder / MANIFEST)
    (folder / MANIFEST).unlink()
    files.write_checksums(folder, manifest)


def lineage_of(split: Path, base: Path, calibrator: Path, params: dict[str, Any]) -> dict[str, Any]:
    """The lineage of what is merged of a base and a calibrator, equal on every machine.

    No clock, host or commit is in it: a commit would change the model's bytes though nothing
    changed that made them; the registry's tag names it. `dvc.yaml` lists the same as dependencies.

    Args:
        split: folder that `split` left.
        base: folder that `train_base` left.
        calibrator: folder that `calibrate` left.
        params: of `merge`.

    Returns:
        `base` and `calibrator`: file → sha256; `data`: the days of each split, day → sha256 of its
        rows, and every day whose labels the calibrator used (`label_days`); `params`: stage → its
        section of params.yaml; `code`: file → sha256, of every stage from `split` to `merge`;
        `libraries`: name → version of those that merged.

    Raises:
        ArtifactError: a manifest is missing or damaged.
        AdaCalibError: the project has no dvc.yaml.
    """
    manifests = [read_json(folder / MANIFEST) for folder in (split, base, calibrator)]
    sections = {name: said for each in manifests for name, said in each.get("params", {}).items()}
    return {
        "base": files.file_sums(base),
        "calibrator": files.file_sums(calibrator),
        "data": {
            "days": manifests[0]["parts"],
            "content_sha256": manifests[0].get("data", {}),
            "label_days": manifests[-1]["label_days"],
        },
        "params": sections | {"merge": params},
        "code": {
            path.relative_to(PROJECT).as_posix(): sha256_of(path)
            for path in code_of(PROJECT, "merge")
        },
        "libraries": {name: version(name).partition("+")[0] for name in LIBRARIES},
    }
