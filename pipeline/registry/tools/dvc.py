"""What the project does with DVC and GTO, by their command lines."""

import configparser
import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from pipeline.core.errors import AdaCalibError
from pipeline.registry.atomic_tags import proposed
from pipeline.registry.tags import (
    NAME,
    STAGE,
    Assignment,
    assignments,
    next_version,
    versions,
)
from pipeline.registry.tools.dvc_command import PATIENCE, dvc, failure
from pipeline.registry.tools.programs import beside_python, run_leashed
from pipeline.registry.tools.stores import Remote

MODEL = Path("artifacts/model")


def reproduce(
    stage: str | None,
    folder: Path,
    tell: Callable[[str], None] = print,
    patience: float = PATIENCE,
) -> list[str]:
    """The stages that were executed to make `stage` (None: all) fresh; none if nothing was stale.

    Args:
        stage: a stage of dvc.yaml; what it depends on is made fresh first.
        folder: the project's folder.
        tell: called with each line that dvc and the stages write, as they write it.
        patience: seconds to wait for another dvc in the folder.

    Raises:
        AdaCalibError: a stage refused; the sentence is the stage's own.
        ToolError: dvc failed, or is held by another one for too long.
    """

    def tell_progress(line: str) -> None:
        if not line.startswith("ERROR: ") and "dvc.org/support" not in line:
            tell(line)

    stages = [stage] if stage else []
    finished = dvc(folder, "repro", *stages, tell=tell_progress, patience=patience)
    if finished.code:
        stopped = re.search(r"ERROR: failed to reproduce '([^']+)'", finished.output)
        said = re.findall(rf"^{stopped[1]}: (.+)$", finished.output, re.M) if stopped else []
        if stopped and said:
            raise AdaCalibError(f"{stopped[1]}: {said[-1]}")
        raise failure(f"dvc repro {stage or ''}".strip(), finished)
    return re.findall(r"^Running stage '([^']+)':$", finished.output, re.M)


def status(stage: str | None, folder: Path) -> dict[str, Any]:
    """What is stale in a stage (None: in all) and what it depends on; empty if all is fresh.

    It has an entry for each stage whose own inputs or outputs differ from those of its last run,
    not for those that come after it.

    Raises:
        ToolError: dvc failed.
    """
    target = [stage, "--with-deps"] if stage else []
    finished = dvc(folder, "status", *target, "--json")
    if finished.code:
        raise failure("dvc status", finished)
    return json.loads(finished.output)


def commit_data(folder: Path) -> None:
    """Put data/ into DVC's cache and let data.dvc say so; nothing changes where it says so already.

    Raises:
        ToolError: dvc failed.
    """
    finished = dvc(folder, "add", "--quiet", "data")
    if finished.code:
        raise failure("dvc add data", finished)


def restore_data(folder: Path) -> bool:
    """Whether data/ was brought back as data.dvc names it, from DVC's cache."""
    return not dvc(folder, "checkout", "--quiet", "data.dvc").code


def share_cache(folder: Path, owner: Path) -> None:
    """Let a checkout use the cache and the private settings of another, which has run before.

    Raises:
        ToolError: dvc failed.
    """
    settings = owner / ".dvc" / "config.local"
    if settings.exists():
        shutil.copyfile(settings, folder / ".dvc" / "config.local")
    finished = dvc(owner, "cache", "dir")
    if not finished.code:
        finished = dvc(folder, "cache", "dir", "--local", finished.output.strip())
    if finished.code:
        raise failure("sharing DVC's cache", finished)


def locked_md5(folder: Path) -> str | None:
    """The md5 that a folder's dvc.lock has for the model, None if it has none."""
    try:
        return model_md5((folder / "dvc.lock").read_text())
    except FileNotFoundError:
        return None


def model_md5(lock: str) -> str | None:
    """The md5 that the text of a dvc.lock has for the model, None if it has none."""
    outputs = stages_of(lock).get("merge", {}).get("outs", [])
    return next((out.get("md5") for out in outputs if out["path"] == MODEL.as_posix()), None)


def stages_of(lock: str) -> dict[str, Any]:
    """What the text of a dvc.lock says of each stage that has run."""
    return (YAML(typ="safe", pure=True).load(lock) or {}).get("stages") or {}


def folder_md5(folder: Path) -> str:
    """The md5 under which DVC keeps a folder: that of its sorted list of file md5s and paths."""
    entries = []
    for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).as_posix()):
        if path.is_file():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "md5").hexdigest()
            entries.append({"md5": digest, "relpath": path.relative_to(folder).as_posix()})
    return hashlib.md5(json.dumps(entries, sort_keys=True).encode()).hexdigest() + ".dir"


def push(folder: Path, stage: str) -> None:
    """Send the outputs of a stage, and of all it depends on, to DVC's default remote.

    Raises:
        ToolError: dvc failed.
    """
    finished = dvc(folder, "push", stage, "--with-deps")
    if finished.code:
        raise failure("dvc push", finished)


def fetch(
    folder: Path,
    commit: str,
    target: Path,
    *,
    remote: Remote | None,
    cached: bool,
    path: Path = MODEL,
) -> None:
    """Bring the model, or another output of the pipeline, that a commit names.

    It is read at the commit, not from the working tree: there dvc would quietly take the file of
    the working tree for one that the remote lacks.

    Args:
        folder: the project's folder.
        commit: the full name of a commit.
        target: where its folder appears.
        remote: where its bytes are, as this folder knows it now; None: in the cache alone.
        cached: whether this folder's cache may serve; if not, every byte comes from the remote.
        path: of the output in the project.

    Raises:
        ToolError: it cannot be had from there.
    """
    arguments = ["get", ".", path.as_posix(), "--rev", commit, "-o", str(target.absolute())]
    with tempfile.TemporaryDirectory(prefix="adacalib-") as place:
        if remote:  # without one, dvc makes the cache a remote, and settings would undo that
            settings = _settings(folder, remote)
            if not cached:
                settings.read_dict({"cache": {"dir": f"{place}/cache"}})
            with (Path(place) / "config").open("w") as file:
                settings.write(file)
            arguments += ["--config", file.name]
        finished = dvc(folder, *arguments)
    if finished.code:
        source = "DVC's cache" if cached or not remote else f"DVC remote {remote.address}"
        raise failure(f"reading the {path.name} of commit {commit[:10]} from {source}", finished)


def _settings(folder: Path, remote: Remote) -> configparser.ConfigParser:
    """What DVC is to know at a commit: the remotes of today, and credentials, in no commit."""
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(folder / ".dvc" / "config")
    for section in settings.sections():
        if not section.startswith("'remote "):
            settings.remove_section(section)
    settings.read(folder / ".dvc" / "config.local")
    # The address is absolute: at a commit, dvc resolves a relative one wrongly.
    named = f"'remote \"{remote.name}\"'"
    settings.read_dict({"core": {"remote": remote.name}, named: {"url": remote.address}})
    return settings


def assign(
    folder: Path,
    commit: str,
    identity: dict[str, str],
    authority: str,
    replaced: Assignment | None,
) -> Assignment:
    """Put the model of a commit into production, as a new version unless it has one already.

    Args:
        folder: a git repository that holds the commit and the authority's newest tags.
        commit: the full name of a commit.
        identity: GIT_COMMITTER_NAME, GIT_COMMITTER_EMAIL and so on.
        authority: name of a git remote, or "." for this repository itself.
        replaced: what is in production, as far as the caller knows.

    Raises:
        ReleaseError: another promotion came first, or the authority takes no tags from here.
        ToolError: gto or git failed.
    """
    held = next((version for version, c in versions(folder).items() if c == commit), None)
    version = ["--force"] if held else ["--version", next_version(folder)]
    with proposed(folder, identity, authority, replaced) as clone:
        command = [beside_python("gto"), "assign", "-r", str(clone), NAME, commit]
        finished = run_leashed([*command, "--stage", STAGE, *version], folder, None, identity)
        if finished.code:
            raise failure("gto assign", finished)
    return assignments(folder)[-1]
