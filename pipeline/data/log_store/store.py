"""Putting days into a log: one writer at a time, and a reader sees whole days alone."""

import logging
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from filelock import FileLock, Timeout

from pipeline.core.errors import DataError
from pipeline.core.files import discard, publish, remove_unfinished
from pipeline.data.log_store.manifest import (
    COMING,
    MANIFEST,
    PART,
    DayEntry,
    Manifest,
    day_folder,
    read_manifest,
    write_manifest,
)
from pipeline.data.log_store.splits import labels_until, with_labels
from pipeline.formats.days import day_number

Staged: TypeAlias = Mapping[str, tuple[Path, DayEntry]]  # day → its file beside the log, its entry


@contextmanager
def landing_lock(folder: Path) -> Iterator[None]:
    """Hold the right to write `folder`; a second writer waits until the first has ended.

    A killed writer holds nothing; what it left behind is put in order first.

    Raises:
        DataError: an operation on the disk failed, as where it is full.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(_lock_file(folder), poll_interval=0.2)
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        logging.getLogger(__name__).warning("another landing in %s runs; waiting", folder)
        held = lock.acquire()
    try:
        with held:
            _clear_up(folder)
            yield
    except OSError as error:
        reason = (error.strerror or str(error)).splitlines()[0]
        raise DataError(
            f"{folder} cannot be written: {reason}; all its days are whole: mend that, land again"
        ) from error


def _lock_file(folder: Path) -> Path:
    """Named like an unfinished write, which git and DVC pass over."""
    return folder.parent / f".{folder.name}.tmp-lock"


def _clear_up(folder: Path) -> None:
    """Bring back a log that was moved aside and not yet replaced; remove unfinished writes, and
    finish what a killed landing of days had begun.
    """
    for aside in folder.parent.glob(f".{folder.name}.tmp-old-*"):
        if not folder.exists():
            aside.rename(folder)
    remove_unfinished(folder)
    for path in folder.parent.glob(f".{folder.name}.tmp-*"):
        if path != _lock_file(folder):
            discard(path)
    if (folder / COMING).exists():
        _settle(folder, read_manifest(folder / MANIFEST))
        for empty in folder.glob("day=*"):
            if not any(empty.iterdir()):
                empty.rmdir()


def standing_log(folder: Path) -> Manifest | None:
    """The manifest of the log in `folder`; None where there is no log at all."""
    if not (folder / MANIFEST).exists():
        if any(not path.name.startswith(".") for path in folder.glob("*")):
            raise DataError(
                f"{folder} holds files and no {MANIFEST}, so they are no landed log; move them away"
            )
        return None
    return read_manifest(folder / MANIFEST)


def commit(folder: Path, standing: Manifest, staged: Staged) -> Manifest:
    """Move the staged days into `folder` and write them into its manifest; see `read_manifest`.

    Args:
        folder: the log's folder.
        standing: its manifest as it is, or that of a log without days.
        staged: the days that are put in.
    """
    entries = {day: entry for day, (_, entry) in staged.items()}
    days = dict(sorted({**standing.days, **entries}.items()))
    rows, before = ({d: e.content_sha256 for d, e in log.items()} for log in (days, standing.days))
    origin = standing.origin if rows == before else {}
    manifest = replace(standing, days=days, origin=origin)
    write_manifest(folder / COMING, manifest)
    for day, (file, _) in staged.items():
        with publish(day_folder(folder, day) / PART) as temporary:
            file.rename(temporary)
    _settle(folder, manifest)
    return manifest


def _settle(folder: Path, manifest: Manifest) -> None:
    """Make `manifest` that of `folder`, and remove what it does not name of its days."""
    write_manifest(folder / MANIFEST, manifest)
    (folder / COMING).unlink(missing_ok=True)
    for day, entry in manifest.days.items():
        for path in day_folder(folder, day).glob("*"):
            if path.name not in entry.files:
                path.unlink()


def seen_again(folder: Path, files: Collection[str], as_of: str) -> dict[str, DayEntry]:
    """Note that the labels of days all of whose files came are known as of a day.

    Args:
        folder: the log's folder.
        files: sha256 of each that came, whether it brought anything new or not.
        as_of: the logical day.

    Raises:
        DataError: the disk takes no more.
    """
    with landing_lock(folder):
        manifest = read_manifest(folder / MANIFEST)
        known = {
            day: with_labels(entry, entry, as_of, entry.labels.get(labels_until(entry) or ""))
            for day, entry in manifest.days.items()
            if entry.sources and {source.sha256 for source in entry.sources} <= {*files}
        }
        write_manifest(folder / MANIFEST, replace(manifest, days={**manifest.days, **known}))
        return known


def drop_days(folder: Path, days: Sequence[str]) -> dict[str, DayEntry]:
    """Take days out of a log; what was taken out comes back.

    Raises:
        DataError: a day is misspelled, or neither in the manifest nor in the folder; nothing is
            taken out then.
    """
    with landing_lock(folder):
        manifest = read_manifest(folder / MANIFEST)
        for day in days:
            day_number(day)  # never another path
            if not day_folder(folder, day).exists():
                manifest.entry(day)
        gone = {day: manifest.days[day] for day in days if day in manifest.days}
        rest = {day: entry for day, entry in manifest.days.items() if day not in days}
        # first the manifest: a folder that it lacks is no day
        write_manifest(folder / MANIFEST, replace(manifest, days=rest, origin={}))
        for day in days:
            shutil.rmtree(day_folder(folder, day), ignore_errors=True)
        return gone
