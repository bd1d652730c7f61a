"""params.yaml as one frozen, typed section per stage; nothing else opens that file.

The stages of dvc.yaml: in which order they feed one another.
"""

from collections.abc import Iterator
from functools import reduce
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath
from typing import Any

from ruamel.yaml import YAML

from pipeline.core.errors import AdaCalibError, ParamsError
from pipeline.core.files import publish
from pipeline.core.typed_yaml import Section, read_keys, read_typed
from pipeline.params.sections import Params

STAGES = tuple(field.alias or name for name, field in Params.model_fields.items() if name != "log")
"""The stages, in the order in which they run: the sections of params.yaml but for `log`."""


def section(params: Params, stage: str) -> Section:
    """The section of one stage (`validate` is a method name of every pydantic model)."""
    return getattr(params, "validate_" if stage == "validate" else stage)


def read_params(path: Path = Path("params.yaml")) -> Params:
    """All sections of `path`, typed and frozen; numbers as YAML 1.2 reads them (1e-3 is a number).

    Raises:
        ParamsError: the file is missing or is not YAML; a key is unknown, missing or mistyped, or a
            value is outside its range; the sentence names the key's path and its value.
    """
    try:
        return read_typed(path, Params, ParamsError)
    except FileNotFoundError:
        raise ParamsError(f"{path} does not exist; run in the project's folder") from None
    except ParamsError as error:
        raise ParamsError(f"{error}; docs/params.md has every key and what it takes") from None


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values under the dotted names that `set_values` takes."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        found |= flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return found


def set_values(path: Path, values: dict[str, Any]) -> None:
    """Change single values of `path`, named `section.key`, and keep its comments and order.

    Raises:
        ParamsError: a name does not exist in the file, or the result is not valid; the file is then
            as it was.
    """
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 200
    yaml.representer.add_representer(
        type(None),
        lambda representer, _: representer.represent_scalar("tag:yaml.org,2002:null", "null"),
    )
    document = yaml.load(path)  # UTF-8, whatever a person's other files are
    for name, value in values.items():
        *parents, key = name.split(".")
        place = reduce(lambda place, parent: place.get(parent, {}), parents, document)
        if key not in place:
            raise ParamsError(f"{path} has no {name}")
        place[key] = value
    with publish(path) as temporary:
        with temporary.open("wb") as file:
            yaml.dump(document, file)
        read_params(temporary)


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
