"""Why a stage ran: what dvc.lock says of it now, held against what it said before."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.registry.tools.dvc import stages_of

NOTHING = "nothing changed"


def locked(folder: Path, stage: str) -> dict[str, str]:
    """What a stage's last run was made of: command, parameters and dependencies, each as a text.

    Empty where dvc.lock does not have the stage.
    """
    try:
        entry = stages_of((folder / "dvc.lock").read_text()).get(stage)
    except FileNotFoundError:
        return {}
    return dict(_parts(entry)) if entry else {}


def _parts(entry: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "its command", entry["cmd"]
    for dependency in entry.get("deps", []):
        yield dependency["path"], str(dependency.get("md5"))
    for file, values in entry.get("params", {}).items():
        yield from _values(file, values)


def _values(place: str, values: Any) -> Iterator[tuple[str, str]]:
    """Single parameters by their path, like `params.yaml: gate.max_pcoc_error`."""
    if not isinstance(values, dict):
        yield place, repr(values)
        return
    for key, value in values.items():
        yield from _values(f"{place}{'.' if ': ' in place else ': '}{key}", value)


def cause(before: dict[str, str], after: dict[str, str]) -> str:
    """What differs between two answers of `locked`, in words."""
    if before == after:
        return NOTHING
    if not before:
        return "it had not run before"
    names = [name for name in {**after, **before} if before.get(name) != after.get(name)]
    return f"changed: {', '.join(names)}"
