"""split: whole days for training, calibration and test, and the conventions that travel on."""

from pathlib import Path
from typing import Any

from pipeline.core.errors import ArtifactError, NotEnoughDataError
from pipeline.core.files import publish, read_json, write_json
from pipeline.data.log_store.day_rows import day_boundaries
from pipeline.data.log_store.manifest import Manifest, read_manifest
from pipeline.data.log_store.splits import (
    LabelMaturity,
    label_maturity,
    split_by_count,
    split_by_date,
    with_gap,
)
from pipeline.params.sections import LogParams, SplitParams


def run(
    manifest: Path, validation: Path, target: Path, *, params: SplitParams, log: LogParams
) -> None:
    """Write artifacts/split/manifest.json; the splits end with the newest day whose labels are
    mature, up to `log.last_day`, or are those of the dates in `params`.

    Raises:
        NotEnoughDataError: a needed day is not there or not mature; it is named.
        ArtifactError: the validation is of other days.
    """
    landed = read_manifest(manifest)
    if not landed.days:
        raise NotEnoughDataError(f"{manifest} has no days; bring a log with adacalib data FORMAT")
    maturity = label_maturity(landed.days, log.maturity_days, log.time_zone, log.last_day)
    splits = _splits(landed, maturity, params, log)
    days = [day for split in splits.values() for day in split]
    unchecked = sorted(set(days) - _checked(landed, read_json(validation)))
    if unchecked:
        raise ArtifactError(f"{validation} does not cover the day {unchecked[0]}; run dvc repro")
    with publish(target) as temporary:
        document = {
            "parts": splits,
            "boundaries": {split: _boundaries(names, log) for split, names in splits.items()},
            "waiting": maturity.waiting,
            "conventions": _conventions(landed, maturity, log),
            "data": {day: landed.days[day].content_sha256 for day in days},
            "params": {"log": log.model_dump(mode="json"), "split": params.model_dump(mode="json")},
        }
        write_json(temporary / "manifest.json", document)


def _splits(
    landed: Manifest, maturity: LabelMaturity, params: SplitParams, log: LogParams
) -> dict[str, list[str]]:
    if params.dates:
        splits = split_by_date(landed.days, params.dates, log.time_zone, maturity, log.last_day)
    else:
        assert params.counts
        counts = params.counts | {"calibration": params.counts["calibration"] + log.maturity_days}
        splits = split_by_count(landed.days, counts, log.time_zone, maturity, log.last_day)
    return with_gap(splits, log.maturity_days)


def _checked(landed: Manifest, validation: dict[str, Any]) -> set[str]:
    """The landed days that a validation looked at."""
    first, last = validation["first_day"], validation["last_day"]
    return {d for d in landed.days if first <= d <= last} - set(validation["missing_days"])


def _boundaries(days: list[str], log: LogParams) -> list[str]:
    """The instants [start, end) of a split."""
    start, end = (
        day_boundaries(days[0], log.time_zone)[0],
        day_boundaries(days[-1], log.time_zone)[1],
    )
    return [start.isoformat(), end.isoformat()]


def _conventions(landed: Manifest, maturity: LabelMaturity, log: LogParams) -> dict[str, Any]:
    """What the model's numbers mean: the contract, the landed types, and which labels are final."""
    conventions = log.model_dump() | {
        "column_types": dict(landed.columns),
        "label_maturity": {
            "maturity_days": maturity.maturity_days,
            "reference_day": maturity.reference_day,
            "newest_mature_day": maturity.newest_mature_day,
        },
    }
    return conventions | ({"reading": dict(landed.reading)} if landed.reading else {})
