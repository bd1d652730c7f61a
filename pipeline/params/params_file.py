"""params.yaml as one frozen, typed section per stage; nothing else opens that file."""

from functools import reduce
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from pipeline.core.errors import ParamsError
from pipeline.core.files import publish
from pipeline.core.typed_yaml import Section, read_typed
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
    document = yaml.load(path.read_text())
    for name, value in values.items():
        *parents, key = name.split(".")
        place = reduce(lambda place, parent: place.get(parent, {}), parents, document)
        if key not in place:
            raise ParamsError(f"{path} has no {name}")
        place[key] = value
    with publish(path) as temporary:
        yaml.dump(document, temporary)
        read_params(temporary)
