"""What must stay in cache and remote: the objects that some commits and folders name."""

import re
from collections.abc import Collection, Iterable
from pathlib import Path

from pipeline.core.errors import ReleaseError
from pipeline.formats.champion import PIN, read_pin
from pipeline.registry import tags
from pipeline.registry.tools import dvc
from pipeline.registry.tools.programs import git
from pipeline.registry.tools.stores import Store

_OBJECT = re.compile(r"\bmd5: ['\"]?([0-9a-f]{32}(?:\.dir)?)")


def kept_versions(history: list[tags.Assignment], removed: Collection[str] = ()) -> dict[str, str]:
    """The commits of the versions that must stay, by version.

    They are the one in production, the one a rollback goes back to, and the one before in time.

    Args:
        history: every assignment, the one that holds now last.
        removed: versions whose bytes an earlier clean-up removed; they need not stay.
    """
    changes = tags.spans(history)
    before = tags.predecessor(history)
    found = {a.version: a.commit for a in [*changes[-2:], *([before] if before else [])]}
    return {version: commit for version, commit in found.items() if version not in removed}


def in_use(folder: Path) -> tuple[set[str], set[str]]:
    """The commits, and the objects, that work in this clone and the tips of branches need.

    Commits are the tips of every branch, here and at the git remotes, as last fetched, and what
    champions are pinned to. Objects are those that the files of every worktree name as they are,
    committed or not.
    """
    heads = git(folder, "for-each-ref", "--format=%(objectname)", "refs/heads", "refs/remotes")
    commits, objects = set(heads.output.split()), set()
    for worktree in worktrees(folder):
        commits.add(git(worktree, "rev-parse", "HEAD").output.strip())
        listing = ("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--")
        names = git(worktree, *listing, "*.dvc", "*dvc.lock").output.split("\0")
        for file in [worktree / name for name in names if name]:
            objects |= set(_OBJECT.findall(file.read_text()) if file.is_file() else ())
        pin = read_pin(worktree / PIN) if (worktree / PIN).exists() else None
        commits |= {pin.commit} if pin else set()
    return commits, objects


def worktrees(folder: Path) -> list[Path]:
    """The clone's folders that exist, this one and its other worktrees."""
    listed = git(folder, "worktree", "list", "--porcelain").output
    found = [Path(path) for path in re.findall(r"^worktree (.+)$", listed, re.M)]
    return [path for path in found if (path / ".git").exists()]


def named_by(folder: Path, commit: str) -> set[str]:
    """The objects that a commit names in dvc.lock and .dvc files; none where it is not here."""
    listed = git(folder, "ls-tree", "-r", "--name-only", "-z", commit, check=False).output
    names = [n for n in listed.split("\0") if n.endswith((".dvc", "dvc.lock"))]
    texts = [git(folder, "show", f"{commit}:{name}").output for name in names]
    return {found for text in texts for found in _OBJECT.findall(text)}


def whole(objects: Iterable[str], stores: list[Store], held: dict[str, set[str]]) -> set[str]:
    """Objects, and for folders the objects of their files.

    A folder whose list no store has cannot be had by anybody who has no other cache; its files are
    not found by it.

    Args:
        objects: their names.
        stores: where lists are read.
        held: what each store has, by its name.
    """
    found = set(objects)
    for folder in [name for name in found if name.endswith(".dir")]:
        store = next((store for store in stores if folder in held[store.name]), None)
        found |= store.members(folder) if store else set()
    return found


def refuse_lost(
    folder: Path, versions: dict[str, str], stores: list[Store], held: dict[str, set[str]]
) -> None:
    """Refuse to remove anything while the model of a version that must stay is incomplete.

    Raises:
        ReleaseError: it is not whole at the remote, or in the cache where there is no remote.
    """
    home = stores[-1]
    for version, commit in versions.items():
        lock = git(folder, "show", f"{commit}:dvc.lock", check=False).output
        model = dvc.model_md5(lock)
        there = {model, *(home.members(model) if model in held[home.name] else [])}
        if model is None or not there <= held[home.name]:
            raise ReleaseError(
                f"{home.name} lacks bytes of {version}, which must stay, so nothing is removed; "
                f"send them from a clone that has them: git switch --detach {commit[:10]}, "
                "dvc push gate"
            )
