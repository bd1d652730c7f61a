"""split: whole days for training, calibration and test, and the conventions that travel on."""

from pathlib import Path

from pipeline.data.days import day_boundaries, split_days
from pipeline.data.manifest import read_manifest
from pipeline.errors import ArtifactError, NotEnoughDataError
from pipeline.files import publish, read_json, write_json
from pipeline.params import LogParams, SplitParams


def run(
    manifest: Path, validation: Path, target: Path, *, params: SplitParams, log: LogParams
) -> None:
    """Write artifacts/split/manifest.json; the parts end with `log.last_day` or the newest day.

    Raises:
        NotEnoughDataError: a needed day is not there; it is named with its part.
        ArtifactError: the validation is of other days.
    """
    landed = read_manifest(manifest)
    if not landed.days:
        raise NotEnoughDataError(f"{manifest} has no days; bring a log with adacalib data FORMAT")
    last_day = log.last_day or max(landed.days)
    counts = {
        "training": params.training_days,
        "calibration": params.calibration_days,
        "test": params.test_days,
    }
    parts = split_days(list(landed.days), last_day, counts)
    days = [day for part in parts.values() for day in part]
    unchecked = sorted(set(days) - set(read_json(validation)["by_day"]))
    if unchecked:
        raise ArtifactError(f"{validation} does not cover the day {unchecked[0]}; run dvc repro")
    boundaries = {
        part: [
            day_boundaries(part_days[0], log.time_zone)[0].isoformat(),
            day_boundaries(part_days[-1], log.time_zone)[1].isoformat(),
        ]
        for part, part_days in parts.items()
    }
    with publish(target) as temporary:
        document = {
            "parts": parts,
            "boundaries": boundaries,
            "conventions": log.model_dump(),
            "data": {day: landed.days[day].content_sha256 for day in days},
        }
        write_json(temporary / "manifest.json", document)
