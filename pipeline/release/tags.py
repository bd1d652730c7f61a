"""Versions and what is in production: annotated git tags, as GTO names them, and their fence."""

import contextlib
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pipeline.errors import ReleaseError
from pipeline.release.programs import git

NAME, STAGE = "model", "prod"  # the artifact in dvc.yaml, and the stage that names production
_CLOCK_WAIT = 5.0  # seconds to wait for this clock to pass the newest assignment's
_LOST = (
    "another promotion came first, production is what it made it; look at adacalib status and "
    "promote again if this model should follow"
)


@dataclass(frozen=True)
class Tag:
    """An annotated tag: its name, the commit it names, when (seconds since 1970), who and what."""

    name: str
    commit: str
    seconds: int
    who: str
    subject: str


@dataclass(frozen=True)
class Assignment:
    """A version that was put into production.

    Attributes:
        version: for example "v0.0.3".
        commit: the commit that names its data, parameters, code and model.
        tag: the git tag that put it there.
        seconds: when, in seconds since 1970 in UTC.
        who: the name of whoever did.
        subject: what the tag says.
    """

    version: str
    commit: str
    tag: str
    seconds: int
    who: str = ""
    subject: str = ""

    @property
    def number(self) -> int:
        """Which assignment of production it is, from 1."""
        return int(self.tag.rpartition("#")[2])


def versions(folder: Path) -> dict[str, str]:
    """The commit of every registered version, by version, in ascending order.

    Raises:
        ToolError: git failed.
    """
    return {version: tag.commit for version, tag in registrations(folder).items()}


def registrations(folder: Path) -> dict[str, Tag]:
    """The tag of every registered version, by version, in ascending order.

    Raises:
        ToolError: git failed.
    """
    found = {tag.name.removeprefix(f"{NAME}@"): tag for tag in _tags(folder, f"{NAME}@v*")}
    numbers = {v: _numbers(v) for v in found if re.fullmatch(r"v\d+\.\d+\.\d+", v)}
    return {version: found[version] for version in sorted(numbers, key=lambda v: numbers[v])}


def assignments(folder: Path) -> list[Assignment]:
    """Every assignment of production, the one that holds now last.

    Raises:
        ToolError: git failed.
    """
    version_of = {commit: version for version, commit in versions(folder).items()}
    return [
        Assignment(version_of[t.commit], t.commit, t.name, t.seconds, t.who, t.subject)
        for t in _tags(folder, f"{NAME}#{STAGE}#*")
        if t.commit in version_of
    ]


def when(seconds: float) -> str:
    """A moment in UTC, "YYYY-MM-DD HH:MM".

    Args:
        seconds: since 1970 in UTC.
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def spans(history: list[Assignment]) -> list[Assignment]:
    """The assignments that changed what is in production: the first of each span of a version.

    Args:
        history: every assignment, the one that holds now last.
    """
    pairs = zip([None, *history], history, strict=False)
    return [new for old, new in pairs if old is None or old.version != new.version]


def predecessor(history: list[Assignment]) -> Assignment | None:
    """What was in production when the version that is there now first came; None if nothing was.

    A version that was rolled back from is so never the predecessor of the one that took its place.

    Args:
        history: every assignment, the one that holds now last.
    """
    order = [assignment.version for assignment in history]
    first = order.index(order[-1]) if order else 0
    return history[first - 1] if first else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.removeprefix("v").split("."))


def _tags(folder: Path, pattern: str) -> list[Tag]:
    """The annotated tags of a pattern, the oldest first."""
    parts = ("refname:strip=2", "*objectname", "taggerdate:unix", "taggername", "contents:subject")
    form = "%09".join(f"%({part})" for part in parts)
    listed = git(folder, "for-each-ref", f"--format={form}", f"refs/tags/{pattern}").output
    rows = [line.split("\t", 4) for line in listed.splitlines()]
    found = [
        Tag(name, commit, int(seconds), who, subject)
        for name, commit, seconds, who, subject in rows
        if commit and seconds
    ]
    return sorted(found, key=lambda tag: tag.seconds)


def next_version(folder: Path) -> str:
    """The version after the highest one, v0.0.1 at first."""
    newest = list(versions(folder))[-1:]
    major, minor, patch = _numbers(newest[0]) if newest else (0, 0, 0)
    return f"v{major}.{minor}.{patch + 1}"


@contextlib.contextmanager
def proposed(
    folder: Path, identity: dict[str, str], authority: str, replaced: Assignment | None
) -> Iterator[Path]:
    """Yield a scratch clone; the registry tags made in it are published when the block ends.

    The clone shares the folder's objects and has no files. Its new tags go to the authority in one
    atomic push. Tags are numbered in order and never move, so of two promoters one has its push
    rejected whole, and a promoter that dies before leaves nothing behind.

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
        before = {tag.name for tag in _tags(clone, f"{NAME}*")}
        yield clone
        new = [tag.name for tag in _tags(clone, f"{NAME}*") if tag.name not in before]
        refs = [f"refs/tags/{tag}" for tag in new]
        git(folder, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", str(clone), *refs)
        made = {ref: git(clone, "rev-parse", ref).output.strip() for ref in refs}
    _push_tags(folder, authority, made)
    for ref, tag_object in made.items():
        git(folder, "update-ref", ref, tag_object)


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


def fetch_tags(folder: Path, authority: str) -> None:
    """Bring the authority's registry tags; where a local one differs, the authority's counts.

    Raises:
        ReleaseError: the authority cannot be reached.
    """
    if authority == ".":
        return
    specs = [f"+refs/tags/{NAME}{mark}*:refs/tags/{NAME}{mark}*" for mark in "@#"]
    fetched = git(
        folder,
        "fetch",
        "--quiet",
        "--no-tags",
        "--no-write-fetch-head",
        authority,
        *specs,
        check=False,
    )
    if fetched.code:
        raise ReleaseError(
            f"git remote {authority!r} does not answer, so nobody can say what is in production: "
            f"{' '.join(fetched.errors.split())}; try again when it does, or remove the remote to "
            "promote in this clone alone"
        )
