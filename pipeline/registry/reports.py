"""The report of any version or refreshed day, and the trend that refreshed days leave in git."""

from pathlib import Path

from pipeline.core.errors import ReleaseError
from pipeline.core.files import publish
from pipeline.registry import commits, tags
from pipeline.registry.tools import dvc, stores
from pipeline.registry.tools.programs import git

REPORT = Path("artifacts/report")
PAGE = "report.html"
UNNAMED = "adacalib history has its version and commit once it is promoted"
"""What a report says of itself; no stage's output holds a commit, which would change its bytes."""
TO_PROMOTE = "<strong>adacalib promote</strong><span>puts it in production</span>"
PROMOTED = "<strong>adacalib status</strong><span>says what is in production now</span>"
"""The next command of a model that may be promoted, and of one that was."""


def report_of(folder: Path, which: str | None) -> Path:
    """The page of a version or a day, brought from DVC's cache or remote where it is not here.

    Args:
        folder: a clone of the project.
        which: for example "v0.0.3" or "2013-09-30"; None: of the last run in this folder, or of
            what is in production where there was none.

    Raises:
        ReleaseError: there is no such version or day, or nothing was made yet.
        ToolError: neither cache nor remote has it.
    """
    if which is None and (folder / REPORT / PAGE).exists():
        return folder / REPORT / PAGE
    commits.check_clone(folder)
    name, commit = _named(folder, which) if which else _in_production(folder)
    target = folder / REPORT.with_name(f"{REPORT.name}-{name}")
    if not (target / PAGE).exists():
        with publish(target) as temporary:
            remote = stores.dvc_remote(folder)
            dvc.fetch(folder, commit, temporary, remote=remote, cached=True, path=REPORT)
            page, promoted = temporary / PAGE, name in tags.versions(folder)
            name_page(page, page, name, commit, promoted=promoted)
    return target / PAGE


def name_page(page: Path, target: Path, name: str, commit: str, *, promoted: bool = False) -> None:
    """Write a report that says which version or day it is of, its commit and what comes next."""
    text = page.read_text().replace(UNNAMED, f"{name}, commit {commit[:10]}")
    target.unlink(missing_ok=True)  # it may be a link to DVC's cache
    target.write_text(text.replace(TO_PROMOTE, PROMOTED) if promoted else text)


def _in_production(folder: Path) -> tuple[str, str]:
    held = tags.assignments(folder)
    if not held:
        raise ReleaseError("no run was made here and nothing is in production: run dvc repro first")
    return held[-1].version, held[-1].commit


def _named(folder: Path, which: str) -> tuple[str, str]:
    """A version and its commit, or a day and the newest commit that was made for it."""
    versions = tags.versions(folder)
    if which in versions:
        return which, versions[which]
    subject = ("log", "--all", "--max-count=1", "--format=%H", f"--grep=^day={which}$")
    commit = git(folder, *subject).output.strip()
    if not commit:
        known = ", ".join(versions) or "no version"
        raise ReleaseError(
            f"{which} is neither a version ({known}) nor a refreshed day of this clone; git fetch "
            "brings what others made, adacalib history lists the versions"
        )
    return which, commit


def released(folder: Path, path: Path) -> str:
    """The text of a file as the release branch of this clone has it, or that of its remote.

    Raises:
        ReleaseError: this is no clone, or no refreshed day left that file.
    """
    commits.check_clone(folder)
    for branch in ("release", f"{commits.authority(folder)}/release", "HEAD"):
        shown = git(folder, "show", f"{branch}:{path.as_posix()}", check=False)
        if not shown.code:
            return shown.output
    raise ReleaseError(
        f"no refreshed day left {path} in this clone: python -m flows.refresh --day DAY makes the "
        "first, git fetch brings those of others"
    )
