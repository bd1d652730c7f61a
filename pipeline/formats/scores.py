"""Scores: what every stage after `score` works on, in memory and on disk.

Columns have canonical names from here on.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.columns import Columns, Float32, Int32, joined, read_columns
from pipeline.core.errors import ArtifactError, DataError
from pipeline.core.files import publish, read_json, write_facts
from pipeline.formats.days import day_number

WEIGHT_UNIT = 2**20  # weights are multiples of 1 / this, so that sums are exact in any order
LARGEST_WEIGHT = 2**20


@dataclass(frozen=True)
class Scores(Columns):
    """Rows of a scored log. One row is one impression, or `impressions` impressions at one logit.

    Attributes:
        uncalibrated_logit: float32 [n], the base model's log-odds, finite.
        field_value_id: int32 [n] in [0, n_field_values); 0 = unseen.
        impressions: int32 or int64 [n], >= 0; all ones when a row is one impression. Of a sampled
            log float64: what the rows stand for before sampling, multiples of 1 / WEIGHT_UNIT.
        responses: same dtype family [n], 0 <= responses <= impressions.
        day: int32 [n], days since 1970-01-01.
        n_field_values: number of ids, the row of id 0 included.
    """

    uncalibrated_logit: Float32
    field_value_id: Int32
    impressions: Int32
    responses: Int32
    day: Int32
    n_field_values: int

    def __post_init__(self) -> None:
        super().__post_init__()
        finite, ids = np.isfinite(self.uncalibrated_logit), self.field_value_id
        if not finite.all():
            row = int(np.argmin(finite))
            value = self.uncalibrated_logit[row]
            raise DataError(f"uncalibrated_logit must be finite, row {row} has {value}")
        if len(self) and not (ids.min() >= 0 and ids.max() < self.n_field_values):
            raise DataError(f"field_value_id must lie in [0, {self.n_field_values})")
        wrong = (self.responses > self.impressions) | (self.responses < 0)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DataError(
                f"responses must lie in [0, impressions], row {row} has "
                f"{self.responses[row]} of {self.impressions[row]}"
            )


def keep_rate_of(conventions: Mapping[str, Any], split: str) -> float:
    """The share of non-responses that were kept in the days of a split; 1: all.

    The gap between calibration and test days is sampled as calibration days are.
    """
    rates = conventions.get("keep_rate")
    return 1.0 if rates is None else float(rates["calibration" if split == "gap" else split])


def before_sampling(
    impressions: np.ndarray, responses: np.ndarray, weight: np.ndarray | float, keep_rate: float
) -> tuple[np.ndarray, np.ndarray]:
    """What sampled rows stand for: impressions and responses before rows were left out, [n] each.

    A row counts `weight` times; of its non-responses each counts 1 / `keep_rate` times. Weights are
    rounded to multiples of 1 / WEIGHT_UNIT. Whole amounts come back as int64, others as float64,
    whose sums are exact in any order up to 2^33; where nothing was sampled the counts come back.

    Args:
        impressions, responses: int [n], as the log has them.
        weight: float64 [n], 1 / the rate at which rows like it were kept; 1 where none was.
        keep_rate: share of non-responses that were kept, in (0, 1].

    Raises:
        DataError: a weight is null, not finite, or outside [1 / WEIGHT_UNIT, LARGEST_WEIGHT].
    """
    if keep_rate == 1 and np.isscalar(weight):
        return impressions, responses
    weights = np.broadcast_to(np.asarray(weight, dtype=np.float64), responses.shape)
    wrong = np.flatnonzero(~((weights >= 1 / WEIGHT_UNIT) & (weights <= LARGEST_WEIGHT)))
    if len(wrong):
        raise DataError(
            f"row {wrong[0]} has the weight {weights[wrong[0]]}, as {len(wrong)} rows have no "
            f"weight between 2**-20 and 2**20; give 1 / the rate at which rows like it were kept"
        )
    of_response = np.rint(weights * WEIGHT_UNIT) / WEIGHT_UNIT
    of_other = np.rint(weights / keep_rate * WEIGHT_UNIT) / WEIGHT_UNIT
    weighted = responses * of_response
    shown = weighted + (impressions.astype(np.int64) - responses) * of_other
    if (shown == np.trunc(shown)).all() and (weighted == np.trunc(weighted)).all():
        return shown.astype(np.int64), weighted.astype(np.int64)
    return shown, weighted


def evidence_share(counted: Iterable[Mapping[str, Any]]) -> float:
    """How many responses of the log one that weighted rows stand for is; 1 of any other log.

    Weights say what rows stand for, not how much is known: that is the responses that were seen.

    Args:
        counted: `responses` of days or tables, and `in_the_log` those of the log, where it differs.
    """
    stand_for, seen = 0, 0
    for each in counted:
        stand_for += each["responses"]
        seen += each.get("in_the_log", each)["responses"]
    return seen / stand_for if stand_for else 1.0


Counted = TypeVar("Counted", bound=Columns)


def scaled(table: Counted, share: float) -> Counted:
    """Rows or a table with every sum `share` times as large; rates and mean logits stay."""
    if share == 1.0:
        return table
    sums = ("impressions", "responses", "logit_sum", "probability_sum")
    return replace(table, **{n: getattr(table, n) * share for n in sums if hasattr(table, n)})


def later_days(parts: Mapping[str, Sequence[str]]) -> list[str]:
    """The days after the calibration days, ascending: those of the gap and of the test."""
    return [*parts.get("gap", []), *parts["test"]]


def unit_of(impressions: np.ndarray) -> int:
    """In which parts of an impression a column counts exactly: 1, or WEIGHT_UNIT if fractional."""
    return WEIGHT_UNIT if np.issubdtype(impressions.dtype, np.floating) else 1


MANIFEST = "manifest.json"
COLUMNS = {column.name: column.type for column in Scores.schema() if column.name != "day"}


def _file(folder: Path, day: str) -> Path:
    return folder / f"day={day}.parquet"


def scored_day(
    day: str, scores: Scores, features: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], bytes]:
    """The rows, impressions and responses of one scored day, and its Parquet file.

    Args:
        day: "YYYY-MM-DD".
        scores: the day's rows.
        features: column → int32 or float32 [n], as `feature_columns` names them; empty: none kept.

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
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(arrays), sink, compression="zstd")
    totals = {name: getattr(scores, name).sum().item() for name in ("impressions", "responses")}
    return {"rows": len(scores)} | totals, sink.getvalue().to_pybytes()


def write_day(folder: Path, day: str, facts: dict[str, Any], content: bytes) -> dict[str, Any]:
    """Write a day's file into an existing folder that is not published yet.

    Args:
        folder: of the scores.
        day: "YYYY-MM-DD".
        facts, content: as `scored_day` made them.

    Returns:
        What the manifest keeps of the day: the facts, and the file's sha256.
    """
    with publish(_file(folder, day)) as temporary:  # a process that is given up may still write
        temporary.write_bytes(content)
    return facts | {"sha256": hashlib.sha256(content).hexdigest()}


def _array(column: np.ndarray, kind: pa.DataType) -> pa.Array:
    """A column as its kind; counts that do not fit, of a sampled log, as int64 or float64."""
    if np.issubdtype(column.dtype, np.floating) and pa.types.is_integer(kind):
        return pa.array(column, pa.float64())
    if column.dtype == np.int64 and len(column) and column.max() > np.iinfo(np.int32).max:
        return pa.array(column, pa.int64())
    return pa.array(column, kind)


def feature_columns(categorical: Sequence[str], numeric: Sequence[str]) -> list[str]:
    """The names under which encoded features travel, in the order of the network's inputs."""
    return [f"categorical.{name}" for name in categorical] + [f"numeric.{name}" for name in numeric]


def write_scores_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest: splits, days, field, features and conventions."""
    write_facts(folder / MANIFEST, manifest)


def read_scores_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of scored days.

    It holds `parts` (split → days), `binning_days`, `days` (day → rows, impressions, responses,
    rows whose field value was null or unseen, and the file's `sha256`), `field` (`columns`,
    `values`: index = id, the first null, and `pooled`), `features` ({"categorical": [{"name",
    "size"}], "numeric": [names]}, empty lists where none were kept), `conventions` and
    `made_of`: `split` and `base` → sha256 of its manifest.

    Raises:
        ArtifactError: it is missing or damaged.
    """
    return read_json(folder / MANIFEST)


def read_scores(folder: Path, *splits: str) -> Scores:
    """The scored rows of `splits`, split by split, each in the order of its days.

    Raises:
        ArtifactError: a split is unknown, or a day's file is missing or damaged.
    """
    manifest = read_scores_manifest(folder)
    n = len(manifest["field"]["values"])
    whole = np.empty(0, np.int32)
    none = Scores(np.empty(0, np.float32), whole, whole, whole, whole, n)
    return joined([none, *(read_day(folder, manifest, day) for day in _days(manifest, splits))])


def read_day(folder: Path, manifest: Mapping[str, Any], day: str) -> Scores:
    """The scored rows of one day, for work that holds a day at a time.

    Raises:
        ArtifactError: the day's file is missing or damaged.
    """
    columns = read_day_columns(folder, day, list(COLUMNS))
    number = np.full(manifest["days"][day]["rows"], day_number(day), dtype=np.int32)
    return Scores(**columns, day=number, n_field_values=len(manifest["field"]["values"]))


def read_day_columns(folder: Path, day: str, names: list[str]) -> dict[str, np.ndarray]:
    """Some of the canonical columns of one day.

    Raises:
        ArtifactError: the day's file is missing or damaged.
    """
    table = _table(folder, day, names)
    return {name: table.column(name).to_numpy() for name in names}


def read_features(folder: Path, *splits: str) -> tuple[np.ndarray, np.ndarray]:
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
            f"{folder} holds no features, which calibrate.paper.auxiliary reads; set "
            "score.keep_features to true and run dvc repro"
        )
    table = pa.concat_tables(_table(folder, d, names) for d in _days(manifest, splits))
    ids = np.empty((len(table), len(categorical)), np.int32)
    numbers = np.empty((len(table), len(names) - len(categorical)), np.float32)
    for name, column in zip(names, [*ids.T, *numbers.T], strict=True):
        column[:] = table[name].to_numpy()
    return ids, numbers


def _days(manifest: Mapping[str, Any], splits: Sequence[str]) -> list[str]:
    return [day for split in splits for day in manifest["parts"][split]]


def _table(folder: Path, day: str, columns: list[str]) -> pa.Table:
    return read_columns(_file(folder, day), "run dvc repro score", columns)


def write_ordered(path: Path, scores: Scores) -> None:
    """Publish the rows of a day as a file that `read_ordered` reads slices of."""
    ordered = scores.take(np.argsort(scores.field_value_id, kind="stable"))
    columns = pa.record_batch(ordered.columns())
    with (
        publish(path) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, columns.schema) as writer,
    ):
        writer.write_batch(columns)


def read_ordered(path: Path, ids: tuple[int, int], n_field_values: int) -> Scores:
    """The rows of the field values [first, last), mapped into memory; no others are read."""
    with pa.memory_map(str(path)) as source:
        batch = pa.ipc.open_file(source).get_batch(0)
    rows = slice(*np.searchsorted(batch["field_value_id"].to_numpy(), ids))
    columns = {name: batch[name].to_numpy()[rows] for name in batch.schema.names}
    return Scores(**columns, n_field_values=n_field_values)
