"""evaluate: stored scores of the test days, rolling maps → how every method would have done."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.files import MANIFEST, manifest_sums, publish, read_json, write_report
from pipeline.core.work import followed
from pipeline.data.log_store.day_rows import read_days
from pipeline.encoding.values import as_numbers
from pipeline.encoding.vocabulary import Vocabulary
from pipeline.engine.day_map import map_days, processes
from pipeline.formats.champion import MODEL as CHAMPION
from pipeline.formats.champion import pinned
from pipeline.formats.days import day_number
from pipeline.formats.maps import PiecewiseLinearMap, read_maps
from pipeline.formats.rolling import FILE, RollingMap, read_rolling, rolled
from pipeline.formats.scores import (
    Scores,
    evidence_share,
    read_day,
    read_day_columns,
    read_scores,
    read_scores_manifest,
    scaled,
)
from pipeline.formats.tables import FieldTree
from pipeline.gate.champion_comparison import Champion, alarm_of, report_of, score_champion
from pipeline.gate.deployed import prove_deployed, refuse_another_run
from pipeline.metrics.comparison import (
    ValueHistory,
    age_cost,
    compare,
    largest_field_values,
    measure_new_values,
    pcoc_evidence,
    points,
    worth_columns,
    worth_report,
)
from pipeline.metrics.counts import ResponseCounts
from pipeline.metrics.significance import Resampling
from pipeline.metrics.summary import (
    Measurement,
    bin_columns,
    count_by_day,
    count_columns,
    measure,
    summarise,
)
from pipeline.params.sections import EvaluateParams
from pipeline.serving.predictor import Predictor, load

OVERCHARGED = 20  # field values, those where expected and observed value are furthest apart


def run(
    data: Path,
    split: Path,
    scores: Path,
    calibrator: Path,
    model: Path,
    pin: Path,
    evaluation: Path,
    sums: Path,
    *,
    params: EvaluateParams,
) -> None:
    """Write reports/evaluation.json and, under artifacts/evaluation, the sums it is made from.

    What is measured is the procedure: every method forecasts each test day by the map that it
    would have served on that day's morning. What ships is newer than that; it is proved to be the
    map that it should be, on the raw rows of the newest test day. The champion that champion.json
    pins forecasts the same days by maps of its own.

    Raises:
        DataError: a day that is read from the log is missing or damaged.
        ArtifactError: an artifact is missing, damaged or of another run, the champion is not what
            is pinned, or the deployed file is not what was measured.
    """
    contract, about = read_json(split / "manifest.json"), read_json(calibrator / "manifest.json")
    days, manifest = contract["parts"]["test"], read_json(model / MANIFEST)
    refuse_another_run(calibrator, {"split": split, "scores": scores}, model)
    rows, conventions = _rows(scores), manifest["conventions"]
    truth, value = (_column(data, days, conventions.get(role)) for role in ("truth", "value"))
    champion = _champion(data, days, rows, pin, manifest)
    deployed, features = _deployed(data, days, scores, calibrator, load(model, threads=0))
    rolling, frozen = read_rolling(calibrator / FILE), read_maps(calibrator / "frozen.parquet")
    maps, horizon = (rolling, frozen, about["chosen"]), about["rolling"]["horizon_days"]
    history = _history(scores, about, np.unique(rows.day), rolling["adacalib"])
    measured, of_value = _measured(scores, rows, (truth, value, features), history.groups(), *maps)
    resampling = Resampling(params.confidence, params.replicates, params.seed, horizon)
    found, names = compare(measured, resampling), manifest["base"]["field"]["values"]
    found["new_values"] = measure_new_values(measured, history, resampling)
    if champion and champion.days:
        measured["champion"] = measure(champion.logit, rows.take(np.isin(rows.day, champion.days)))
        found["methods"]["champion"] = summarise(measured["champion"], resampling)
    counts, listed = measured["model"].counts, params.largest_field_values
    largest = largest_field_values(counts, names, listed, resampling)
    found |= {
        "made_of": manifest_sums({"model": model}),
        "procedure": _procedure(about, manifest, days),
        "age": _age(measured, rows, frozen, about, resampling),
        "worth": of_value and worth_report(of_value, names, OVERCHARGED, resampling),
        "pcoc": pcoc_evidence(counts, about["learning_days"], resampling),
        "deployed": deployed,
        "champion": champion and report_of(champion, measured, resampling),
        "largest_field_values": largest,
        "maturity": _maturity(contract),
    }
    if champion and champion.served:
        chance = 1 / params.days_per_false_alarm
        found["champion"]["served"]["newest"] = alarm_of(champion, measured, largest, chance)
    found["unseen_impressions"] = found["new_values"]["unseen"]["impressions"]
    write_report(evaluation, _extent(rows, days, read_scores_manifest(scores), manifest) | found)
    _write_sums(sums, measured, of_value)


def _measured(
    scores: Path,
    rows: Scores,
    columns: tuple[np.ndarray | None, np.ndarray | None, np.ndarray | float],
    groups: Mapping[str, np.ndarray],
    rolling: Mapping[str, RollingMap],
    frozen: Mapping[str, PiecewiseLinearMap],
    chosen: str,
) -> tuple[dict[str, Measurement], dict[str, ResponseCounts]]:
    """The measurement of each method, and counts by value of the base model and of what ships."""
    truth, value, features = columns
    ships = "uncalibrated" if chosen == "identity" else chosen
    here = [] if processes() else [rows]  # who measures elsewhere reads them there, once

    def look(name: str) -> tuple[Measurement, ResponseCounts | None]:
        if not here:
            here.append(_rows(scores))
        of = here[0]
        logit, ids = of.uncalibrated_logit, of.field_value_id
        if name == "frozen":
            logit = frozen[chosen](logit, ids) + features
        elif name != "uncalibrated":
            logit = rolled(rolling[name], logit, ids, of.day) + (name == "adacalib") * features
        measured = measure(logit, of, truth, groups)
        if value is None or name not in {"uncalibrated", ships}:
            return measured, None
        stand_for = value / _share(scores)  # a row is worth what it stands for
        return measured, count_by_day(logit, of, stand_for)[1]

    names = ["uncalibrated", *(name for name in rolling if name != "identity"), "frozen"]
    one_by_one = ((name, look(name)) for name in names)  # as each takes 120 bytes a row
    found = dict(one_by_one if here else map_days(look, names, "measure", "methods"))
    measured = {name: one for name, (one, _) in found.items()}
    of_value = {name: counts for name, (_, counts) in found.items() if counts}
    if of_value:
        of_value["model"] = of_value[ships]
    return measured | {"model": measured[ships]}, of_value


def _share(scores: Path) -> float:
    scored = read_scores_manifest(scores)
    return evidence_share(scored["days"][day] for day in scored["parts"]["test"])


def _rows(scores: Path) -> Scores:
    """The test rows; of a weighted log with as many responses as it really has."""
    return scaled(read_scores(scores, "test"), _share(scores))


def _age(
    measured: dict[str, Measurement],
    rows: Scores,
    frozen: Mapping[str, PiecewiseLinearMap],
    about: dict[str, Any],
    resampling: Resampling,
) -> dict[str, Any]:
    """What age costs what ships, and how each method fares by the first morning's map."""
    learned = day_number(about["rolling"]["learned_until"])
    asked = rows.uncalibrated_logit, rows.field_value_id
    maps = {name: one for name, one in frozen.items() if name != "identity"}
    found = {name: points(count_by_day(one(*asked), rows)[1]) for name, one in maps.items()}
    age = age_cost(measured["model"], measured["frozen"], learned, resampling)
    return age | {"frozen": found}


def _column(data: Path, days: list[str], column: str | None) -> np.ndarray | None:
    """The numbers of a column of the log on the test days, float64 [n]; None: no such column."""
    if not column:
        return None
    tables = (table for _, table in read_days(data, days, [column]))
    return np.concatenate([as_numbers(table[column]) for table in tables])


def _champion(
    data: Path, days: list[str], rows: Scores, pin: Path, manifest: dict[str, Any]
) -> Champion | None:
    champion_pin = pinned(pin)
    if champion_pin is None:
        return None
    tables = followed(read_days(data, days), "evaluate", len(days), "days")
    return score_champion(champion_pin, pin.parent / CHAMPION, manifest, rows, tables)


def _deployed(
    data: Path, days: list[str], scores: Path, calibrator: Path, predictor: Predictor
) -> tuple[dict[str, Any], np.ndarray | float]:
    """The proof of the deployed file on the newest test day; what features add to each test row.

    Features add something where the paper's auxiliary network ships; then all days are scored.
    """
    about = read_json(calibrator / "manifest.json")
    shipped = read_maps(calibrator / "maps.parquet")[about["chosen"]]
    auxiliary = about.get("auxiliary") and about["chosen"] == "adacalib"
    added = []
    for day, table in read_days(data, days if auxiliary else days[-1:], predictor.columns):
        said = predictor.predict(table)
        stored = read_day(scores, read_scores_manifest(scores), day)
        proof = {"day": day} | prove_deployed(said, stored, None if auxiliary else shipped)
        added.append(said.calibrated_logit - shipped(said.uncalibrated_logit, said.field_value_id))
    return proof, np.concatenate(added) if auxiliary else 0.0


def _procedure(about: dict[str, Any], manifest: dict[str, Any], days: list[str]) -> dict[str, Any]:
    """Up to which days was learned for what was measured and for what ships; the base's age."""
    trained = manifest["base"].get("days", {})
    base = max([*trained.get("fitting", []), *trained.get("held_out", [])], default=None)
    horizon, until = about["rolling"]["horizon_days"], about["shipped"]["learned_until"]
    served = [day_number(day) for day in (*days[:1], *days[-1:])] + [day_number(until) + horizon]
    return {
        "horizon_days": horizon,
        "learned_until": about["rolling"]["learned_until"],
        "shipped_until": until,
        "base_until": base,
        "base_age_days": [number - day_number(base) for number in served] if base else None,
    }


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


def _extent(
    rows: Scores, days: list[str], scored: dict[str, Any], manifest: dict[str, Any]
) -> dict[str, Any]:
    """What the report says of the test rows themselves; of a sampled log also what they stand for.

    Responses are those that the log holds: they are the evidence, however often each counts.
    """
    names, entries = ("impressions", "responses"), [scored["days"][day] for day in days]
    counted = {n: sum(entry.get("in_the_log", entry)[n] for entry in entries) for n in names}
    amounts = {name: sum(entry[name] for entry in entries) for name in names}
    return {
        "first_day": days[0],
        "last_day": days[-1],
        "days": len(days),
        "rows": len(rows),
        **counted,
        "field_values": len(np.unique(rows.field_value_id)),
        **({"before_sampling": amounts} if amounts != counted else {}),
        **_pooled(rows, manifest),
    }


def _history(
    scores: Path, about: dict[str, Any], days: np.ndarray, maps: RollingMap
) -> ValueHistory:
    """What was known of each field value on the mornings of the test days; the log a day a time."""
    scored, horizon = read_scores_manifest(scores), about["rolling"]["horizon_days"]
    n = len(scored["field"]["values"])
    never = np.iinfo(np.int32).max
    first, learned, responses = np.full(n, never), np.full(n, never), np.zeros((len(days), n))
    for day in sorted(scored["days"], reverse=True):
        number = day_number(day)
        rows = read_day_columns(scores, day, ["field_value_id", "responses"])
        first[rows["field_value_id"]] = number
        if day in about["label_days"]:
            learned[rows["field_value_id"]] = number
            of_day = np.bincount(rows["field_value_id"], rows["responses"], n)
            responses[days >= number + horizon] += of_day * evidence_share([scored["days"][day]])
    tree = FieldTree.of(scored["field"])
    first[tree.level > 0] = never  # which stand for many values
    known = np.stack([maps[day].has_own(n) for day in days.tolist()])
    if tree.depth:  # who is not known has a row, too: the parent's
        known &= (learned <= days[:, None] - horizon) & (first < never)
    return ValueHistory(days[:, None] - first, known, responses)


def _pooled(rows: Scores, manifest: dict[str, Any]) -> dict[str, Any]:
    """What the field values that share one map hold of the test rows, where there are such.

    Of a field with parents: how many there are, how many field values moved, and how many pairs.
    """
    field = manifest["base"]["field"]
    values = Vocabulary.of_names(field["values"], field.get("pooled", ()))
    if "tree" in field:
        tree, moves = FieldTree.of(field), field["tree"]["moves"].values()
        moved = len({each for ids, _ in moves for each in ids})
        ids = int((tree.level > 0).sum()) - 1
        return {"parents": {"ids": ids, "moved": moved, "pairs": len(values.pairs)}}
    if not values.pooled:
        return {}
    found = {"field_values": len(values.pooled)}
    for name, one in (("impressions", "impression_share"), ("responses", "response_share")):
        amounts = getattr(rows, name)
        found[name] = amounts[values.is_pooled(rows.field_value_id)].sum().item()
        found[one] = found[name] / max(amounts.sum().item(), 1)
    return {"pooled": found}


def _write_sums(
    target: Path, measured: Mapping[str, Measurement], of_value: Mapping[str, ResponseCounts]
) -> None:
    tables = {"counts": count_columns(measured), "reliability": bin_columns(measured)}
    if of_value:
        tables["worth"] = worth_columns(of_value["model"])
    with publish(target) as folder:
        folder.mkdir()
        for name, columns in tables.items():
            table = pa.table({n: pa.array(c) for n, c in columns.items()})
            pq.write_table(table, folder / f"{name}.parquet", compression="zstd")
