"""calibrate: checked tables → the serving maps of AdaCalib and its everyday rivals, and the choice."""

from pathlib import Path
from typing import Any

from pipeline.calibration.adacalib import Fitted, Settings, fit_adacalib
from pipeline.calibration.folds import all_counts
from pipeline.calibration.piecewise import identity_map
from pipeline.calibration.selection import choose, isotonic_of_cells, out_of_sample_losses
from pipeline.data.map_files import write_maps
from pipeline.data.score_files import read_scores_manifest
from pipeline.data.table_files import read_bins, read_cells
from pipeline.errors import CheckFailedError
from pipeline.files import publish, read_json, write_json
from pipeline.params import CalibrateParams


def run(
    scores: Path, tables: Path, check: Path, calibrator: Path, *, params: CalibrateParams
) -> None:
    """Write maps.parquet (identity, isotonic, eb_platt, adacalib) and manifest.json.

    Raises:
        CheckFailedError: the tables did not pass their check.
        ArtifactError: an artifact is missing or damaged.
        NotEnoughDataError: the calibration days hold no impressions.
    """
    _require_passed(check)
    field_values = read_scores_manifest(scores)["field_values"]
    bins, cells = read_bins(tables), read_cells(tables)
    n = len(field_values)
    fitted = fit_adacalib(bins, cells, n, _settings(params))
    choice = choose(*out_of_sample_losses(cells, fitted.held_out, n))
    chosen = choice.name if params.choose == "held_out" else "adacalib"
    counts = all_counts(cells)
    maps = {
        "identity": identity_map(n),
        "isotonic": isotonic_of_cells(cells, counts.impressions, counts.responses, n),
        "eb_platt": fitted.basis.still.as_map(),
        "adacalib": fitted.serving,
    }
    with publish(calibrator) as folder:
        folder.mkdir()
        write_maps(folder / "maps.parquet", maps, field_values)
        about = {"variant": params.variant, "choose": params.choose, "chosen": chosen}
        about |= {"field_values": field_values, "held_out": choice.as_json()}
        write_json(folder / "manifest.json", about | _about(fitted))


def _require_passed(check: Path) -> None:
    report = read_json(check)
    if not report["passed"]:
        raise CheckFailedError(
            f"{check} did not pass: {'; '.join(map(str, report['breaches']))}; rerun dvc repro tabulate"
        )


def _settings(params: CalibrateParams) -> Settings:
    names = ("horizon_days", "steps", "learning_rate", "weight_decay", "min_slope", "seed")
    return Settings(**{name: getattr(params, name) for name in names})


def _about(fitted: Fitted) -> dict[str, Any]:
    """How AdaCalib came about, for the report."""
    return {
        "drifting": fitted.basis.drifting is not None,
        "shares": {
            "bend": fitted.basis.bend_share,
            "correction": fitted.correction_share,
        },
        "trained_share_of_steps": fitted.checkpoint,
        "chosen_bins": fitted.chosen_bins.tolist(),
        "moved_knots": fitted.moved_knots,
    }
