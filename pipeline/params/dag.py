"""The stages of dvc.yaml: in which order they feed one another."""

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath
from typing import Any

from pipeline.core.errors import AdaCalibError
from pipeline.core.typed_yaml import read_keys


def _declared(stage: dict[str, Any], *kinds: str) -> Iterator[PurePosixPath]:
    """The paths under some keys of a stage; an entry with options is a mapping of one key."""
    for kind in kinds:
        for entry in stage.get(kind, []):
            yield PurePosixPath(entry if isinstance(entry, str) else next(iter(entry)))


def _stages(folder: Path) -> dict[str, dict[str, Any]]:
    """What dvc.yaml says of each stage.

    Raises:
        AdaCalibError: the folder has no dvc.yaml, or one that declares none.
    """
    stages = read_keys(folder / "dvc.yaml", AdaCalibError).get("stages")
    if not stages:
        raise AdaCalibError(
            f"{folder} has no dvc.yaml; run in the project's folder, or, where it says no stages, "
            "git restore dvc.yaml"
        )
    return stages


def code_of(folder: Path, stage: str) -> list[Path]:
    """The files of code that a stage depends on by dvc.yaml, ascending; folders are looked into.

    Raises:
        AdaCalibError: the folder has no dvc.yaml.
    """
    files: set[Path] = set()
    for declared in _declared(_stages(folder)[stage], "deps"):
        if declared.parts[0] == "pipeline":
            path = folder / declared
            files |= set(path.rglob("*.py")) if path.is_dir() else {path}
    return sorted(files)


def upstreams(folder: Path) -> dict[str, set[str]]:
    """For each stage that dvc.yaml declares, those whose outputs it depends on.

    Raises:
        AdaCalibError: the folder has no dvc.yaml.
    """
    stages = _stages(folder)
    made = {
        path: name
        for name, stage in stages.items()
        for path in _declared(stage, "outs", "metrics", "plots")
    }
    needs = {}
    for name, stage in stages.items():
        deps = [*_declared(stage, "deps")]
        near = [p for p in made if any(d.is_relative_to(p) or p.is_relative_to(d) for d in deps)]
        needs[name] = {made[path] for path in near}
    return needs


def stage_order(folder: Path) -> list[str]:
    """The stages that dvc.yaml declares, each after those whose outputs it depends on.

    Raises:
        AdaCalibError: the folder has no dvc.yaml, or its stages depend on one another in a circle.
    """
    try:
        return list(TopologicalSorter(upstreams(folder)).static_order())
    except CycleError as error:
        raise AdaCalibError(f"dvc.yaml goes in a circle: {' → '.join(error.args[1])}") from None
