"""Back to an earlier version: the registry says so, and whoever follows production follows."""

import tempfile
from pathlib import Path

from pipeline.core.errors import ReleaseError, ToolError
from pipeline.registry import atomic_tags, commits, tags
from pipeline.registry.promotion import check_copy, gate_of, reach, remote_for
from pipeline.registry.tools import dvc


def rollback(folder: Path, version: str | None = None) -> str:
    """Put an earlier version back into production; one sentence says which.

    Its bytes are read back first, from where those who follow production would read them.

    Args:
        folder: the project's folder.
        version: a registered version; None: the predecessor of the one in production, so that a
            second rollback goes further back, never forward again.

    Raises:
        ReleaseError: there is no such version, or its bytes are not the ones that were judged.
        ToolError: the remote lacks its bytes, or git, dvc or gto is missing or failed.
    """
    commits.check_repository(folder)
    authority = commits.authority(folder)
    tags.fetch_tags(folder, authority)
    history = tags.assignments(folder)
    if not history:
        raise ReleaseError("nothing is in production, so there is nothing to roll back")
    atomic_tags.refuse_while_cleaning(history)
    chosen = version or _predecessor(folder, history)
    commit = _commit_of(folder, chosen, history[-1].version)
    _read_back(folder, commit, authority, chosen)
    dvc.assign(folder, commit, commits.identity(folder), authority, history[-1])
    return f"{chosen} is back in production in place of {history[-1].version} ({reach(authority)})"


def _read_back(folder: Path, commit: str, authority: str, chosen: str) -> None:
    """Refuse a version that others could not fetch, or whose bytes are not the judged ones."""
    remote = remote_for(folder, authority)
    with tempfile.TemporaryDirectory(prefix="adacalib-") as place:
        copy = Path(place) / "model"
        try:
            dvc.fetch(folder, commit, copy, remote=remote, cached=remote is None)
        except ToolError as error:
            raise ToolError(
                f"{error}; production stays as it is: send the bytes of {chosen} there, git "
                f"restore --source {commit[:10]} dvc.lock data.dvc, dvc push, git restore dvc.lock "
                "data.dvc, and roll back again"
            ) from None
        check_copy(copy, gate_of(folder, commit)["model_sha256"])


def _predecessor(folder: Path, history: list[tags.Assignment]) -> str:
    before = tags.predecessor(history)
    if before is None:
        current = history[-1].version
        others = [version for version in tags.versions(folder) if version != current]
        named = f"; to go to {' or '.join(others)}, name it: adacalib rollback VERSION"
        raise ReleaseError(
            f"nothing was in production before {current}, so there is no way further back"
            f"{named if others else ''}"
        )
    return before.version


def _commit_of(folder: Path, chosen: str, current: str) -> str:
    known = tags.versions(folder)
    if chosen == current or chosen not in known:
        raise ReleaseError(
            f"{current} is in production, and the registry has {', '.join(known)}: there is no way "
            f"back to {chosen}"
        )
    removed = tags.removals(folder).get(chosen)
    if removed:
        raise ReleaseError(
            f"{removed.who} removed the bytes of {chosen} with adacalib clean on "
            f"{tags.when(removed.seconds)} UTC; make them anew from its commit: git switch "
            f"--detach {known[chosen][:10]}, dvc repro"
        )
    return known[chosen]
