"""split: whole days for training, calibration and test, and the conventions that travel on."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.core.errors import ArtifactError
from pipeline.core.files import publish, read_json, write_facts
from pipeline.data.log_store.day_rows import day_boundaries
from pipeline.data.log_store.manifest import Manifest, read_manifest
from pipeline.data.log_store.splits import LabelMaturity, maturity_of, split_by_count
from pipeline.params.sections import LogParams, SplitParams


def run(
    manifest: Path, validation: Path, target: Path, *, params: SplitParams, log: LogParams
) -> None:
    """Write artifacts/split: manifest.json, and training.json, all that the base model may know.

    The splits end with the newest day whose labels are mature, up to `last_day`. What training.json
    says stays the same from one day of the grid to the next, and with it the base model.

    Raises:
        NotEnoughDataError: a needed day is not there or not mature; it is named.
        ArtifactError: the validation is of other days.
    """
    landed, maturity = _landed(manifest, params, log)
    splits = _splits(landed, maturity, params, log)
    days = [day for split in splits.values() for day in split]
    unchecked = sorted(set(days) - _checked(landed, read_json(validation)))
    if unchecked:
        raise ArtifactError(f"{validation} does not cover the day {unchecked[0]}; run dvc repro")
    # bins and ids are fixed on as many calibration days as there are on the first day of a base
    binning = splits["calibration"][: params.calibration_days]
    training = _training(landed, splits, log)
    hashes = {day: landed.days[day].content_sha256 for day in days}
    final = {name: value for name, value in vars(maturity).items() if name != "waiting"}
    with publish(target) as temporary:
        document = {
            "parts": splits,
            "binning_days": binning,
            "boundaries": {split: _boundaries(names, log) for split, names in splits.items()},
            "waiting": maturity.waiting,
            "conventions": training["conventions"] | {"label_maturity": final},
            "data": hashes,
            "params": {"log": log.model_dump(mode="json"), "split": params.model_dump(mode="json")},
        }
        write_facts(temporary / "manifest.json", document)
        write_facts(temporary / "training.json", training)


def kept_until(
    manifest: Path, training: Path, *, params: SplitParams, log: LogParams
) -> str | None:
    """The newest training day, where a split would leave training.json as it is; else None.

    Raises:
        AdaCalibError: as `run`.
    """
    landed, maturity = _landed(manifest, params, log)
    coming = _training(landed, _splits(landed, maturity, params, log), log)
    same = training.exists() and read_json(training) == json.loads(json.dumps(coming))
    return max(coming["days"]) if same else None


def newest_training_day(manifest: Path, *, params: SplitParams, log: LogParams) -> str:
    """The newest day that a base model may be trained on, on the grid or not.

    Raises:
        NotEnoughDataError: there is no landed day.
    """
    landed, maturity = _landed(manifest, params, log)
    every = params.model_copy(update={"retrain_every_days": 1, "training_until": None})
    return _splits(landed, maturity, every, log)["training"][-1]


def _landed(manifest: Path, params: SplitParams, log: LogParams) -> tuple[Manifest, LabelMaturity]:
    """What has landed, and which labels of it are final."""
    landed = read_manifest(manifest)
    return landed, maturity_of(landed, log.maturity_days, params.last_day)


def _training(landed: Manifest, splits: Mapping[str, list[str]], log: LogParams) -> dict[str, Any]:
    """Training days with the hashes of their rows, and what the log's numbers mean."""
    reading = {"reading": dict(landed.reading)} if landed.reading else {}
    conventions = log.model_dump() | reading | {"column_types": dict(landed.columns)}
    days = {day: landed.days[day].content_sha256 for day in splits["training"]}
    return {"days": days, "conventions": conventions}


def _splits(
    landed: Manifest, maturity: LabelMaturity, params: SplitParams, log: LogParams
) -> dict[str, list[str]]:
    return split_by_count(
        landed.days, params.counts, log.time_zone, maturity, params.last_day,
        retrain_every_days=params.retrain_every_days, training_until=params.training_until,
    )  # fmt: skip


def _checked(landed: Manifest, validation: dict[str, Any]) -> set[str]:
    """The landed days that a validation looked at."""
    first, last = validation["first_day"], validation["last_day"]
    return {d for d in landed.days if first <= d <= last} - set(validation["missing_days"])


def _boundaries(days: list[str], log: LogParams) -> list[str]:
    """The instants [start, end) of a split."""
    first, last = (day_boundaries(days[end], log.time_zone) for end in (0, -1))
    return [first[0].isoformat(), last[1].isoformat()]
