"""calibrate: checked tables and scores → maps of AdaCalib and the baselines, and the choice."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from safetensors.torch import save

from pipeline.calibration.adacalib.fit import fit_adacalib
from pipeline.calibration.baselines import fit
from pipeline.calibration.choice import Choice, baseline_maps, choose, losses_of
from pipeline.calibration.paper.auxiliary import AuxiliaryNetwork
from pipeline.calibration.paper.paper_comparison import ablation_maps, paper_comparisons
from pipeline.calibration.paper.paper_fit import fit_paper
from pipeline.calibration.paper.paper_network import PaperSettings
from pipeline.calibration.paper.paper_rows import RowFeatures
from pipeline.core.checksums import json_sha256
from pipeline.core.errors import CheckFailedError, ParamsError
from pipeline.core.files import publish, read_json, write_json
from pipeline.formats.maps import PiecewiseLinearMap, write_maps
from pipeline.formats.rolling import FILE, DayMap, write_rolling
from pipeline.formats.scores import read_features, read_scores, read_scores_manifest
from pipeline.formats.tables import (
    BinTable,
    CellTable,
    read_bins,
    read_cells,
    read_tables_manifest,
    scaled,
)
from pipeline.params.sections import CalibrateParams


@dataclass(frozen=True)
class Outcome:
    """AdaCalib's map, how it came about, and how it fared out of sample."""

    serving: PiecewiseLinearMap
    auxiliary: AuxiliaryNetwork | None
    choice: Choice
    about: dict[str, Any]


def run(
    scores: Path, tables: Path, check: Path, calibrator: Path, *, params: CalibrateParams
) -> None:
    """Write maps.parquet (identity, isotonic, eb_platt, adacalib, what is asked for) and
    manifest.json.

    Where the paper's variant has an auxiliary network its weights go to auxiliary.safetensors.

    Raises:
        CheckFailedError: the tables did not pass their check.
        ArtifactError: an artifact is missing or damaged.
        NotEnoughDataError: the calibration days hold no impressions.
        ParamsError: the auxiliary network is asked for and the scores carry no features.
    """
    _require_passed(check)
    scored, tabulated = read_scores_manifest(scores), read_tables_manifest(tables)
    n_field_values = len(scored["field_values"])
    bins, cells = _tables(tables)
    if params.variant == "paper":
        outcome = _paper(scores, bins, params)
    else:
        outcome = _crossfit(bins, cells, n_field_values, params)
    chosen = outcome.choice.name if params.choose == "held_out" else "adacalib"
    about: dict[str, Any] = {"variant": params.variant, "choose": params.choose, "chosen": chosen}
    about |= {"auxiliary": outcome.auxiliary is not None}
    about |= {"field_values_sha256": json_sha256(scored["field_values"])}
    about |= {"held_out": asdict(outcome.choice)} | outcome.about
    calibration_days = scored["parts"].get("calibration", [])
    about["rolling"] = {"horizon_days": 1, "learned_until": max(calibration_days, default=None)}
    about["shipped"] = {"learned_until": max(calibration_days, default=None)}
    about["guard"] = {"refused": [], "newest": None, "accepted": []}
    about["label_days"] = calibration_days
    about["params"] = scored.get("params", {}) | tabulated.get("params", {})
    about["params"] |= {"calibrate": params.model_dump(mode="json")}
    with publish(calibrator) as folder:
        folder.mkdir()
        maps = baseline_maps(cells, n_field_values) | {"adacalib": outcome.serving}
        maps |= _compared(scores, bins, params)
        write_maps(folder / "maps.parquet", maps)
        write_maps(folder / "frozen.parquet", maps)
        write_rolling(folder / FILE, _rolling(scores, maps))
        write_json(folder / "manifest.json", about)
        if outcome.auxiliary is not None:
            (folder / "auxiliary.safetensors").write_bytes(save(outcome.auxiliary.state_dict()))


def _rolling(scores: Path, maps: dict[str, PiecewiseLinearMap]) -> dict[str, dict[int, DayMap]]:
    test = read_scores(scores, "test")
    days = np.unique(test.day).tolist()
    ids = {day: test.field_value_id[test.day == day] for day in days}
    return {name: {d: DayMap.of(m, ids[d]) for d in days} for name, m in maps.items()}


def _require_passed(check: Path) -> None:
    report = read_json(check)
    if not report["passed"]:
        breaches = "; ".join(map(str, report["breaches"]))
        raise CheckFailedError(f"{check} did not pass: {breaches}; run dvc repro tabulate")


def _tables(tables: Path) -> tuple[BinTable, CellTable]:
    """The tables; of a weighted log scaled to as many responses as it really has.

    Weights say what rows stand for, not how much is known: that is the responses that were seen.
    """
    bins, cells, made_of = read_bins(tables), read_cells(tables), read_tables_manifest(tables)
    if "in_the_log" not in made_of or not made_of["totals"]["responses"]:
        return bins, cells
    share = made_of["in_the_log"]["responses"] / made_of["totals"]["responses"]
    return scaled(bins, share), scaled(cells, share)


def _compared(
    scores: Path, bins: BinTable, params: CalibrateParams
) -> dict[str, PiecewiseLinearMap]:
    """Maps that are measured and pictured where asked for, and never ship."""
    if not params.competitors and not params.ablation:
        return {}
    rows = read_scores(scores, "calibration")
    maps = {name: cast(PiecewiseLinearMap, fit(name, rows)) for name in params.competitors}
    return maps | (ablation_maps(rows, _paper_settings(bins, params)) if params.ablation else {})


def _crossfit(
    bins: BinTable, cells: CellTable, n_field_values: int, params: CalibrateParams
) -> Outcome:
    fitted = fit_adacalib(bins, cells, n_field_values, params)
    choice = choose(*losses_of(fitted.comparisons, n_field_values))
    about = {
        "drifting": fitted.base.drifting is not None,
        "spline_share": fitted.base.spline_share,
        "correction_share": fitted.correction_share,
        "trained_share_of_steps": fitted.checkpoint,
        "chosen_bins": fitted.chosen_bins.tolist(),
        "moved_knots": fitted.moved_knots,
    }
    return Outcome(fitted.serving, None, choice, about)


def _paper(scores: Path, bins: BinTable, params: CalibrateParams) -> Outcome:
    rows, settings = read_scores(scores, "calibration"), _paper_settings(bins, params)
    features = _features(scores) if params.paper.auxiliary else None
    fitted = fit_paper(rows, settings, features)
    comparisons = paper_comparisons(rows, settings, features)
    choice = choose(*losses_of(comparisons, rows.n_field_values))
    about = {
        "chosen_bins": fitted.chosen_bins.tolist(),
        "moved_knots": fitted.moved_knots,
        "decreasing_share": fitted.decreasing,
    }
    return Outcome(fitted.serving, fitted.auxiliary, choice, about)


def _paper_settings(bins: BinTable, params: CalibrateParams) -> PaperSettings:
    return PaperSettings(
        **params.paper.model_dump(),
        candidates=tuple(np.unique(bins.requested_bins).tolist()),
        temperatures=params.temperatures,
        min_slope=params.min_slope,
        seed=params.seed,
    )


def _features(scores: Path) -> RowFeatures:
    described = read_scores_manifest(scores)["features"]
    if not described["categorical"] and not described["numeric"]:
        raise ParamsError(
            f"calibrate.paper.auxiliary reads the rows' features and {scores} carries none; "
            "set score.keep_features to true and run dvc repro calibrate"
        )
    sizes = tuple(feature["size"] for feature in described["categorical"])
    return RowFeatures(*read_features(scores, "calibration"), sizes)
