"""What changes a landed log without new rows: labels that were seen again, days that go."""

import shutil
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from pipeline.data.log_store.labels import labels_until, with_labels
from pipeline.data.log_store.landing import Landed
from pipeline.data.log_store.manifest import (
    MANIFEST,
    day_folder,
    read_manifest,
    write_manifest,
)
from pipeline.data.log_store.store import landing_lock, writing


def seen_again(folder: Path, files: Collection[str], as_of: str) -> Landed:
    """Note that the labels of days all of whose files came are known as of a day.

    Args:
        folder: the log's folder.
        files: sha256 of each that came, whether it brought anything new or not.
        as_of: the logical day.

    Raises:
        DataError: the disk takes no more.
    """
    with landing_lock(folder), writing(folder):
        manifest = read_manifest(folder / MANIFEST)
        known = {
            day: with_labels(entry, entry, as_of, entry.labels.get(labels_until(entry) or ""))
            for day, entry in manifest.days.items()
            if entry.sources and {source.sha256 for source in entry.sources} <= {*files}
        }
        manifest = replace(manifest, days={**manifest.days, **known})
        write_manifest(folder / MANIFEST, manifest)
        return Landed(manifest, known, [])


def drop_days(folder: Path, days: Sequence[str]) -> Landed:
    """Take days out of a log; what was taken out comes back.

    Raises:
        DataError: a day is neither in the manifest nor in the folder; nothing is taken out then.
    """
    with landing_lock(folder), writing(folder):
        manifest = read_manifest(folder / MANIFEST)
        for day in days:
            if not day_folder(folder, day).exists():
                manifest.entry(day)
        gone = {day: manifest.days[day] for day in days if day in manifest.days}
        rest = {day: entry for day, entry in manifest.days.items() if day not in days}
        manifest = replace(manifest, days=rest, origin={})
        write_manifest(folder / MANIFEST, manifest)  # first: a folder that it lacks is no day
        for day in days:
            shutil.rmtree(day_folder(folder, day), ignore_errors=True)
        return Landed(manifest, gone, [])
