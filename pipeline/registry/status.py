"""What is in production and why, for people."""

from pathlib import Path

from pipeline.core.errors import ArtifactError, ReleaseError
from pipeline.core.files import read_json
from pipeline.formats.champion import PIN, read_pin
from pipeline.registry import commits, tags
from pipeline.registry.override import GATE, overridden
from pipeline.registry.promotion import Production, production
from pipeline.registry.tools.programs import git


def status(folder: Path) -> str:
    """What is in production, since when and why, and what the last verdict in this folder says.

    The git remote is asked; where it does not answer, what this clone knows is said, and why.

    Raises:
        ToolError: git is missing.
        ArtifactError: the commit in production holds no verdict, or an override is damaged.
    """
    inside = not git(folder, "rev-parse", "--git-dir", check=False).code
    doubt = _brought(folder) if inside else []
    current = production(folder) if inside else None
    if current is None:
        lines = ["Nothing is in production."]
    else:
        lines = [
            f"{current.version} is in production since {current.since}, made from days up to "
            f"{current.last_day} (commit {current.commit[:10]}), because:",
            *(f"  - {sentence}" for sentence in current.evidence),
            *_pinned(folder, current),
        ]
    return "\n".join([*doubt, *lines, *_last_verdict(folder, current)])


def _pinned(folder: Path, current: Production) -> list[str]:
    """A line where the champion of the next run is not what is in production."""
    if not (folder / PIN).exists():
        return []
    try:
        pin = read_pin(folder / PIN)
    except ArtifactError as error:
        return [f"{error}."]
    if pin and pin.version == current.version:
        return []
    return [
        f"{PIN} pins {pin.version if pin else 'no version'}, production is {current.version}: "
        "before the next run, adacalib champion --pin"
    ]


def _brought(folder: Path) -> list[str]:
    """Nothing, after the tags of the git remote were brought; else why they could not be."""
    try:
        tags.fetch_tags(folder, commits.authority(folder))
    except ReleaseError as error:
        return [f"As far as this clone knows ({error}):"]
    return []


def _last_verdict(folder: Path, current: Production | None) -> list[str]:
    try:
        gate = read_json(folder / GATE)
    except ArtifactError:
        return ["No model was judged in this folder: run dvc repro."]
    if current and gate["model_sha256"] == current.model_sha256:
        return ["The model of this folder is the one in production."]
    if gate["passed"]:
        return [
            "The model of this folder passed its verdict; adacalib promote makes it production."
        ]
    reasons = (f"  - {reason}" for reason in gate["reasons"])
    told = overridden(folder, gate)
    spoken = [f"{told}; adacalib promote makes it production."] if told else []
    return ["The model of this folder was refused:", *reasons, *spoken]
