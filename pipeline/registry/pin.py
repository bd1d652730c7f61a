"""The pin is moved: production's model and tables are brought beside a run, as its champion."""

import tempfile
from dataclasses import replace
from pathlib import Path

from pipeline.core.errors import ArtifactError
from pipeline.core.files import file_sums, publish
from pipeline.formats import champion
from pipeline.registry import commits, tags
from pipeline.registry.promote import production
from pipeline.registry.tools import dvc, stores
from pipeline.registry.tools.programs import git

BIN_TABLES = Path("artifacts/tables")


def pin_champion(root: Path) -> str:
    """Pin what is in production now as the champion of the next run; a sentence says which.

    The registry is asked afresh. Promotion and rollback themselves never move the pin, so nothing
    goes stale by being promoted: whoever starts a run for a new day pins first.

    Raises:
        ReleaseError: the git remote that says what is in production does not answer.
        ArtifactError: DVC gives other bytes than the version's.
        ToolError: git or dvc failed.
    """
    champion.start_pin(root)
    tags.fetch_tags(root, commits.authority(root))
    current = production(root)
    if current is None:
        champion.write_pin(root / champion.PIN, None)
        return "nothing is in production, so there is no champion"
    pin = champion.Pin(current.version, current.commit, current.last_day, current.model_sha256, {})
    held = _held(root)
    if not (held and replace(held, tables={}) == pin):
        tables = _bring(root, pin)
        champion.write_pin(root / champion.PIN, replace(pin, tables=tables))
        champion.pinned(root / champion.PIN)
    return f"{pin.version} is the champion"


def fetch_champion(root: Path) -> str:
    """Bring the bytes that champion.json names, if they are not here; a sentence says which.

    Raises:
        ArtifactError: champion.json is damaged, or DVC gives other bytes than it names.
        ToolError: git or dvc failed.
    """
    champion.start_pin(root)
    pin = champion.read_pin(root / champion.PIN)
    if pin is None:
        return f"{champion.PIN} pins nothing, so there is no champion"
    if not _held(root):
        _bring(root, pin)
        champion.pinned(root / champion.PIN)
    return f"{pin.version} is the champion"


def _held(root: Path) -> champion.Pin | None:
    """The pin whose bytes are here; None also where champion.json is damaged."""
    try:
        return champion.pinned(root / champion.PIN)
    except ArtifactError:
        return None


def _bring(root: Path, pin: champion.Pin) -> dict[str, str]:
    """Put a version's model and bin tables into the champion's folder; the tables' sums come back.

    They come from DVC's cache where it has them, else from the remote. A version whose commit names
    no tables has none.
    """
    remote = stores.dvc_remote(root)
    (root / champion.FOLDER).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".adacalib-", dir=root / champion.FOLDER) as place:
        model, tables = Path(place) / champion.MODEL.name, Path(place) / champion.TABLES.name
        dvc.fetch(root, pin.commit, model, remote=remote, cached=True)
        lock = git(root, "show", f"{pin.commit}:dvc.lock", check=False).output
        if f"path: {BIN_TABLES.as_posix()}\n" in lock:
            dvc.fetch(root, pin.commit, tables, remote=remote, cached=True, path=BIN_TABLES)
        else:
            tables.mkdir()
        sums = file_sums(tables)
        for part in (model, tables):
            with publish(root / champion.FOLDER / part.name) as target:
                part.rename(target)
    return sums
