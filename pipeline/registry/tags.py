"""Versions and what is in production: annotated git tags, as GTO names them."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pipeline.core.errors import ReleaseError
from pipeline.registry.tools.programs import git

NAME, STAGE = "model", "prod"  # the artifact in dvc.yaml, and the stage that names production
_REMOVED = f"{NAME}@v*!*"


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
    found = {tag.name.removeprefix(f"{NAME}@"): tag for tag in tags_of(folder, f"{NAME}@v*")}
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
        for t in tags_of(folder, f"{NAME}#{STAGE}#*")
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


def tags_of(folder: Path, pattern: str) -> list[Tag]:
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


def removals(folder: Path) -> dict[str, Tag]:
    """The tag that says that a version's bytes were removed, by version.

    A version that was put into production after that has them again.

    Raises:
        ToolError: git failed.
    """
    last = {assignment.version: assignment.seconds for assignment in assignments(folder)}
    found = {
        t.name.removeprefix(f"{NAME}@").partition("!")[0]: t for t in tags_of(folder, _REMOVED)
    }
    return {v: tag for v, tag in found.items() if tag.seconds > last.get(v, 0)}


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
