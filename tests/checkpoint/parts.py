"""Small base models, calibrators and logs to merge."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from safetensors.torch import save_file

from pipeline.checkpoint.bundle import load, merge
from pipeline.checkpoint.onnx_graph import onnx_model
from pipeline.core.files import MANIFEST, manifest_sums, read_json, write_checksums, write_json
from pipeline.encoding.features import Encoder, Scaling
from pipeline.encoding.vocabulary import Vocabulary
from pipeline.formats.days import day_number
from pipeline.formats.maps import PiecewiseLinearMap, from_knots, write_maps
from pipeline.formats.rolling import FILE, DayMap, write_rolling
from pipeline.model.network import initialise, network_from
from pipeline.model.scoring import Base, load_base, write_base
from pipeline.serving.predictor import ONNX_FILE

CARRIERS = ("AA", "B6", "DL", "UA")
CONVENTIONS = {
    "time_zone": "UTC",
    "label": "late",
    "impressions": None,
    "field": ["carrier"],
    "categorical": ["carrier", "origin"],
    "numeric": ["distance"],
    "truth": None,
}


def rows(n: int, seed: int = 0) -> pa.Table:
    """Rows of a log, with carriers that are null and that nobody has seen among them."""
    draw = np.random.default_rng(seed)
    carriers = np.array([*CARRIERS, "ZZ", None], dtype=object)
    return pa.table(
        {
            "late": pa.array(draw.integers(0, 2, n), pa.int64()),
            "carrier": pa.array(carriers[draw.integers(0, len(carriers), n)], pa.string()),
            "origin": pa.array(np.array(["EWR", "JFK"])[draw.integers(0, 2, n)], pa.string()),
            "distance": pa.array(draw.gamma(2.0, 500.0, n)),
        }
    )


def bent_map(n_field_values: int, seed: int = 0, knots: int = 6) -> PiecewiseLinearMap:
    """A map with another increasing line-plot, of another number of knots, for each value."""
    draw = np.random.default_rng(seed)
    widths = [1 + (value % knots) for value in range(n_field_values)]
    at = [np.cumsum(0.1 + draw.random(width)) - 3 for width in widths]
    values = [np.cumsum(0.05 + draw.random(width)) - 3 for width in widths]
    slopes = 0.2 + draw.random((2, n_field_values))
    return from_knots(at, values, slopes[0], slopes[1])


def write_parts(
    folder: Path,
    serving_map: PiecewiseLinearMap | None = None,
    chosen: str = "adacalib",
    known: tuple[str, ...] = CARRIERS,
) -> tuple[Path, Path]:
    """The folders of a base model with random weights and of a calibrator fitted to nothing.

    Only the calibrator has field values, those that are `known`.
    """
    encoder = Encoder(
        {"carrier": Vocabulary(CARRIERS), "origin": Vocabulary(("EWR", "JFK"))},
        (Scaling("distance", 6.5, 0.8, True),),
        ("carrier",),
    )
    sizes = {
        "vocabulary_sizes": encoder.vocabulary_sizes,
        "n_numeric": len(encoder.numeric_columns),
        "embedding_size": 4,
        "hidden_sizes": [16, 8, 4],
    }
    network = network_from(sizes)
    initialise(network, seed=1, response_rate=0.2)
    base, calibrator = folder / "base", folder / "calibrator"
    base.mkdir(parents=True)
    days = {"fitting": ["2013-09-19"], "held_out": ["2013-09-20"]}
    manifest = {"conventions": CONVENTIONS, "network": sizes, "days": days, **encoder.manifest()}
    write_base(base, network, manifest)
    whole = serving_map or bent_map(len(known) + 1)
    field = replace(encoder, field_values=Vocabulary(known)).manifest()["field"]
    about = {"chosen": chosen, "field": field, "made_of": manifest_sums({"base": base})}
    write_calibrator(calibrator, {chosen: whole}, {chosen: {"2013-09-30": whole}}, about)
    return base, calibrator


def load_parts(base: Path, calibrator: Path) -> Base:
    """The base model, with the field values that the calibrator knows."""
    return load_base(base, read_json(calibrator / "manifest.json")["field"])


def write_calibrator(
    folder: Path,
    maps: Mapping[str, PiecewiseLinearMap],
    rolling: Mapping[str, Mapping[str, PiecewiseLinearMap]],
    about: Mapping[str, Any],
) -> None:
    """A calibrator's folder: maps that ship and were frozen, and method → day → whole map."""
    folder.mkdir(exist_ok=True)
    for name in ("maps", "frozen"):
        write_maps(folder / f"{name}.parquet", maps)
    everyone = np.arange(next(iter(maps.values())).n_field_values)
    of_days = {
        name: {day_number(day): DayMap.of(whole, everyone) for day, whole in days.items()}
        for name, days in rolling.items()
    }
    write_rolling(folder / FILE, of_days)
    write_json(folder / "manifest.json", {"label_days": [], "guard": {"newest": None}} | about)


def write_model(
    base: Path, calibrator: Path, folder: Path, lineage: dict[str, Any] | None = None
) -> None:
    """The checkpoint of two parts with the ONNX file that serves it, the only export it gets."""
    merge(base, calibrator, folder, lineage)
    content = onnx_model(load(folder)).SerializeToString(deterministic=True)
    (folder / ONNX_FILE).write_bytes(content)
    write_sums(folder)


def write_sums(folder: Path) -> None:
    """The manifest of a checkpoint again, after a file of it was changed."""
    manifest = read_json(folder / MANIFEST)
    (folder / MANIFEST).unlink()
    write_checksums(folder, {key: manifest[key] for key in manifest.keys() - {"files", "sha256"}})


def add_auxiliary(calibrator: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Give a calibrator the weights of an auxiliary network."""
    save_file(tensors, calibrator / "auxiliary.safetensors")
    about = read_json(calibrator / "manifest.json")
    write_json(calibrator / "manifest.json", about | {"auxiliary": True})
