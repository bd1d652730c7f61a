"""Checkpoints with random weights and vocabularies of any size, and rows for them."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.checkpoint.bundle import export, load, merge
from pipeline.core.files import manifest_sums, write_json
from pipeline.encoding.features import Encoder, Scaling
from pipeline.encoding.vocabulary import Vocabulary
from pipeline.formats.maps import from_knots, write_maps
from pipeline.formats.rolling import FILE, DayMap, write_rolling
from pipeline.model.network import BaseNetwork, initialise, network_from
from pipeline.model.scoring import write_base

FIELD_VALUES, KNOTS, SMALL = 1000, 20, 50
SMALL_COLUMNS = ("slot", "hour", "device", "region")


def names(prefix: str, n: int) -> list[str]:
    """n texts, ascending."""
    return [f"{prefix}-{number:08d}" for number in range(n)]


def make_model(folder: Path, vocabulary: int, seed: int) -> Path:
    """A checkpoint with `vocabulary` items, 1,000 advertisers (the field), four small columns."""
    encoder = Encoder(
        {
            "item": Vocabulary(tuple(names("item", vocabulary))),
            "advertiser": Vocabulary(tuple(names("advertiser", FIELD_VALUES))),
            **{name: Vocabulary(tuple(names(name, SMALL))) for name in SMALL_COLUMNS},
        },
        (Scaling("price", 3.0, 1.0, True), Scaling("age", 2.0, 1.0, False)),
        ("advertiser",),
        Vocabulary(tuple(names("advertiser", FIELD_VALUES))),
    )
    sizes = {
        "vocabulary_sizes": encoder.vocabulary_sizes,
        "n_numeric": len(encoder.numeric_columns),
        "embedding_size": 8,
        "hidden_sizes": [256, 128, 64],
    }
    network = network_from(sizes)
    assert isinstance(network, BaseNetwork)
    initialise(network, seed, response_rate=0.05)
    base, calibrator = folder / "base", folder / "calibrator"
    base.mkdir(parents=True)
    calibrator.mkdir()
    contract = {"field": ["advertiser"], "label": "click", "impressions": None}
    write_base(base, network, {"conventions": contract, "network": sizes, **encoder.manifest()})
    field_values = encoder.field_values.names
    draw = np.random.default_rng(seed)
    knots = np.sort(draw.normal(-3.0, 0.5, (len(field_values), KNOTS)), axis=1)
    values = np.cumsum(0.01 + draw.random(knots.shape) / KNOTS, axis=1) - 4.0
    ones = np.ones(len(field_values))
    serving_map = from_knots(list(knots), list(values), ones, ones)
    write_maps(calibrator / "maps.parquet", {"adacalib": serving_map})
    write_rolling(calibrator / FILE, {"adacalib": {0: DayMap.of(serving_map, np.zeros(0, int))}})
    field = encoder.manifest()["field"]
    about = {"chosen": "adacalib", "field": field, "made_of": manifest_sums({"base": base})}
    write_json(calibrator / "manifest.json", about)
    merge(base, calibrator, folder / "model")
    export(load(folder / "model"), folder / "model")
    return folder / "model"


def rows(n: int, vocabulary: int, seed: int = 0) -> pa.Table:
    """Rows of which 1 % have items and advertisers that nobody has seen."""
    draw = np.random.default_rng(seed)
    columns = {}
    for name, size in (
        ("item", vocabulary),
        ("advertiser", FIELD_VALUES),
        *((name, SMALL) for name in SMALL_COLUMNS),
    ):
        texts = np.array(names(name, size) + names("new", max(1, size // 100)), dtype=object)
        columns[name] = pa.array(texts[draw.integers(0, len(texts), n)], pa.string())
    columns["price"] = pa.array(draw.gamma(2.0, 10.0, n))
    columns["age"] = pa.array(draw.integers(0, 90, n))
    return pa.table(columns)


def request_bodies(n: int, rows_each: int, vocabulary: int) -> list[bytes]:
    """n JSON bodies for /score."""
    table = rows(n * rows_each, vocabulary)
    return [
        json.dumps({"columns": table.slice(i * rows_each, rows_each).to_pydict()}).encode()
        for i in range(n)
    ]
