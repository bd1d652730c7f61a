"""Removal of bytes that nobody needs any more, by atomic pushes as promotion and rollback are.

The gc roots, what must stay in cache and remote, are the objects that some commits and worktrees
name. `dvc gc` keeps what one workspace and some revisions of a clone name; it knows neither other
worktrees nor what is in production, and takes a folder whose list the cache lacks for empty.
"""

import re
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pipeline.core.errors import ReleaseError, ToolError
from pipeline.formats.champion import PIN, read_pin
from pipeline.registry import commits, tags
from pipeline.registry.promote import newest
from pipeline.registry.tools.dvc import model_md5, refuse_busy
from pipeline.registry.tools.programs import fetch, git, hold, run_lock
from pipeline.registry.tools.stores import Store, stores

_OBJECT = re.compile(r"\bmd5: ['\"]?([0-9a-f]{32}(?:\.dir)?)")
LOCKED = ("release", "backfill")  # worktrees of runs; flows hold these locks


@dataclass(frozen=True)
class Cleaning:
    """What a clean-up removes, or has removed.

    Attributes:
        done: whether it was done.
        kept: the versions that stay whole, by themselves.
        losing: the versions that lose bytes; their tags stay.
        files: how many objects, by store.
        size: their bytes, by store.
    """

    done: bool
    kept: tuple[str, ...]
    losing: tuple[str, ...]
    files: dict[str, int]
    size: dict[str, int]

    def __str__(self) -> str:
        verb = "removed" if self.done else "would remove"
        lines = [
            f"{verb} {count:,} files, {self.size[store] / 1e6:,.1f} MB, from {store}"
            for store, count in self.files.items()
        ]
        lines.append(f"versions that lose their bytes: {', '.join(self.losing) or 'none'}")
        lines.append(
            f"what stays: {', '.join(self.kept)}, champions, every worktree, and the tip of every "
            "branch"
        )
        if not self.done and any(self.files.values()):
            lines.append("to do so: adacalib clean --yes")
        return "\n".join(lines)


def clean(folder: Path, *, really: bool) -> Cleaning:
    """Remove from cache and remote what production, its predecessor and work at hand do not need.

    What is pushed after the first look is never touched; from the mark that begins the removal to
    the one that ends it nobody can promote or roll back; who was about to loses, as to another
    promoter.

    Args:
        folder: the project's folder.
        really: whether to do it; if not, say what would be removed.

    Raises:
        ReleaseError: nothing is in production, bytes of a version that must stay are not where they
            should be, or a promotion came first.
        ToolError: a run is at work in this clone, a store does not answer, or git or dvc failed.
    """
    with ExitStack() as stack:
        for name in LOCKED if really else ():
            stack.enter_context(hold(run_lock(folder, name), "adacalib clean", f".{name}"))
        for worktree in worktrees(folder) if really else ():
            refuse_busy(worktree)
        places = stack.enter_context(stores(folder))
        held = {place: place.held() for place in places}
        history, remote = newest(folder), commits.authority(folder)
        if not history:
            raise ReleaseError("nothing is in production yet, so nothing is removed; promote first")
        if remote != ".":  # the tips of its branches, also where the clone follows one alone
            fetch(folder, remote, f"+refs/heads/*:refs/remotes/{remote}/*", check=True)
        kept = kept_versions(history, tags.removals(folder))
        refuse_lost(folder, kept, places[-1], held[places[-1]])
        used, objects = in_use(folder)
        for commit in used | set(kept.values()):
            objects |= named_by(folder, commit)
        stays = whole(objects, held)
        gone = {place: there - stays for place, there in held.items()}
        every = set().union(*gone.values())
        known = tags.versions(folder).items()
        losing = {version: commit for version, commit in known if named_by(folder, commit) & every}
        files = {place.name: len(objects) for place, objects in gone.items()}
        size = {place.name: place.size(objects) for place, objects in gone.items()}
        if really and any(gone.values()):
            _remove(folder, history[-1], losing, gone)
    return Cleaning(really, tuple(kept), tuple(losing), files, size)


def _remove(
    folder: Path, held: tags.Tag, losing: dict[str, str], gone: dict[Store, set[str]]
) -> None:
    with tags.cleaning(folder, held, losing):
        give_up = time.monotonic() + tags.CLEAN_SECONDS
        for store, objects in gone.items():
            for batch in store.batches(objects):
                if time.monotonic() > give_up:
                    raise ToolError(
                        f"{store.name} took longer than {tags.CLEAN_SECONDS} s, for which "
                        "promotions wait; run adacalib clean --yes again for the rest"
                    )
                store.remove(batch)


def kept_versions(history: list[tags.Tag], removed: Collection[str] = ()) -> dict[str, str]:
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
    """The objects that a commit names in dvc.lock and .dvc files.

    Raises:
        ToolError: the commit is not here, so nobody can say what it needs.
    """
    listed = git(folder, "ls-tree", "-r", "--name-only", "-z", commit).output
    names = [n for n in listed.split("\0") if n.endswith((".dvc", "dvc.lock"))]
    texts = [git(folder, "show", f"{commit}:{name}").output for name in names]
    return {found for text in texts for found in _OBJECT.findall(text)}


def whole(objects: Iterable[str], held: Mapping[Store, set[str]]) -> set[str]:
    """Objects, and for folders the objects of their files.

    A folder whose list no store has cannot be had by anybody who has no other cache; its files are
    not found by it.

    Args:
        objects: their names.
        held: what each store has, from which lists are read.
    """
    found = set(objects)
    for folder in [name for name in found if name.endswith(".dir")]:
        store = next((store for store, there in held.items() if folder in there), None)
        found |= {*store.entries(folder).values()} if store else set()
    return found


def refuse_lost(folder: Path, versions: dict[str, str], home: Store, held: set[str]) -> None:
    """Refuse to remove anything while the model of a version that must stay is incomplete.

    Args:
        folder: a clone of the project.
        versions: their commits by version.
        home: the remote, or the cache where there is no remote.
        held: what it has.

    Raises:
        ReleaseError: one is not whole there.
    """
    for version, commit in versions.items():
        model = model_md5(folder, commit)
        if model is None or not whole({model}, {home: held}) <= held:
            raise ReleaseError(
                f"{home.name} lacks bytes of {version}, which must stay, so nothing is removed; "
                f"send them from a clone that has them: git switch --detach {commit[:10]}, "
                "dvc push gate"
            )
