"""The worktree `.release`, where refresh works, so that a person's tree is never touched.

Its branch `release` holds one commit a day. The code and the parameters of a day are those that
were committed where the refresh started; the record of days (data.dvc, dvc.lock and reports/) is
the branch's own. At the git remote the branch has the days of every clone. Backfill has a worktree
and a branch of its own.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import UUID

from prefect import get_client, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed

from flows.states import failing_in_one_sentence
from pipeline.core.errors import ReleaseError, ToolError
from pipeline.core.files import remove_unfinished
from pipeline.data.log_store.manifest import amount
from pipeline.registry.commits import NAMING, add_files, authority, identity
from pipeline.registry.tools.dvc import RWLOCK, push, restore_data
from pipeline.registry.tools.programs import fetch, git, git_folder, hold, refuse_lost, run_lock
from pipeline.registry.tools.stores import dvc_remote, share_cache

RECORD = tuple(name for name in NAMING if name != "params.yaml")
VERSIONED = ("dvc.yaml", "dvc.lock", "data.dvc")
WRITTEN = ("data", "artifacts", "reports")


NO_HOOKS = ("-c", f"core.hooksPath={os.devnull}")  # they are for what people do
RELEASE, BACKFILL = "release", "backfill"  # branches; the worktree of each is `.BRANCH`


def git_output(folder: Path, *arguments: str) -> str:
    """What a git command prints."""
    return git(folder, *arguments).output.strip()


@contextmanager
def release_worktree(
    checkout: Path,
    purpose: str,
    patience: float = 0.0,
    report: Callable[[str], None] = print,
    branch: str = RELEASE,
) -> Iterator[Path]:
    """Yield a worktree of `checkout`, as its branch has it, for this process alone.

    The worktree and the branch are made where they are missing: release from that of the git
    remote, as last fetched, if there is one, else from the checkout's HEAD. What a killed run left
    there uncommitted is undone: it is made again from DVC's run cache.

    Args:
        checkout: a clone of the project.
        purpose: what whoever waits for this process reads.
        patience: seconds to wait for another process at work there.
        report: called once with the sentence that says for whom this process waits.
        branch: whose worktree.

    Raises:
        ReleaseError: git does not know who would commit there, or the checkout is on the branch.
        ToolError: another process works there (the sentence says which), git refuses, or DVC lacks
            the log of days that were made.
    """
    identity(checkout)  # known before hours of work
    if git_output(checkout, "branch", "--show-current") == branch:
        raise ReleaseError(
            f"{checkout.resolve()} is on branch {branch}, to which runs commit their days in "
            f".{branch}: switch to another (git switch main), and run again"
        )
    with hold(run_lock(checkout, branch), purpose, f".{branch}", patience, report):
        worktree = checkout / f".{branch}"
        for place in ("heads", "remotes/*"):  # where a killed git left its lock of the branch
            for lock in git_folder(checkout).glob(f"refs/{place}/{branch}.lock"):
                lock.unlink()
        if not _usable(worktree):
            _make(checkout, branch)
        _tidy(worktree)
        share_cache(worktree, checkout)
        lost = (worktree / "data.dvc").exists() and not (worktree / "data").exists()
        if lost and not restore_data(worktree):
            missing = "DVC has not the log that data.dvc names"
            if (worktree / "dvc.lock").exists():  # days were made of it
                raise ToolError(
                    f"{missing}: dvc pull data.dvc in .{branch} says what is missing at its remote;"
                    " bring it back, or land it again in this checkout, or, to begin another log, "
                    f"commit there without it: git -C .{branch} rm data.dvc dvc.lock"
                )
            report(f"{missing}; what comes begins another")
        yield worktree


def refuse_declared_dead(checkout: Path) -> None:
    """Refuse to publish where another run has the release worktree by now, or where Prefect's
    server takes this run for ended, whoever told it so.

    Raises:
        ToolError: it is so, or the server does not answer.
    """
    refuse_lost(run_lock(checkout, RELEASE))
    if not flow_run.id:
        return
    state = None
    with suppress(Exception), get_client(sync_client=True) as client:  # whatever a transport raises
        state = client.read_flow_run(UUID(flow_run.id)).state
    if state is None or not state.is_running():
        known = f"has this run as {state.name}" if state else "does not answer"
        raise ToolError(
            f"Prefect's server {known}, so it publishes nothing; the next run begins where it was"
        )


def _usable(worktree: Path) -> bool:
    """Whether git knows the folder as a worktree; one that was killed while it was made is not."""
    if not (worktree / ".git").is_file():
        return False
    top = git(worktree, "rev-parse", "--show-toplevel", check=False)
    return not top.code and Path(top.output.strip()) == worktree.resolve()


def _make(checkout: Path, branch: str) -> None:
    shutil.rmtree(checkout / f".{branch}", ignore_errors=True)
    git(checkout, "worktree", "prune")
    if not git_output(checkout, "branch", "--list", branch):
        there = _remote_branch(authority(checkout)) if branch == RELEASE else "HEAD"
        known = not git(checkout, "rev-parse", "--verify", "--quiet", there, check=False).code
        git(checkout, "branch", "--no-track", branch, there if known else "HEAD")
    # Twice forced: git locks a worktree while it makes it, and a killed git leaves that lock.
    git(checkout, *NO_HOOKS, "worktree", "add", "--quiet", "-ff", f".{branch}", branch)


def _tidy(worktree: Path) -> None:
    """Remove what killed programs left: locks, half-written files, uncommitted changes."""
    own = Path(git_output(worktree, "rev-parse", "--absolute-git-dir"))
    for lock in (own / "index.lock", own / "HEAD.lock", worktree / RWLOCK):  # nobody else's
        lock.unlink(missing_ok=True)
    git(worktree, "reset", "--hard", "--quiet", "HEAD")
    git(worktree, "clean", "--force", "-d", "--quiet", "--", "reports")
    for folder in WRITTEN:
        remove_unfinished(worktree / folder)


def take_code(checkout: Path, release: Path) -> None:
    """Give the worktree the files of the checkout's HEAD, but keep the record of days, if it has
    any yet; else it begins with the log of that HEAD.

    The next commit there gets that HEAD as a second parent. Nothing happens where the branch has
    it already. Uncommitted changes in the checkout are not taken.
    """
    head = git_output(checkout, "rev-parse", "HEAD")
    if _has(release, head):
        return
    newest = newest_day(release)
    kept = RECORD if newest else ()
    recorded = [path for path in kept if git_output(release, "ls-files", "--", path)]
    # To a shallow clone the code of today seems to have nothing to do with the days.
    joined = ("--no-ff", "--no-commit", "--strategy=ours", "--allow-unrelated-histories")
    git(release, "merge", "--quiet", "--no-verify-signatures", *joined, head)
    git(release, "read-tree", "--reset", "-u", head)
    if recorded:
        git(release, "rm", "-r", "--force", "--quiet", "--ignore-unmatch", "--", *recorded)
        git(release, *NO_HOOKS, "checkout", "HEAD", "--", *recorded)
    if not newest:
        restore_data(release)


def committed_days(release: Path, commits: str = "HEAD") -> list[str]:
    """The days committed in a range of commits, the last one first."""
    subjects = git_output(release, "log", "--first-parent", "--format=%s", commits).splitlines()
    return [line.removeprefix("day=") for line in subjects if line.startswith("day=")]


def newest_day(release: Path) -> str | None:
    """The newest day committed on the branch, or None before the first."""
    return max(committed_days(release), default=None)


def commit_day(release: Path, day: str) -> None:
    """Commit the day's parameters, record and reports as `day=D`.

    A second run of a day that changed nothing makes no second commit.

    Args:
        release: the worktree.
        day: YYYY-MM-DD.
    """
    present = [name for name in NAMING if (release / name).exists()]
    add_files(release, present)
    last = committed_days(release)[:1]
    if git_output(release, "diff", "--cached", "--name-only") or last != [day]:
        git(release, *NO_HOOKS, "commit", "--quiet", "--allow-empty", "-m", f"day={day}")


def _remote_branch(remote: str) -> str:
    return f"refs/remotes/{remote}/{RELEASE}"


def _has(release: Path, commit: str) -> bool:
    """Whether a commit is in the history of the branch."""
    return not git(release, "merge-base", "--is-ancestor", commit, "HEAD", check=False).code


def fetch_days(release: Path) -> None:
    """Follow the release branch of the git remote, if there is one and it is ahead, and its data.

    Raises:
        ToolError: the remote does not answer.
        ReleaseError: both sides have commits that the other lacks.
    """
    remote = authority(release)
    if remote == ".":
        return
    there = _remote_branch(remote)
    spec = f"+refs/heads/{RELEASE}:{there}"
    fetched = fetch(release, remote, spec)
    if fetched.code and "couldn't find remote ref" in fetched.errors:
        return
    if fetched.code:
        raise ToolError(
            f"git remote {remote!r} does not answer: {' '.join(fetched.errors.split())}"
        )
    if _has(release, there):
        return
    others = ("--not", f"--exclude={RELEASE}", "--branches", "--remotes")
    if git_output(release, "rev-list", "--max-count=1", "HEAD", *others):
        here = ", ".join(committed_days(release, f"{there}..HEAD")) or "no day"
        raise ReleaseError(
            f"branch release of git remote {remote!r} has days that this clone lacks, and lacks "
            f"what this clone has ({here}); choose one: git -C .release reset --hard "
            f"{remote}/release takes the remote's"
        )
    # What a failed first run left there is of no commit, and in nobody's way.
    git(release, "reset", "--hard", "--quiet", there)
    restore_data(release)


def unshared(release: Path) -> list[str]:
    """The commits that the git remote lacks, the oldest first; none where there is no remote."""
    remote = authority(release)
    if remote == ".":
        return []
    known = git_output(release, "for-each-ref", "--format=%(refname)", _remote_branch(remote))
    # Before the first push the days' commits alone count: what they begin from is not theirs.
    since = [f"^{known}"] if known else [f"--max-count={len(committed_days(release))}"]
    listed = git_output(release, "rev-list", "--first-parent", "--reverse", "HEAD", *since)
    return listed.splitlines()


@task(name="share", retries=2, retry_delay_seconds=10, cache_policy=NO_CACHE, persist_result=False)
@failing_in_one_sentence
def share(folder: str) -> State:
    """Push every day that the git remote lacks: the data of each, then the branch.

    Whoever can read a day's commit can so read its data. What an earlier run could not push goes
    with it; to push again what is there already changes nothing.
    """
    release = Path(folder)
    commits = unshared(release)
    if not commits:
        return Completed(name="Shared", message="nothing to push")
    remote = authority(release)
    if dvc_remote(release):
        for commit in commits:
            push_data(release, commit)
    spec = f"HEAD:refs/heads/{RELEASE}"
    pushed = git(release, "push", "--quiet", "--no-follow-tags", remote, spec, check=False)
    if pushed.code:
        raise ToolError(f"git remote {remote!r} took no days: {' '.join(pushed.errors.split())}")
    git(release, "update-ref", _remote_branch(remote), "HEAD")
    return Completed(name="Shared", message=f"{amount(len(commits), 'commit')} at {remote!r}")


def push_data(release: Path, commit: str) -> None:
    """Send the data and models that a commit names to DVC's remote; from the cache, by its lock."""
    files = [name for name in VERSIONED if git_output(release, "ls-tree", commit, "--", name)]
    try:
        git(release, *NO_HOOKS, "checkout", "--quiet", commit, "--", *files)
        push(release)
    finally:
        git(release, "reset", "--hard", "--quiet", "HEAD")
