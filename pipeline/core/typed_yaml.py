"""A YAML file as one frozen, typed model; what does not fit is one sentence."""

import json
from datetime import date
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, TypeVar
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from ruamel.yaml import YAML, YAMLError

from pipeline.core.errors import AdaCalibError


class Section(BaseModel):
    """A part of a file: frozen, unknown keys refused, no silent conversion between types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def _known(zone: str) -> str:
    try:
        return ZoneInfo(zone).key
    except (KeyError, ValueError, OSError):
        raise ValueError(f"there is no time zone {zone!r}; use a name like Europe/Berlin") from None


Model = TypeVar("Model", bound=Section)
Zone = Annotated[str, AfterValidator(_known)]
"""The name of a time zone."""


def read_yaml(path: Path, refusal: type[AdaCalibError]) -> Any:
    """What a file says, not to be changed; numbers as YAML 1.2 reads them (1e-3 is a number).

    Raises:
        refusal: the file is no YAML.
        OSError: there is no such file, or it may not be read.
    """
    try:
        return parse_yaml(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise refusal(f"{path} cannot be read as UTF-8 text: {error}") from None
    except YAMLError as error:
        raise refusal(
            f"{path} is not YAML: {' '.join(str(error).split())}; correct it, or bring it back: "
            f"git restore {path.name}"
        ) from None


def read_keys(path: Path, refusal: type[AdaCalibError]) -> dict[str, Any]:
    """What a file says by key, as `read_yaml`; nothing where there is no such file.

    Raises:
        refusal: the file is no YAML, or no mapping.
    """
    found = read_yaml(path, refusal) if path.exists() else {}
    if not isinstance(found, dict):
        raise refusal(f"{path} is no mapping of keys; bring it back: git restore {path.name}")
    return found


def read_typed(path: Path, model: type[Model], refusal: type[AdaCalibError]) -> Model:
    """What `read_yaml` reads, as a model.

    Args:
        path: a YAML file.
        model: its keys, their types and limits.
        refusal: the error to raise.

    Raises:
        refusal: the file is no YAML; a key is unknown, missing or mistyped, or a value is
            outside its limits; the sentence names every such key by its path, and its value.
        FileNotFoundError: there is no such file.
    """
    document = read_yaml(path, refusal)
    try:
        return model.model_validate(_tuples(document))
    except RecursionError:
        raise refusal(f"{path}: an alias stands inside its own anchor; write it out") from None
    except ValidationError as error:
        known = [name for name in _names(model) if not _has(document, name)]
        faults = [_fault(item, known) for item in error.errors()]
        raise refusal(f"{path}: {'; '.join(faults)}") from None


@lru_cache(maxsize=8)  # a run asks often, and the parser takes a tenth of a second
def parse_yaml(text: str) -> Any:
    """What a text in YAML 1.2 says; not to be changed."""
    return YAML(typ="safe", pure=True).load(text)


def _tuples(value: Any) -> Any:
    """The value with its lists as tuples, which are as frozen as the model."""
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _names(model: type[BaseModel], prefix: str = "") -> list[str]:
    """The keys that a model takes, dotted."""
    found = []
    for name, field in model.model_fields.items():
        found.append(prefix + (field.alias or name))
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found += _names(field.annotation, f"{found[-1]}.")
    return found


def _has(document: Any, name: str) -> bool:
    """Whether a document says something under a dotted name."""
    for key in name.split("."):
        if not isinstance(document, dict) or key not in document:
            return False
        document = document[key]
    return True


def _fault(item: Any, known: list[str]) -> str:
    """One of the faults that pydantic found: its place, the value as YAML spells it, the rule.

    Args:
        item: the fault.
        known: keys that the file might mean, which are those that it lacks.
    """
    name = ".".join(map(str, item["loc"])) or "the file"
    if item["type"] == "extra_forbidden":
        near = get_close_matches(name, known, 1)
        return f"{name} is unknown" + (f" (did you mean {near[0]}?)" if near else "")
    if item["type"] == "missing":
        return f"{name} is missing"
    rule = item["msg"].removeprefix("Value error, ").replace("Input should", "it should")
    rule = rule.replace("valid tuple", "list").partition(" or instance of ")[0]
    if isinstance(item["input"], (dict, BaseModel)):
        return f"{name}: {rule}"
    return f"{name} is {_as_yaml(item['input'])}: {rule}"


def _as_yaml(value: Any) -> str:
    """A value as YAML spells it: a date that is no text has no quotes."""
    if isinstance(value, date):
        return str(value)
    return json.dumps(value, default=str, ensure_ascii=False)
