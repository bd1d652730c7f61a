"""The commit that names a version: what belongs to it, who makes it, where it is published."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from pipeline.core.errors import ReleaseError
from pipeline.registry.tools.programs import git

# What a run of the pipeline writes and git keeps; everything else that differs is code.
NAMING = ("params.yaml", "dvc.lock", "data.dvc", "champion.json", "reports")
CODE = ("pipeline", "flows")


def check_repository(folder: Path) -> None:
    """Refuse a folder that is not the top of a git repository with a branch and a commit.

    Raises:
        ReleaseError: it is not; the sentence says what is missing.
        ToolError: git is missing.
    """
    top = git(folder, "rev-parse", "--show-toplevel", check=False)
    if top.code or Path(top.output.strip()).resolve() != folder.resolve():
        raise ReleaseError(
            f"{folder.resolve()} is not the top of a git repository, so no commit can name its "
            "model; promote from a clone of the project"
        )
    if git(folder, "rev-parse", "--verify", "--quiet", "HEAD", check=False).code:
        raise ReleaseError(f"{folder.resolve()} has no commit; commit the project first")
    if git(folder, "symbolic-ref", "--quiet", "HEAD", check=False).code:
        raise ReleaseError(
            f"{folder.resolve()} is on no branch, so its commits would be lost; git switch to one"
        )


def identity(folder: Path) -> dict[str, tuple[str, str]]:
    """Name and address of the AUTHOR and the COMMITTER of what this process commits and tags.

    From the environment or git's configuration.

    Raises:
        ReleaseError: nobody is configured.
    """
    known: dict[str, tuple[str, str]] = {}
    for role in ("AUTHOR", "COMMITTER"):
        asked = ("-c", "user.useConfigOnly=true", "var", f"GIT_{role}_IDENT")
        found = git(folder, *asked, check=False)
        person = re.fullmatch(r"([^\ufffd]+) <([^\ufffd]+)> \d+ [+-]\d+", found.output.strip())
        if person is None:
            raise ReleaseError(
                "git does not know who promotes, by a name in UTF-8; set GIT_AUTHOR_NAME, "
                "GIT_AUTHOR_EMAIL, GIT_COMMITTER_NAME and GIT_COMMITTER_EMAIL, or git config "
                "user.name and user.email"
            )
        known[role] = person[1], person[2]
    return known


def refuse_modified_code(folder: Path) -> None:
    """Refuse if a file differs from the last commit that a run of the pipeline does not write.

    Raises:
        ReleaseError: one does; the sentence names the files.
    """
    changed = git(folder, "diff", "--name-only", "--no-renames", "-z", "HEAD").output
    new = git(folder, "ls-files", "--others", "--exclude-standard", "-z", "--", *CODE).output
    names = [name for name in f"{changed}{new}".split("\0") if name]
    code = sorted({name for name in names if name.split("/")[0] not in NAMING})
    if code:
        shown = ", ".join(code[:5]) + (f" and {len(code) - 5} more" if code[5:] else "")
        verb = "differ" if code[1:] else "differs"
        raise ReleaseError(
            f"no commit names the code that made this model: {shown} {verb} from the last commit; "
            "commit or undo that, run dvc repro where it touches a stage, and promote again"
        )


def add_files(folder: Path, names: Sequence[str]) -> None:
    """Have the next commit hold files or folders as they are, whatever a person's own list of files
    that git ignores says.

    Raises:
        ToolError: git failed.
    """
    git(folder, "-c", f"core.excludesFile={os.devnull}", "add", "--all", "--", *names)


def commit_files(folder: Path, names: Sequence[str], message: str) -> None:
    """Commit files or folders as they are; nothing happens where the last commit has them so.

    Raises:
        ToolError: git failed, for example because a hook refused.
    """
    add_files(folder, names)
    if git(folder, "diff", "--cached", "--quiet", "--", *names, check=False).code:
        git(folder, "commit", "--quiet", "--message", message, "--", *names)


def authority(folder: Path) -> str:
    """The git remote whose tags say what is in production: the branch's, else `origin`, else the
    only one; "." where there is none.

    Raises:
        ReleaseError: there are several, and none of these.
    """
    remotes = git(folder, "remote").output.split()
    branch = git(folder, "symbolic-ref", "--quiet", "--short", "HEAD", check=False).output.strip()
    tracked = git(folder, "config", f"branch.{branch}.remote", check=False).output.strip()
    for name in (tracked, "origin", *(remotes if len(remotes) == 1 else ())):
        if name in remotes:
            return name
    if remotes:
        raise ReleaseError(
            f"git remotes {remotes}: none is tracked by branch {branch} and none is called origin; "
            "say which one holds production: git branch --set-upstream-to"
        )
    return "."
