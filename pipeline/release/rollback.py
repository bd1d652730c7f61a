"""Back to an earlier version: the registry says so, and whoever follows production follows."""

import tempfile
from pathlib import Path

from pipeline.errors import ReleaseError
from pipeline.release import commits, registry, tags
from pipeline.release.promotion import check_copy, gate_of, reach


def rollback(folder: Path, version: str | None = None) -> str:
    """Put an earlier version back into production; one sentence says which.

    Args:
        folder: the project's folder.
        version: a registered version; None: the predecessor of the one in production, so that a
            second rollback goes further back, never forward again.

    Raises:
        ReleaseError: there is no such version, or its bytes are not the ones that were judged.
        ToolError: git, dvc or gto is missing or failed.
    """
    commits.check_repository(folder)
    authority = commits.authority(folder)
    tags.fetch_tags(folder, authority)
    history = tags.assignments(folder)
    if not history:
        raise ReleaseError("nothing is in production, so there is nothing to roll back")
    chosen = version or _predecessor(folder, history)
    commit = _commit_of(folder, chosen, history[-1].version)
    with tempfile.TemporaryDirectory(prefix="adacalib-") as place:
        copy = Path(place) / "model"
        remote = registry.default_remote(folder)
        registry.fetch(folder, commit, copy, remote=remote, cached=True)
        check_copy(copy, gate_of(folder, commit)["model_sha256"])
    registry.assign(folder, commit, commits.identity(folder), authority, history[-1])
    return f"{chosen} is back in production in place of {history[-1].version} ({reach(authority)})"


def _predecessor(folder: Path, history: list[tags.Assignment]) -> str:
    before = tags.predecessor(history)
    if before is None:
        raise ReleaseError(
            f"nothing was in production before {history[-1].version}, so there is no way further "
            f"back; the registry has {', '.join(tags.versions(folder))}: to go to one of them, "
            "name it: adacalib rollback VERSION"
        )
    return before.version


def _commit_of(folder: Path, chosen: str, current: str) -> str:
    known = tags.versions(folder)
    if chosen == current or chosen not in known:
        raise ReleaseError(
            f"{current} is in production, and the registry has {', '.join(known)}: there is no way "
            f"back to {chosen}"
        )
    return known[chosen]
