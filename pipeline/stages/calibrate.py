"""calibrate: checked tables and scores → maps of AdaCalib and the baselines, and the choice."""

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import save

from pipeline.calibration.choice import Choice, choose, losses_of
from pipeline.calibration.paper.paper_fit import PaperFit, fit_paper, paper_comparisons
from pipeline.calibration.paper.paper_network import PaperSettings
from pipeline.calibration.paper.paper_rows import RowFeatures
from pipeline.calibration.roll import TOO_FEW_DAYS, Rolled, roll
from pipeline.core.errors import CheckFailedError
from pipeline.core.files import manifest_sums, publish, read_json, refuse_others, write_facts
from pipeline.formats.days import day_name, day_number
from pipeline.formats.maps import PiecewiseLinearMap, write_maps
from pipeline.formats.rolling import FILE, DayMap, write_rolling
from pipeline.formats.scores import (
    later_days,
    read_day_columns,
    read_features,
    read_scores,
    read_scores_manifest,
)
from pipeline.formats.tables import (
    FieldTables,
    FieldTree,
    read_evidence,
    read_tables_manifest,
)
from pipeline.params.sections import CalibrateParams


def run(
    scores: Path, tables: Path, check: Path, calibrator: Path, *, params: CalibrateParams
) -> None:
    """Write the maps that ship, those of every test day, and how they came about.

    maps.parquet has identity, isotonic, eb_platt and adacalib as
    they serve on the day that comes next, learned up to the newest labelled day; rolling.parquet as
    they would have served each test day; frozen.parquet as they were on the morning of the first.
    Where the paper's variant has an auxiliary network its weights go to auxiliary.safetensors.

    Raises:
        CheckFailedError: the tables did not pass their check.
        ArtifactError: an artifact is missing or damaged, they do not belong to one another, or the
            auxiliary network is asked for and the scores hold no features.
        NotEnoughDataError: the calibration days hold no impressions.
    """
    parts = {"scores": scores, "tables": tables}
    _require_passed(check, parts)
    scored = read_scores_manifest(scores)
    statistics = replace(read_evidence(tables), tree=FieldTree.of(scored["field"]))
    horizon = 1 + scored.get("conventions", {}).get("maturity_days", 0)
    judged, shipped = _rolled(scores, scored, statistics, params, horizon)
    newest = max(shipped.maps["identity"])
    n = statistics.n_field_values
    frozen = _whole(judged, min(judged.maps["identity"]), n)
    ships, rolling = _whole(shipped, newest, n), judged.maps
    paper: PaperFit | None = None
    choice, about = judged.choice, _about(judged, shipped)
    if params.variant == "paper":
        paper, choice, about = _paper(scores, statistics, params, judged)
        ships["adacalib"] = frozen["adacalib"] = paper.serving
        asked = {day: of_day.ids for day, of_day in rolling["eb_platt"].items()}
        rolling["adacalib"] = {day: DayMap.of(paper.serving, ids) for day, ids in asked.items()}
    cells = statistics.cells
    about["responses"] = np.bincount(cells.field_value_id, cells.responses, n).tolist()
    chosen = "adacalib" if params.choose == "always" else choice.name if choice else TOO_FEW_DAYS
    about |= {"variant": params.variant, "choose": params.choose, "chosen": chosen}
    about |= {"auxiliary": paper is not None and paper.auxiliary is not None}
    about |= {"field": scored["field"], "made_of": scored["made_of"] | manifest_sums(parts)}
    about |= {"held_out": choice and asdict(choice)}
    about |= {"learning_days": _learning_days(judged, chosen, params)}
    about |= _days(scored["parts"], judged, shipped, scored["field"]["values"])
    about["guard"]["accepted"] = list(params.accepted_days)
    if params.variant == "paper" and chosen == "adacalib":  # which was fitted once
        known, refused = scored["parts"]["calibration"], judged.fit.refused_days
        about["label_days"] = [day for day in known if day_number(day) not in refused]
        about["shipped"] = {"learned_until": max(about["label_days"])}
    about["params"] = scored.get("params", {}) | read_tables_manifest(tables).get("params", {})
    about["params"] |= {"calibrate": params.model_dump(mode="json")}
    with publish(calibrator) as folder:
        folder.mkdir()
        write_maps(folder / "maps.parquet", ships)
        write_maps(folder / "frozen.parquet", frozen)
        write_rolling(folder / FILE, rolling)
        write_facts(folder / "manifest.json", about)
        if paper is not None and paper.auxiliary is not None:
            (folder / "auxiliary.safetensors").write_bytes(save(paper.auxiliary.state_dict()))


def _require_passed(check: Path, parts: dict[str, Path]) -> None:
    report = read_json(check)
    if not report["passed"]:
        breaches = "; ".join(map(str, report["breaches"]))
        raise CheckFailedError(f"{check} did not pass: {breaches}; run dvc repro tabulate")
    refuse_others(check, parts)


def _rolled(
    scores: Path, scored: dict[str, Any], tables: FieldTables, params: CalibrateParams, horizon: int
) -> tuple[Rolled, Rolled]:
    """What is judged, rolled over the test days, and what ships, learned up to the newest day."""
    parts, accepted = scored["parts"], [day_number(day) for day in params.accepted_days]
    asked: dict[int, np.ndarray | None] = {
        day_number(day): read_day_columns(scores, day, ["field_value_id"])["field_value_id"]
        for day in parts["test"]
    }
    asked[min(asked)] = None  # the frozen maps are those of the first morning, whole
    roll_on = partial(roll, tables, params, horizon_days=horizon, accepted=accepted)
    judged = roll_on(known_until=day_number(max(parts["calibration"])), asked=asked)
    newest, windows = max(asked), judged.windows
    shipped = roll_on(known_until=newest, asked={newest + horizon: None}, windows=windows)
    return judged, shipped


def _whole(rolled: Rolled, day: int, n_field_values: int) -> dict[str, PiecewiseLinearMap]:
    return {name: maps[day].whole(n_field_values) for name, maps in rolled.maps.items()}


def _about(judged: Rolled, shipped: Rolled) -> dict[str, Any]:
    """How AdaCalib came about: what ships, beside the variances that were judged."""
    shapes, both = shipped.fit.shapes, {"judged": judged, "shipped": shipped}
    return {
        "variances": {name: asdict(each.fit.passed.model.variances) for name, each in both.items()},
        "spline_share": shapes.spline_share,
        "correction_share": shapes.heads.share,
        "trained_share_of_steps": shapes.heads.checkpoint,
        "chosen_bins": shapes.chosen_bins.tolist(),
    }


def _days(
    parts: dict[str, list[str]], judged: Rolled, shipped: Rolled, names: list[str | None]
) -> dict[str, Any]:
    """What was known when, what the guard said of each day, and the days whose labels ship."""
    newest = max(parts["test"])
    refused = shipped.fit.refused_days
    moves = []
    for move in shipped.fit.passed.guard.moves:
        what = "all rows" if move.field_value_id is None else str(names[move.field_value_id])
        moves.append(asdict(move) | {"day": day_name(move.day), "what": what})
    of_newest = [move for move in moves if move["day"] == newest]
    served = day_number(newest) + judged.horizon_days
    record = {name: each.correction(served)._asdict() for name, each in shipped.records.items()}
    known = [*parts["calibration"], *later_days(parts)]
    label_days = [day for day in known if day_number(day) not in refused]
    return {
        "rolling": {
            "horizon_days": judged.horizon_days,
            "learned_until": max(parts["calibration"]),
            "windows": judged.windows,
            "record": record,
        },
        "shipped": {"learned_until": max(label_days)},
        "label_days": label_days,
        "guard": {
            "refused": [move for move in moves if move["refused"]],
            "newest": max(of_newest, key=lambda move: move["refused"], default=None),
        },
    }


def _learning_days(judged: Rolled, chosen: str, params: CalibrateParams) -> list[dict[str, Any]]:
    """What the chosen calibrator forecast for calibration days that it had not seen, and what came.

    None of what was fitted once on all of them.
    """
    if params.variant == "paper" and chosen == "adacalib":
        return []
    return [{"day": day_name(day)} | of_day.sums(chosen) for day, of_day in judged.learned.items()]


def _paper(
    scores: Path, tables: FieldTables, params: CalibrateParams, judged: Rolled
) -> tuple[PaperFit, Choice | None, dict[str, Any]]:
    """AdaCalib as published, fitted once, on the sound calibration days, and how it fared."""
    rows = read_scores(scores, "calibration")
    sound = ~np.isin(rows.day, list(judged.fit.refused_days))
    rows = rows.take(np.flatnonzero(sound))
    shared = {"temperatures", "min_slope", "min_responses_per_bin", "seed"}
    settings = PaperSettings(
        **params.paper.model_dump(),
        **params.model_dump(include=shared),
        candidates=tuple(np.unique(tables.bins.requested_bins).tolist()),
    )
    features = _features(scores).take(sound) if params.paper.auxiliary else None
    fitted = fit_paper(rows, settings, features)
    comparisons = paper_comparisons(rows, settings, features, judged.horizon_days)
    choice = choose(*losses_of(comparisons, rows.n_field_values)) if comparisons else None
    about = {
        "chosen_bins": fitted.chosen_bins.tolist(),
        "moved_knots": fitted.moved_knots,
        "decreasing_share": fitted.decreasing,
    }
    return fitted, choice, about


def _features(scores: Path) -> RowFeatures:
    described = read_scores_manifest(scores)["features"]
    sizes = tuple(feature["size"] for feature in described["categorical"])
    return RowFeatures(*read_features(scores, "calibration"), sizes)
