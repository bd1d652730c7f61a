"""The fence: tags of the registry are published in one push, in order, or not at all."""

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from pipeline.core.errors import ReleaseError
from pipeline.registry.tags import NAME, STAGE, Assignment, assignments, removals, tags_of, when
from pipeline.registry.tools.programs import git

_CLOCK_WAIT = 5.0  # seconds to wait for this clock to pass the newest assignment's
_LOST = (
    "another promotion came first, production is what it made it; look at adacalib status and "
    "promote again if this model should follow"
)
CLEAN_SECONDS = 600  # how long a clean-up may remove bytes
_VOID_SECONDS = 900  # after which one that was not ended is taken for killed
_CLEANING, _CLEANED = "adacalib clean: removing bytes", "adacalib clean: done"


@contextlib.contextmanager
def proposed(
    folder: Path, identity: dict[str, str], authority: str, replaced: Assignment | None
) -> Iterator[Path]:
    """Yield a scratch clone; the registry tags made in it are published when the block ends.

    The clone shares the folder's objects and has no files. Its new tags go to the authority in one
    atomic push. Tags are numbered in order and never move, so of two promoters one has its push
    rejected whole, and a promoter that dies before leaves nothing behind. Tags that are older than
    the authority go along, so that others know every version that may come back.

    Args:
        folder: a git repository with the authority's newest tags.
        identity: GIT_COMMITTER_NAME, GIT_COMMITTER_EMAIL and so on.
        authority: name of a git remote, or "." for this repository itself.
        replaced: what the tags were decided against; they are void where it is in production no
            more.

    Raises:
        ReleaseError: another promotion came first, or the authority takes no tags from here.
        ToolError: git failed.
    """
    _wait_for_the_clock(folder)
    with tempfile.TemporaryDirectory(prefix="adacalib-") as place:
        clone = Path(place) / "clone"
        settings = [
            f"--config=user.name={identity['GIT_COMMITTER_NAME']}",
            f"--config=user.email={identity['GIT_COMMITTER_EMAIL']}",
        ]
        source = str(folder.resolve())
        git(folder, "clone", "--quiet", "--shared", "--no-checkout", *settings, source, str(clone))
        if assignments(clone)[-1:] != ([replaced] if replaced else []):
            raise ReleaseError(_LOST)
        before = {tag.name for tag in tags_of(clone, f"{NAME}*")}
        yield clone
        new = [tag.name for tag in tags_of(clone, f"{NAME}*") if tag.name not in before]
        refs = [f"refs/tags/{tag}" for tag in new]
        git(folder, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", str(clone), *refs)
        made = {ref: git(clone, "rev-parse", ref).output.strip() for ref in refs}
    _push_tags(folder, authority, _unpublished(folder, authority) | made)
    for ref, tag_object in made.items():
        git(folder, "update-ref", ref, tag_object)


def begin_clean(
    folder: Path,
    identity: dict[str, str],
    authority: str,
    held: Assignment,
    losing: dict[str, str],
) -> Assignment:
    """Begin a clean-up: production is assigned again as it is, by a tag that says so.

    It takes the next number, so a promotion that looked before loses; one that looks later waits
    for the tag of the end. In the same push the versions that lose bytes are deregistered, as GTO
    calls it: their tags stay, with another one that says what became of them.

    Args:
        folder: a git repository with the authority's newest tags.
        identity: as in `proposed`.
        authority: as in `proposed`.
        held: what is in production.
        losing: the commits of the versions that lose bytes, by version.

    Raises:
        ReleaseError: a promotion came first, or the authority takes no tags from here.
        ToolError: git failed.
    """
    new = [v for v in losing if v not in removals(folder)]
    number = held.number + 1
    with proposed(folder, identity, authority, held) as clone:
        _tag(clone, f"{NAME}#{STAGE}#{number}", held.commit, _CLEANING)
        for version in new:
            name = f"{NAME}@{version}!#{number}"
            _tag(clone, name, losing[version], "adacalib clean: its bytes were removed")
    return assignments(folder)[-1]


def end_clean(folder: Path, identity: dict[str, str], authority: str, begun: Assignment) -> None:
    """End a clean-up: promotions may go on.

    Raises:
        ReleaseError: somebody took this clean-up for killed, or the authority takes no tags.
        ToolError: git failed.
    """
    with proposed(folder, identity, authority, begun) as clone:
        _tag(clone, f"{NAME}#{STAGE}#{begun.number + 1}", begun.commit, _CLEANED)


def refuse_while_cleaning(history: list[Assignment]) -> None:
    """Refuse while a clean-up is at work: what it removes was chosen before.

    Args:
        history: every assignment, the one that holds now last.

    Raises:
        ReleaseError: one began, has not ended, and may not have been killed.
    """
    if not history or history[-1].subject != _CLEANING:
        return
    until = history[-1].seconds + _VOID_SECONDS
    if time.time() < until:
        raise ReleaseError(
            f"{history[-1].who} began adacalib clean at {when(history[-1].seconds)} UTC, which "
            "removes bytes; try again when it has ended, or if it was killed, from "
            f"{when(until + 59)} UTC"
        )


def _tag(folder: Path, name: str, commit: str, message: str) -> None:
    git(folder, "tag", "--annotate", "--message", message, name, commit)


def _wait_for_the_clock(folder: Path) -> None:
    """Assignments are ordered by their second: let this one be later than the newest.

    Raises:
        ReleaseError: the newest assignment lies in this clock's future.
    """
    newest = max((a.seconds for a in assignments(folder)), default=0)
    ahead = newest + 1 - time.time()
    if ahead > _CLOCK_WAIT:
        raise ReleaseError(
            f"production was assigned {ahead:.0f} s in the future of this machine's clock; set the "
            "clock right and promote again"
        )
    time.sleep(max(0.0, ahead))


def _unpublished(folder: Path, authority: str) -> dict[str, str]:
    """The registry's tags that the authority lacks, made before it was one: ref and object."""
    if authority == ".":
        return {}
    patterns = [f"refs/tags/{NAME}{mark}*" for mark in "@#"]
    told = git(folder, "ls-remote", "--refs", authority, *patterns).output
    known = {line.partition("\t")[2] for line in told.splitlines()}
    own = git(folder, "for-each-ref", "--format=%(refname) %(objectname)", *patterns).output
    pairs = (line.split() for line in own.splitlines())
    return {ref: tag_object for ref, tag_object in pairs if ref not in known}


def _push_tags(folder: Path, authority: str, objects: dict[str, str]) -> None:
    specs = [f"{tag_object}:{ref}" for ref, tag_object in objects.items()]
    pushed = git(folder, "push", "--quiet", "--atomic", authority, *specs, check=False)
    if not pushed.code:
        return
    if "already exists" in pushed.errors or "cannot lock ref" in pushed.errors:
        raise ReleaseError(_LOST)
    raise ReleaseError(
        f"git remote {authority!r} took no tags, production is as it was: "
        f"{' '.join(pushed.errors.split())}; get the right to push, or remove the remote to "
        "promote in this clone alone"
    )
