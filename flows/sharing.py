"""The release branch at the git remote: days of other clones come in, this clone's days go out."""

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from flows.states import failing_in_one_sentence
from flows.worktree import RELEASE, committed_days, said
from pipeline.core.errors import ReleaseError, ToolError
from pipeline.data.log_store.manifest import amount
from pipeline.registry.commits import authority
from pipeline.registry.tools.dvc import push
from pipeline.registry.tools.programs import git
from pipeline.registry.tools.stores import default_remote

BRANCH = RELEASE.branch
VERSIONED = ("dvc.yaml", "dvc.lock", "data.dvc")


def _remote_branch(remote: str) -> str:
    return f"refs/remotes/{remote}/{BRANCH}"


def _contains(release: Path, commit: str, other: str) -> bool:
    """Whether a commit is in the history of another."""
    return not git(release, "merge-base", "--is-ancestor", commit, other, check=False).code


def fetch_days(release: Path) -> None:
    """Follow the release branch of the git remote, if there is one and it is ahead.

    Raises:
        ToolError: the remote does not answer.
        ReleaseError: both sides have days that the other lacks.
    """
    remote = authority(release)
    if remote == ".":
        return
    there = _remote_branch(remote)
    spec = f"+refs/heads/{BRANCH}:{there}"
    fetched = git(release, "fetch", "--quiet", "--no-tags", remote, spec, check=False)
    if fetched.code and "couldn't find remote ref" in fetched.errors:
        return
    if fetched.code:
        raise ToolError(
            f"git remote {remote!r} does not answer: {' '.join(fetched.errors.split())}"
        )
    if _contains(release, there, "HEAD"):
        return
    if not _contains(release, "HEAD", there):
        here = ", ".join(committed_days(release, f"{there}..HEAD")) or "code alone"
        raise ReleaseError(
            f"branch {BRANCH} of git remote {remote!r} has days that this clone lacks, and lacks "
            f"what this clone has ({here}); choose one: git -C {RELEASE.folder} reset --hard "
            f"{remote}/{BRANCH} takes the remote's"
        )
    git(release, "merge", "--ff-only", "--quiet", there)


def unshared(release: Path) -> list[str]:
    """The commits that the git remote lacks, the oldest first; none where there is no remote."""
    remote = authority(release)
    if remote == ".":
        return []
    known = said(release, "for-each-ref", "--format=%(refname)", _remote_branch(remote))
    # Before the first push the days' commits alone count: what they begin from is not theirs.
    since = [f"^{known}"] if known else [f"--max-count={len(committed_days(release))}"]
    listed = said(release, "rev-list", "--first-parent", "--reverse", "HEAD", *since)
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
    if default_remote(release):
        for commit in commits:
            push_data(release, commit)
    pushed = git(release, "push", "--quiet", remote, f"HEAD:refs/heads/{BRANCH}", check=False)
    if pushed.code:
        raise ToolError(f"git remote {remote!r} took no days: {' '.join(pushed.errors.split())}")
    git(release, "update-ref", _remote_branch(remote), "HEAD")
    return Completed(name="Shared", message=f"{amount(len(commits), 'commit')} at {remote!r}")


def push_data(release: Path, commit: str) -> None:
    """Send the data and models that a commit names to DVC's remote; from the cache, by its lock."""
    files = [name for name in VERSIONED if said(release, "ls-tree", commit, "--", name)]
    try:
        git(release, "checkout", "--quiet", commit, "--", *files)
        push(release, "gate")
    finally:
        git(release, "reset", "--hard", "--quiet", "HEAD")
