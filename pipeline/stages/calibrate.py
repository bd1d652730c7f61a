"""calibrate: checked tables and scores → maps of AdaCalib and its everyday rivals; the choice."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import save

from pipeline.calibration.ablation import ablation_maps, competitor_maps
from pipeline.calibration.adacalib.fit import HeldOut, Settings, fit_adacalib
from pipeline.calibration.adacalib.folds import all_counts
from pipeline.calibration.choice import (
    Choice,
    choose,
    isotonic_of_cells,
    losses_of,
    out_of_sample_losses,
)
from pipeline.calibration.paper.auxiliary import AuxiliaryNetwork
from pipeline.calibration.paper.auxiliary_fit import fit_auxiliary, out_of_fold_logits
from pipeline.calibration.paper.paper_choice import paper_contests
from pipeline.calibration.paper.paper_fit import fit_paper
from pipeline.calibration.paper.paper_network import PaperSettings
from pipeline.calibration.paper.paper_rows import Features
from pipeline.calibration.prior.base_map import still_anchor
from pipeline.core.errors import CheckFailedError, ParamsError
from pipeline.core.files import publish, read_json, write_json
from pipeline.formats.maps import PiecewiseLinearMap, identity_map, write_maps
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

    Where AdaCalib has an auxiliary network its weights go to auxiliary.safetensors.

    Raises:
        CheckFailedError: the tables did not pass their check.
        ArtifactError: an artifact is missing or damaged.
        NotEnoughDataError: the calibration days hold no impressions.
        ParamsError: the auxiliary network is asked for and the scores carry no features.
    """
    _require_passed(check)
    scored, tabulated = read_scores_manifest(scores), read_tables_manifest(tables)
    field_values = scored["field_values"]
    bins, cells = _evidence(tables)
    if params.variant == "paper":
        outcome = _paper(scores, bins, params)
    else:
        outcome = _crossfit(scores, bins, cells, params)
    chosen = outcome.choice.name if params.choose == "held_out" else "adacalib"
    about: dict[str, Any] = {"variant": params.variant, "choose": params.choose, "chosen": chosen}
    about |= {"auxiliary": outcome.auxiliary is not None, "field_values": field_values}
    about |= {"held_out": outcome.choice.as_json()} | outcome.about
    about["params"] = scored.get("params", {}) | tabulated.get("params", {})
    about["params"] |= {"calibrate": params.model_dump(mode="json")}
    with publish(calibrator) as folder:
        folder.mkdir()
        maps = _rivals(cells, len(field_values)) | {"adacalib": outcome.serving}
        maps |= _on_demand(scores, bins, params)
        write_maps(folder / "maps.parquet", maps, field_values)
        write_json(folder / "manifest.json", about)
        if outcome.auxiliary is not None:
            (folder / "auxiliary.safetensors").write_bytes(save(outcome.auxiliary.state_dict()))


def _require_passed(check: Path) -> None:
    report = read_json(check)
    if not report["passed"]:
        breaches = "; ".join(map(str, report["breaches"]))
        raise CheckFailedError(f"{check} did not pass: {breaches}; run dvc repro tabulate")


def _evidence(tables: Path) -> tuple[BinTable, CellTable]:
    """The tables; of a weighted log scaled to as many responses as it really has.

    Weights say what rows stand for, not how much is known: that is the responses that were seen.
    """
    bins, cells, made_of = read_bins(tables), read_cells(tables), read_tables_manifest(tables)
    if "in_the_log" not in made_of or not made_of["totals"]["responses"]:
        return bins, cells
    share = made_of["in_the_log"]["responses"] / made_of["totals"]["responses"]
    return scaled(bins, share), scaled(cells, share)


def _rivals(cells: CellTable, n_field_values: int) -> dict[str, PiecewiseLinearMap]:
    counts = all_counts(cells)
    columns = (counts.impressions, counts.responses, n_field_values)
    return {
        "identity": identity_map(n_field_values),
        "isotonic": isotonic_of_cells(cells, *columns),
        "eb_platt": still_anchor(cells, *columns).as_map(),
    }


def _on_demand(
    scores: Path, bins: BinTable, params: CalibrateParams
) -> dict[str, PiecewiseLinearMap]:
    """Maps that are measured and pictured and never ship."""
    if not params.competitors and not params.ablation:
        return {}
    rows = read_scores(scores, "calibration")
    maps = competitor_maps(rows, params.competitors)
    return maps | (ablation_maps(rows, _paper_settings(bins, params)) if params.ablation else {})


def _crossfit(scores: Path, bins: BinTable, cells: CellTable, params: CalibrateParams) -> Outcome:
    n_field_values = len(read_scores_manifest(scores)["field_values"])
    names = ("folds", "horizon_days", "steps", "learning_rate", "weight_decay", "temperatures")
    settings = Settings(**{n: getattr(params, n) for n in (*names, "min_slope", "seed")})
    fitted = fit_adacalib(bins, cells, n_field_values, settings)
    choice = choose(*out_of_sample_losses(cells, fitted.held_out, n_field_values))
    about = {
        "drifting": fitted.basis.drifting is not None,
        "bend_share": fitted.basis.bend_share,
        "correction_share": fitted.correction_share,
        "trained_share_of_steps": fitted.checkpoint,
        "chosen_bins": fitted.chosen_bins.tolist(),
        "moved_knots": fitted.moved_knots,
    }
    auxiliary = _auxiliary(scores, fitted.held_out, params) if params.auxiliary else None
    return Outcome(fitted.serving, auxiliary, choice, about)


def _auxiliary(
    scores: Path, held_out: list[HeldOut], params: CalibrateParams
) -> AuxiliaryNetwork | None:
    """The network on what the head leaves of rows that it had not seen."""
    if params.folds != "forward":
        raise ParamsError(
            f"calibrate.auxiliary learns on days after the history, calibrate.folds is "
            f"{params.folds!r}; set it to 'forward'"
        )
    features, rows = _features(scores), read_scores(scores, "calibration")
    return fit_auxiliary(rows, features, out_of_fold_logits(rows, held_out), params.seed)


def _paper(scores: Path, bins: BinTable, params: CalibrateParams) -> Outcome:
    rows, settings = read_scores(scores, "calibration"), _paper_settings(bins, params)
    features = _features(scores) if params.paper.auxiliary else None
    fitted = fit_paper(rows, settings, features)
    contests = paper_contests(rows, settings, features)
    choice = choose(*losses_of(contests, rows.n_field_values))
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


def _features(scores: Path) -> Features:
    described = read_scores_manifest(scores)["features"]
    if not described["categorical"] and not described["numeric"]:
        raise ParamsError(
            "the auxiliary network needs features and the scores carry none; "
            "set score.keep_features to true"
        )
    sizes = tuple(feature["size"] for feature in described["categorical"])
    return Features(*read_features(scores, "calibration"), sizes)
