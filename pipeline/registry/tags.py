"""Versions and what is in production: annotated git tags, as GTO names them, pushed atomically."""

import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pipeline.core.errors import ReleaseError, ToolError
from pipeline.core.files import scratch_folder
from pipeline.registry.commits import authority, identity
from pipeline.registry.tools.programs import fetch, git

NAME, STAGE = "model", "prod"  # the artifact in dvc.yaml, and the stage that names production
CLEAN_SECONDS = 600  # how long a clean-up may remove bytes
_PATTERNS = [f"refs/tags/{NAME}{mark}*" for mark in "@#"]
_CLOCK_WAIT = 5.0  # seconds to wait for this clock to pass the newest assignment's
_LOST = (
    "another promotion came first, production is what it made it; look at adacalib status and "
    "promote again if this model should follow"
)
_VOID_SECONDS = 900  # after which a clean-up that was not ended is taken for killed
_CLEANING, _CLEANED = "adacalib clean: removing bytes", "adacalib clean: done"


@dataclass(frozen=True)
class Tag:
    """An annotated tag of the registry: the registration, assignment or removal of a version.

    Attributes:
        version: for example "v0.0.3".
        commit: the commit that names its data, parameters, code and model.
        name: of the tag.
        seconds: when it was made, in seconds since 1970 in UTC.
        who: the name of whoever made it.
        subject: what it says.
    """

    version: str
    commit: str
    name: str
    seconds: int
    who: str = ""
    subject: str = ""

    @property
    def number(self) -> int:
        """Of an assignment: which one of production it is, from 1."""
        return int(self.name.rpartition("#")[2])


def registrations(folder: Path) -> dict[str, Tag]:
    """The tag of every registered version, by version, in ascending order.

    Raises:
        ToolError: git failed.
    """
    released = re.compile(rf"{NAME}@v\d+\.\d+\.\d+")
    found = {t.version: t for t in _tags(folder, "@v*") if released.fullmatch(t.name)}
    return {version: found[version] for version in sorted(found, key=numbers)}


def versions(folder: Path) -> dict[str, str]:
    """The commit of every registered version, by version, in ascending order."""
    return {version: tag.commit for version, tag in registrations(folder).items()}


def assignments(folder: Path) -> list[Tag]:
    """Every assignment of production, the one that holds now last.

    Raises:
        ToolError: git failed.
    """
    version_of = {commit: version for version, commit in versions(folder).items()}
    numbered = re.compile(rf"{NAME}#{STAGE}#\d+")
    found = _tags(folder, f"#{STAGE}#*")
    found = [t for t in found if t.commit in version_of and numbered.fullmatch(t.name)]
    return [replace(tag, version=version_of[tag.commit]) for tag in found]


def removals(folder: Path) -> dict[str, Tag]:
    """The tag that says that a version's bytes were removed, by version.

    A version that was put into production after that has them again.

    Raises:
        ToolError: git failed.
    """
    last = {assignment.version: assignment.seconds for assignment in assignments(folder)}
    found = {tag.version: tag for tag in _tags(folder, "@v*!*")}
    return {v: tag for v, tag in found.items() if tag.seconds > last.get(v, 0)}


def _tags(folder: Path, pattern: str) -> list[Tag]:
    """The annotated tags of the model by the rest of their names, the oldest first."""
    parts = ("refname:strip=2", "*objectname", "taggerdate:unix", "taggername", "contents:subject")
    form = "%09".join(f"%({part})" for part in parts)
    listed = git(folder, "for-each-ref", f"--format={form}", f"refs/tags/{NAME}{pattern}").output
    rows = [line.split("\t", 4) for line in listed.splitlines()]
    found = [
        Tag(name.partition("@")[2].partition("!")[0], commit, name, int(seconds), who, subject)
        for name, commit, seconds, who, subject in rows
        if commit and seconds
    ]
    return sorted(found, key=lambda tag: tag.seconds)


def when(seconds: float) -> str:
    """A moment in UTC, "YYYY-MM-DD HH:MM".

    Args:
        seconds: since 1970 in UTC.
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def spans(history: list[Tag]) -> list[Tag]:
    """The assignments that changed what is in production: the first of each span of a version.

    Args:
        history: every assignment, the one that holds now last.
    """
    pairs = zip([None, *history], history, strict=False)
    return [new for old, new in pairs if old is None or old.version != new.version]


def predecessor(history: list[Tag]) -> Tag | None:
    """What was in production when the version that is there now first came; None if nothing was.

    A version that was rolled back from is so never the predecessor of the one that took its place.

    Args:
        history: every assignment, the one that holds now last.
    """
    order = [assignment.version for assignment in history]
    first = order.index(order[-1]) if order else 0
    return history[first - 1] if first else None


def numbers(version: str) -> tuple[int, ...]:
    """What a version is ordered by: (0, 0, 3) of "v0.0.3"."""
    return tuple(int(part) for part in version.removeprefix("v").split("."))


def next_version(folder: Path) -> str:
    """The version after the highest one, v0.0.1 at first."""
    newest = list(registrations(folder))[-1:]
    major, minor, patch = numbers(newest[0]) if newest else (0, 0, 0)
    return f"v{major}.{minor}.{patch + 1}"


def fetch_tags(folder: Path) -> None:
    """Bring the authority's registry tags; where a local one differs, the authority's counts.

    Raises:
        ReleaseError: the authority cannot be reached.
    """
    remote = authority(folder)
    if remote == ".":
        return
    specs = [f"+{pattern}:{pattern}" for pattern in _PATTERNS]
    fetched = fetch(folder, remote, *specs)
    if fetched.code:
        raise ReleaseError(
            f"git remote {remote!r} does not answer, so nobody can say what is in production: "
            f"{' '.join(fetched.errors.split())}; try again when it does (remove "
            "a lock here that no git holds; an address is absolute, as worktrees read it from "
            "themselves), or remove the remote to promote in this clone alone"
        )


@contextlib.contextmanager
def proposed(folder: Path, replaced: Tag | None) -> Iterator[Path]:
    """Yield a scratch clone; the registry tags made in it are published when the block ends.

    The clone shares the folder's objects and has no files. Its new tags go to the authority in one
    atomic push. Tags are numbered in order and never move, so of two promoters one has its push
    rejected whole, and a promoter that dies before leaves nothing behind. Tags that are older than
    the authority go along, so that others know every version that may come back.

    Args:
        folder: a git repository with the authority's newest tags.
        replaced: what the tags were decided against; they are void where it is in production no
            more.

    Raises:
        ReleaseError: another promotion came first, the authority takes no tags from here, or git
            does not know who makes them.
        ToolError: git failed.
    """
    (name, address), remote = identity(folder)["COMMITTER"], authority(folder)
    wait_for_the_clock(assignments(folder))
    with scratch_folder() as place:
        clone = place / "clone"
        settings = f"--config=user.name={name}", f"--config=user.email={address}"
        source = str(folder.resolve())
        git(folder, "clone", "--quiet", "--shared", "--no-checkout", *settings, source, str(clone))
        if assignments(clone)[-1:] != ([replaced] if replaced else []):
            raise ReleaseError(_LOST)
        before = _objects(clone)
        yield clone
        made = {ref: made for ref, made in _objects(clone).items() if ref not in before}
        fetch(folder, str(clone), *made, check=True)
    push_tags(folder, unsent(folder) | made)
    for ref, tag_object in made.items():
        noted = git(folder, "update-ref", ref, tag_object, check=False)
        if noted.code:
            raise ReleaseError(
                f"production changed at git remote {remote!r}, and this clone could not note "
                f"it: {' '.join(noted.errors.split())}; mend that, then adacalib status notes it"
            )


def unsent(folder: Path) -> dict[str, str]:
    """The registry's tags that the authority lacks: ref and object.

    They were made before it was one, by other programs, or are lost there.
    """
    known = _objects(folder, authority(folder))
    return {ref: of for ref, of in _objects(folder).items() if ref not in known}


def _objects(folder: Path, remote: str = ".") -> dict[str, str]:
    """The tags of the registry, here or at a git remote: ref and object."""
    listed = git(folder, "ls-remote", "--refs", remote, *_PATTERNS).output
    return {ref: of for of, ref in (line.split() for line in listed.splitlines())}


def wait_for_the_clock(history: list[Tag]) -> None:
    """Assignments are ordered by their second: let the next one be later than the newest.

    Args:
        history: every assignment.

    Raises:
        ReleaseError: the newest assignment lies in this clock's future.
    """
    newest = max(history, key=lambda tag: tag.seconds, default=None)
    ahead = newest.seconds + 1 - time.time() if newest else 0.0
    if newest and ahead > _CLOCK_WAIT:
        raise ReleaseError(
            f"production was assigned {ahead:.0f} s in the future of this machine's clock; set the "
            "clock right and promote again; where it is right, another's was wrong: take that back "
            f"in every clone, git tag -d {newest.name}, and at its remote, git push REMOTE "
            f":refs/tags/{newest.name}"
        )
    time.sleep(max(0.0, ahead))


def push_tags(folder: Path, objects: dict[str, str]) -> None:
    """Send tags to the authority, all or none: ref and object.

    Raises:
        ReleaseError: the authority has others of these names by now, takes none from here, or went
            away meanwhile.
    """
    remote = authority(folder)
    specs = [f"{tag_object}:{ref}" for ref, tag_object in objects.items()]
    pushed = git(folder, "push", "-q", "--atomic", "--no-follow-tags", remote, *specs, check=False)
    if not pushed.code:
        return
    said = " ".join(pushed.errors.split())
    try:
        if objects.items() <= _objects(folder, remote).items():  # only its answer was lost
            return
    except ToolError:
        raise ReleaseError(
            f"git remote {remote!r} went away while it was sent tags ({said}), so nobody can say "
            "whether production changed; adacalib status says it when the remote answers"
        ) from None
    left = "File exists" in pushed.errors  # a lock of a git that was killed, or is at work
    if not left and re.search("already exists|cannot lock ref", pushed.errors):
        raise ReleaseError(_LOST)
    raise ReleaseError(
        f"git remote {remote!r} took no tags, production is as it was: {said}; try again, get the "
        "right to push, remove a lock there that no git holds, or remove the remote to promote in "
        "this clone alone"
    )


@contextlib.contextmanager
def cleaning(folder: Path, held: Tag, losing: dict[str, str]) -> Iterator[None]:
    """Clean up in the block: production is assigned again as it is, by tags that say so, when it
    begins and when it has ended whole.

    The first takes the next number, so a promotion that looked before loses; one that looks later
    waits for the tag of the end. In the same push the versions that lose bytes are deregistered, as
    GTO calls it: their tags stay, with another one that says what became of them.

    Args:
        folder: a git repository with the authority's newest tags.
        held: what is in production.
        losing: the commits of the versions that lose bytes, by version.

    Raises:
        ReleaseError: a promotion came first, somebody took this clean-up for killed, or the
            authority takes no tags from here.
        ToolError: git failed.
    """
    number, gone = held.number + 1, removals(folder)
    with proposed(folder, held) as clone:
        _tag(clone, f"{NAME}#{STAGE}#{number}", held.commit, _CLEANING)
        for version in losing.keys() - gone.keys():
            name = f"{NAME}@{version}!#{number}"
            _tag(clone, name, losing[version], "adacalib clean: its bytes were removed")
    begun = assignments(folder)[-1]
    yield
    with proposed(folder, begun) as clone:
        _tag(clone, f"{NAME}#{STAGE}#{number + 1}", held.commit, _CLEANED)


def refuse_while_cleaning(history: list[Tag]) -> None:
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
