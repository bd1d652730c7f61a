"""Scored days on disk: one Parquet file a day with canonical columns, and a manifest."""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.errors import ArtifactError, DataError
from pipeline.core.files import read_json, sha256_of, write_json
from pipeline.formats.days import day_number
from pipeline.formats.scores import Scores

MANIFEST = "manifest.json"
COLUMNS = {
    "uncalibrated_logit": pa.float32(),
    "field_value_id": pa.int32(),
    "impressions": pa.int32(),
    "responses": pa.int32(),
}


def _file(folder: Path, day: str) -> Path:
    return folder / f"day={day}.parquet"


def write_day(
    folder: Path, day: str, scores: Scores, features: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """Write the scored rows of one day; what the manifest keeps of them comes back.

    Args:
        folder: an existing folder that is not published yet.
        day: "YYYY-MM-DD".
        scores: the day's rows.
        features: column → int32 or float32 [n], as `feature_columns` names them; empty: none kept.

    Returns:
        rows, impressions, responses and the sha256 of the file.

    Raises:
        DataError: a feature has another number of rows, or a row is of another day.
    """
    odd = {name: len(column) for name, column in features.items() if len(column) != len(scores)}
    if odd or (scores.day != day_number(day)).any():
        raise DataError(
            f"day {day}: {len(scores)} scored rows of that day alone are wanted"
            + (f", features have {odd}" if odd else "")
        )
    arrays = {name: _array(getattr(scores, name), kind) for name, kind in COLUMNS.items()}
    arrays |= {name: pa.array(column) for name, column in features.items()}
    pq.write_table(pa.table(arrays), _file(folder, day), compression="zstd")
    return {
        "rows": len(scores),
        "impressions": _total(scores.impressions),
        "responses": _total(scores.responses),
        "sha256": sha256_of(_file(folder, day)),
    }


def _array(column: np.ndarray, kind: pa.DataType) -> pa.Array:
    """A column as its kind; counts that do not fit, of a sampled log, as int64 or float64."""
    if np.issubdtype(column.dtype, np.floating) and pa.types.is_integer(kind):
        return pa.array(column, pa.float64())
    if column.dtype == np.int64 and len(column) and column.max() > np.iinfo(np.int32).max:
        return pa.array(column, pa.int64())
    return pa.array(column, kind)


def _total(column: np.ndarray) -> int | float:
    fractional = np.issubdtype(column.dtype, np.floating)
    return float(column.sum()) if fractional else int(column.sum(dtype=np.int64))


def feature_columns(categorical: Sequence[str], numeric: Sequence[str]) -> list[str]:
    """The names under which encoded features travel, in the order of the network's inputs."""
    return [f"categorical.{name}" for name in categorical] + [f"numeric.{name}" for name in numeric]


def write_scores_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest: parts, days, field_values, features and conventions."""
    write_json(folder / MANIFEST, manifest)


def read_scores_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of scored days.

    It holds `parts` (part → days), `days` (day → what `write_day` returned and the rows whose field
    value was null or unseen), `field_values` (index = id, the first null), `features`
    ({"categorical": [{"name", "size"}], "numeric": [names]}, empty lists where none were kept) and
    `conventions`.

    Raises:
        ArtifactError: it is missing or damaged.
    """
    return read_json(folder / MANIFEST)


def read_scores(folder: Path, *parts: str) -> Scores:
    """The scored rows of `parts`, part by part, each in the order of its days.

    Raises:
        ArtifactError: a part is unknown, or a day's file is missing or not the one that was scored.
    """
    manifest = read_scores_manifest(folder)
    days = _days(folder, manifest, parts)
    rows = [manifest["days"][day]["rows"] for day in days]
    tables = list(_tables(folder, manifest, days, list(COLUMNS)))
    columns = {name: _joined(tables, name, kind) for name, kind in COLUMNS.items()}
    numbers = np.repeat(np.array([day_number(day) for day in days], dtype=np.int32), rows)
    return Scores(**columns, day=numbers, n_field_values=len(manifest["field_values"]))


def read_day(folder: Path, manifest: Mapping[str, Any], day: str) -> Scores:
    """The scored rows of one day, for work that holds a day at a time.

    Raises:
        ArtifactError: the day's file is missing or not the one that was scored.
    """
    columns = read_day_columns(folder, manifest, day, list(COLUMNS))
    number = np.full(manifest["days"][day]["rows"], day_number(day), dtype=np.int32)
    return Scores(**columns, day=number, n_field_values=len(manifest["field_values"]))


def read_day_columns(
    folder: Path, manifest: Mapping[str, Any], day: str, names: list[str]
) -> dict[str, np.ndarray]:
    """Some of the canonical columns of one day.

    Raises:
        ArtifactError: the day's file is missing or not the one that was scored.
    """
    (table,) = _tables(folder, manifest, [day], names)
    return {name: table.column(name).to_numpy() for name in names}


def read_features(folder: Path, *parts: str) -> tuple[np.ndarray, np.ndarray]:
    """The encoded features of the same rows in the same order: int32 [n, C] and float32 [n, N].

    Raises:
        ArtifactError: as `read_scores`, or the features were not kept.
    """
    manifest = read_scores_manifest(folder)
    features = manifest["features"]
    categorical = [feature["name"] for feature in features["categorical"]]
    names = feature_columns(categorical, features["numeric"])
    if not names:
        raise ArtifactError(
            f"{folder} holds no features; set score.keep_features and run dvc repro score"
        )
    tables = list(_tables(folder, manifest, _days(folder, manifest, parts), names))
    integers, floats = names[: len(categorical)], names[len(categorical) :]
    rows = sum(table.num_rows for table in tables)
    ids, numbers = np.empty((rows, len(integers)), np.int32), np.empty((rows, len(floats)), "f4")
    for position, name in enumerate(integers):
        ids[:, position] = _joined(tables, name, pa.int32())
    for position, name in enumerate(floats):
        numbers[:, position] = _joined(tables, name, pa.float32())
    return ids, numbers


def _days(folder: Path, manifest: Mapping[str, Any], parts: Sequence[str]) -> list[str]:
    unknown = [part for part in parts if part not in manifest["parts"]]
    if unknown:
        raise ArtifactError(
            f"{folder} has the parts {sorted(manifest['parts'])}, not {unknown[0]!r}"
        )
    return [day for part in parts for day in manifest["parts"][part]]


def _tables(
    folder: Path, manifest: Mapping[str, Any], days: Sequence[str], columns: list[str]
) -> Iterator[pa.Table]:
    for day in days:
        path, expected = _file(folder, day), manifest["days"][day]["sha256"]
        content = path.read_bytes() if path.is_file() else b""
        if sha256(content).hexdigest() != expected:
            raise ArtifactError(
                f"{path} is missing or not the file that was scored; run dvc repro score"
            )
        yield pq.ParquetFile(pa.BufferReader(content)).read(columns)


def _joined(tables: Sequence[pa.Table], name: str, kind: pa.DataType) -> np.ndarray:
    """One column over all tables, as an array that can be written to."""
    parts = [table.column(name).to_numpy() for table in tables]
    return np.concatenate([np.empty(0, kind.to_pandas_dtype()), *parts])
