"""evaluate: test days, baselines, the model that ships → metrics of each, and sums behind them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.checksums import MANIFEST
from pipeline.core.errors import DataError
from pipeline.core.files import publish, read_json, write_json
from pipeline.core.progress import followed
from pipeline.data.log_store.day_rows import read_days
from pipeline.encoding.values import as_numbers
from pipeline.encoding.vocabulary import Vocabulary
from pipeline.formats.champion import MODEL as CHAMPION
from pipeline.formats.champion import pinned
from pipeline.formats.days import day_number
from pipeline.formats.maps import read_maps
from pipeline.formats.scores import Scores, before_sampling, keep_rate_of
from pipeline.gate.champion_comparison import Champion, report_of, score_champion
from pipeline.metrics.comparison import compare, largest_field_values
from pipeline.metrics.significance import Resampling
from pipeline.metrics.summary import Measurement, bin_columns, count_columns, measure
from pipeline.params.sections import EvaluateParams
from pipeline.serving.predictor import Predictor, load


def run(
    data: Path,
    split: Path,
    calibrator: Path,
    model: Path,
    pin: Path,
    evaluation: Path,
    sums: Path,
    *,
    params: EvaluateParams,
) -> None:
    """Write reports/evaluation.json and, under artifacts/evaluation, the sums it is made from.

    What is measured is what ships: the ONNX file that is deployed scores the raw rows of the test
    days, one day in memory at a time. The baselines' maps are applied to its uncalibrated
    logit. The champion that champion.json pins scores the same rows, whole, as production would.

    Raises:
        DataError: a test day is missing or damaged, or a response or impression count is null.
        ArtifactError: an artifact is missing or damaged, or the champion is not what is pinned.
    """
    contract, champion_pin = read_json(split / "manifest.json"), pinned(pin)
    days, predictor = contract["parts"]["test"], load(model, threads=0)
    field, conventions = read_json(model / MANIFEST)["base"]["field"], predictor.conventions
    rows, shipped, truth, counted = _score(data, days, predictor, len(field["values"]))
    champion = None
    if champion_pin:
        place, tables = pin.parent / CHAMPION, read_days(data, days)
        champion = score_champion(champion_pin, place, conventions, tables)
    methods = _methods(rows, shipped, calibrator, champion)
    measured = {name: measure(logit, rows, truth) for name, logit in methods}
    resampling = Resampling(params.confidence, params.replicates, params.seed)
    found = {
        "champion": champion and report_of(champion, measured, _with_rows(rows, days), resampling),
        "largest_field_values": _largest(measured["model"], field["values"], params, resampling),
        "maturity": _maturity(contract),
    }
    extent = _extent(rows, days, counted) | _pooled(rows, field)
    write_json(evaluation, extent | compare(measured, resampling) | found)
    with publish(sums) as folder:
        folder.mkdir()
        _write(folder / "counts.parquet", count_columns(measured))
        _write(folder / "reliability.parquet", bin_columns(measured))


def _score(
    data: Path, days: list[str], predictor: Predictor, n_field_values: int
) -> tuple[Scores, np.ndarray, np.ndarray | None, dict[str, int]]:
    """The test rows, the shipped logit of each, its true probability where the log has it, and how
    many impressions and responses the log holds."""
    counted = {"impressions": 0, "responses": 0}
    conventions = predictor.conventions
    weight, rate = conventions.get("weight"), keep_rate_of(conventions, "test")
    label, impressions, truth = (conventions[k] for k in ("label", "impressions", "truth"))
    dtype, parts = np.int64 if impressions else np.int32, []
    for day, table in followed(read_days(data, days), "evaluate", len(days), "days"):
        prediction = predictor.predict(table)
        ones = np.ones(len(table), np.int32)
        shown = _counts(table, impressions, day).astype(dtype) if impressions else ones
        responses = _counts(table, label, day).astype(dtype)
        counted["impressions"] += int(shown.sum())
        counted["responses"] += int(responses.sum())
        times = as_numbers(table[weight]) if weight else 1.0
        shown, responses = before_sampling(shown, responses, times, rate)
        columns = {
            "uncalibrated_logit": prediction.uncalibrated_logit,
            "field_value_id": prediction.field_value_id.astype(np.int32),
            "impressions": shown,
            "responses": responses,
            "day": ones * np.int32(day_number(day)),
            "shipped": prediction.calibrated_logit,
        }
        parts.append(columns | ({"truth": as_numbers(table[truth])} if truth else {}))
    joined = {name: np.concatenate([part.pop(name) for part in parts]) for name in [*parts[0]]}
    shipped, true_probability = joined.pop("shipped"), joined.pop("truth", None)
    scores = Scores(**joined, n_field_values=n_field_values)
    return scores, shipped, true_probability, counted


def _counts(table: pa.Table, column: str, day: str) -> np.ndarray:
    """A column of counts, int64; a null is not a zero."""
    numbers = as_numbers(table[column])
    missing = np.flatnonzero(np.isnan(numbers))
    if len(missing):
        raise DataError(f"day {day}, column {column}, row {missing[0]} is null; land the day again")
    return numbers.astype(np.int64)


def _methods(
    rows: Scores, shipped: np.ndarray, calibrator: Path, champion: Champion | None
) -> Iterator[tuple[str, np.ndarray]]:
    """Every method and its logit, one at a time: base, baselines, champion, what ships."""
    yield "uncalibrated", rows.uncalibrated_logit
    for name, serving_map in read_maps(calibrator / "maps.parquet").items():
        if name != "identity":
            yield name, serving_map(rows.uncalibrated_logit, rows.field_value_id)
    if champion and champion.logit is not None:
        yield "champion", champion.logit
    yield "model", shipped


def _with_rows(rows: Scores, days: list[str]) -> list[str]:
    """The test days that have rows, in order."""
    present = set(np.unique(rows.day).tolist())
    return [day for day in days if day_number(day) in present]


def _largest(
    measured: Measurement, names: list[str | None], params: EvaluateParams, resampling: Resampling
) -> list[dict[str, Any]]:
    """The largest field values by name, with what ships expects of them and what came."""
    rows = largest_field_values(measured.counts, params.largest_field_values, resampling)
    return [{"field_value": names[row["field_value_id"]], **row} for row in rows]


def _maturity(contract: dict[str, Any]) -> dict[str, Any]:
    """How long labels take to be final, and the calibration and test days that are younger."""
    maturity = contract.get("conventions", {}).get("label_maturity") or {}
    newest = maturity.get("newest_mature_day")
    used = {day for split in ("calibration", "test") for day in contract["parts"].get(split, [])}
    return {
        "maturity_days": maturity.get("maturity_days", 0),
        "newest_mature_day": newest,
        "young_days": sorted(day for day in used if newest is not None and day > newest),
    }


def _extent(rows: Scores, days: list[str], counted: dict[str, int]) -> dict[str, Any]:
    """What the report says of the test rows themselves; of a sampled log also what they stand for.

    Responses are those that the log holds: they are the evidence, however often each counts.
    """
    amounts = {name: getattr(rows, name).sum().item() for name in counted}
    return {
        "first_day": days[0],
        "last_day": days[-1],
        "days": len(days),
        "rows": len(rows),
        **counted,
        "field_values": len(np.unique(rows.field_value_id)),
        "unseen_impressions": int(rows.impressions[rows.field_value_id == 0].sum()),
        **({"before_sampling": amounts} if amounts != counted else {}),
    }


def _pooled(rows: Scores, field: dict[str, Any]) -> dict[str, Any]:
    """What the field values that share one map hold of the test rows, where there are such."""
    values = Vocabulary.of_names(field["values"], field.get("pooled", ()))
    if not values.pooled:
        return {}
    found: dict[str, Any] = {"field_values": len(values.pooled)}
    for name, one in (("impressions", "impression_share"), ("responses", "response_share")):
        amounts = getattr(rows, name)
        found[name] = amounts[values.is_pooled(rows.field_value_id)].sum().item()
        found[one] = found[name] / max(amounts.sum().item(), 1)
    return {"pooled": found}


def _write(path: Path, columns: dict[str, np.ndarray]) -> None:
    pq.write_table(pa.table({n: pa.array(c) for n, c in columns.items()}), path, compression="zstd")
