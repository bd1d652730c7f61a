"""Removal of bytes that nobody needs any more, in the same fence as promotion and rollback."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.core.errors import ReleaseError, ToolError
from pipeline.registry import atomic_tags, commits, gc_roots, tags
from pipeline.registry.tools.dvc import refuse_busy
from pipeline.registry.tools.locks import hold, run_lock
from pipeline.registry.tools.programs import git
from pipeline.registry.tools.stores import Store, stores

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
    commits.check_clone(folder)
    authority = commits.authority(folder)
    with _quiet(folder, really), stores(folder) as places:
        held = {place.name: place.held() for place in places}
        history = _current(folder, authority)
        kept = gc_roots.kept_versions(history, tags.removals(folder))
        gc_roots.refuse_lost(folder, kept, places, held)
        used, objects = gc_roots.in_use(folder)
        for commit in used | set(kept.values()):
            objects |= gc_roots.named_by(folder, commit)
        stays = gc_roots.whole(objects, places, held)
        gone = {place.name: held[place.name] - stays for place in places}
        losing = _losing(folder, gone)
        found = Cleaning(
            really,
            tuple(kept),
            tuple(losing),
            {place.name: len(gone[place.name]) for place in places},
            {place.name: place.size(gone[place.name]) for place in places},
        )
        if really and any(gone.values()):
            _remove(folder, authority, history[-1], losing, {p: gone[p.name] for p in places})
    return found


@contextmanager
def _quiet(folder: Path, really: bool) -> Iterator[None]:
    """Hold the locks of this clone's runs, where anything is to be removed."""
    with ExitStack() as stack:
        for name in LOCKED if really else ():
            stack.enter_context(hold(run_lock(folder, name), "adacalib clean", f".{name}"))
        for worktree in gc_roots.worktrees(folder) if really else ():
            refuse_busy(worktree)
        yield


def _current(folder: Path, authority: str) -> list[tags.Assignment]:
    """The history of production and the tips of branches, as the authority has them now."""
    tags.fetch_tags(folder, authority)
    if authority != ".":
        git(folder, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", authority)
    history = tags.assignments(folder)
    if not history:
        raise ReleaseError("nothing is in production yet, so nothing is removed; promote first")
    atomic_tags.refuse_while_cleaning(history)
    return history


def _losing(folder: Path, gone: dict[str, set[str]]) -> dict[str, str]:
    """The commits of versions of which a store loses objects, by version."""
    every = set().union(*gone.values())
    return {v: c for v, c in tags.versions(folder).items() if gc_roots.named_by(folder, c) & every}


def _remove(
    folder: Path,
    authority: str,
    held: tags.Assignment,
    losing: dict[str, str],
    gone: dict[Store, set[str]],
) -> None:
    who = commits.identity(folder)
    begun = atomic_tags.begin_clean(folder, who, authority, held, losing)
    give_up = time.monotonic() + atomic_tags.CLEAN_SECONDS
    for store, objects in gone.items():
        for batch in store.batches(objects):
            if time.monotonic() > give_up:
                raise ToolError(
                    f"{store.name} took longer than {atomic_tags.CLEAN_SECONDS} s, for which "
                    "promotions wait; run adacalib clean --yes again for the rest"
                )
            store.remove(batch)
    atomic_tags.end_clean(folder, who, authority, begun)
