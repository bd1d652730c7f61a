"""The worktree `.release`, where refresh works, so that a person's tree is never touched.

Its branch `release` holds one commit a day. The code and the parameters of a day are those that
were committed where the refresh started; the record of days (data.dvc, dvc.lock and reports/) is
the branch's own.
"""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.errors import ReleaseError, ToolError
from pipeline.release.commits import NAMING
from pipeline.release.programs import git
from pipeline.release.registry import restore_data, share_cache

BRANCH = "release"
FOLDER = ".release"
RECORD = tuple(name for name in NAMING if name != "params.yaml")


def said(folder: Path, *arguments: str) -> str:
    """What a git command prints."""
    return git(folder, *arguments).output.strip()


@contextmanager
def release_worktree(checkout: Path, purpose: str) -> Iterator[Path]:
    """Yield the release worktree of `checkout`, as its branch has it, for this process alone.

    The worktree and the branch are made from the checkout's HEAD where they are missing. What a
    killed run left there uncommitted is undone: it is made again from DVC's run cache.

    Raises:
        ToolError: another process works there (the sentence says which), or git refuses.
    """
    common = said(checkout, "rev-parse", "--path-format=absolute", "--git-common-dir")
    with _hold(Path(common) / "adacalib-release.lock", purpose):
        release = checkout / FOLDER
        if not (release / ".git").exists():
            git(checkout, "worktree", "prune")
            if not said(checkout, "branch", "--list", BRANCH):
                git(checkout, "branch", BRANCH)
            git(checkout, "worktree", "add", "--quiet", FOLDER, BRANCH)
        index = Path(said(release, "rev-parse", "--absolute-git-dir"), "index.lock")
        index.unlink(missing_ok=True)  # nobody else works here, so a killed git left it
        if not (release / ".dvc/config.local").exists():
            share_cache(release, checkout)
        git(release, "reset", "--hard", "--quiet", "HEAD")
        if (release / "data.dvc").exists() and not (release / "data").exists():
            restore_data(release)  # what the cache does not have is landed again
        yield release


@contextmanager
def _hold(path: Path, purpose: str) -> Iterator[None]:
    """Hold the lock at `path`; the system frees it when the process ends, however it ends."""
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise ToolError(f"{holder} is at work in {FOLDER}; run again when it is done") from None
        file.truncate(0)
        file.write(f"{purpose} (process {os.getpid()} on {socket.gethostname()})\n")
        file.flush()
        yield


def take_code(checkout: Path, release: Path) -> None:
    """Give the worktree the files of the checkout's HEAD, but keep the record of days.

    The next commit there gets that HEAD as a second parent. Nothing happens where the branch has
    it already. Uncommitted changes in the checkout are not taken.
    """
    head = said(checkout, "rev-parse", "HEAD")
    if git(release, "merge-base", "--is-ancestor", head, "HEAD", check=False).code == 0:
        return
    recorded = [path for path in RECORD if said(release, "ls-files", "--", path)]
    git(release, "merge", "--quiet", "--no-ff", "--no-commit", "--strategy=ours", head)
    git(release, "read-tree", "--reset", "-u", head)
    if recorded:
        git(release, "rm", "-r", "--force", "--quiet", "--ignore-unmatch", "--", *recorded)
        git(release, "checkout", "HEAD", "--", *recorded)


def newest_day(release: Path) -> str | None:
    """The newest day committed on the release branch, or None before the first."""
    subjects = said(release, "log", "--first-parent", "--format=%s", "--grep=^day=")
    return max((line.removeprefix("day=") for line in subjects.splitlines()), default=None)


def refuse_older_day(release: Path, day: str) -> None:
    """Refuse a day before the newest committed one: the branch's days only ever move forward.

    Raises:
        ReleaseError: a newer day is committed; the same day may run again.
    """
    newest = newest_day(release)
    if newest and day < newest:
        raise ReleaseError(
            f"the release branch is at {newest}; {day} is older and cannot follow it; "
            f"refresh {newest} or a later day"
        )


def commit_day(release: Path, day: str, who: dict[str, str]) -> None:
    """Commit the day's parameters, record and reports as `day=D`.

    A second run of a day that changed nothing makes no second commit.

    Args:
        release: the worktree.
        day: YYYY-MM-DD.
        who: the identity, as git's variables.
    """
    present = [name for name in NAMING if (release / name).exists()]
    git(release, "add", "--all", "--", *present)
    if said(release, "diff", "--cached", "--name-only") or newest_day(release) != day:
        options = ("--quiet", "--allow-empty", "--no-verify")
        git(release, "commit", *options, "--message", f"day={day}", variables=who)
