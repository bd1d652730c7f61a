"""params.yaml as one frozen, typed section per stage; nothing else opens that file."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML, YAMLError

from pipeline.errors import ParamsError
from pipeline.section_types import Section
from pipeline.sections import Params

STAGES = (
    "validate",
    "split",
    "train_base",
    "score",
    "tabulate",
    "check_tables",
    "calibrate",
    "merge",
    "evaluate",
    "gate",
    "report",
)


def section(params: Params, stage: str) -> Section:
    """The section of one stage (`validate` is a method name of every pydantic model)."""
    return getattr(params, "validate_" if stage == "validate" else stage)


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _sentence(path: Path, error: ValidationError) -> str:
    """One sentence for all that is wrong: unknown and missing keys by section, then values."""
    unknown: dict[str, list[str]] = {}
    missing: dict[str, list[str]] = {}
    values = []
    for item in error.errors():
        *parents, key = item["loc"] or ("params",)
        place = ".".join(str(part) for part in parents)
        if item["type"] == "extra_forbidden":
            unknown.setdefault(place, []).append(str(key))
        elif item["type"] == "missing":
            missing.setdefault(place, []).append(str(key))
        else:
            name = ".".join(str(part) for part in item["loc"])
            said = item["msg"].removeprefix("Value error, ")
            whole = isinstance(item["input"], (dict, BaseModel))
            values.append(f"{name}: {said}" if whole else f"{name} is {item['input']!r}: {said}")
    sentences = []
    for place in dict.fromkeys([*unknown, *missing]):
        parts = [f"has unknown {sorted(unknown[place])}"] if place in unknown else []
        parts += [f"lacks {sorted(missing[place])}"] if place in missing else []
        sentences.append(f"{place or 'the file'} {' and '.join(parts)}")
    return f"{path}: {'; '.join(sentences + values)}"


def read_params(path: Path = Path("params.yaml")) -> Params:
    """All sections of `path`, typed and frozen; numbers as YAML 1.2 reads them (1e-3 is a number).

    Raises:
        ParamsError: the file is missing or is not YAML; a key is unknown, missing or mistyped, or a
            value is outside its range; the sentence names the key's path and its value.
    """
    try:
        document = YAML(typ="safe", pure=True).load(path.read_text())
    except FileNotFoundError:
        raise ParamsError(f"{path} does not exist; run in the project's folder") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ParamsError(f"{path} cannot be read as UTF-8 text: {error}") from None
    except YAMLError as error:
        raise ParamsError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    try:
        return Params.model_validate(_tuples(document))
    except ValidationError as error:
        raise ParamsError(_sentence(path, error)) from None


def set_values(path: Path, values: dict[str, Any]) -> None:
    """Change single values of `path`, named `section.key`, and keep its comments and order.

    Raises:
        ParamsError: a name does not exist in the file, or the result is not valid; the file is then
            as it was.
    """
    from pipeline.files import publish

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 200
    yaml.representer.add_representer(
        type(None),
        lambda representer, _: representer.represent_scalar("tag:yaml.org,2002:null", "null"),
    )
    before = path.read_text()
    document = yaml.load(before)
    for name, value in values.items():
        *parents, key = name.split(".")
        place = document
        for parent in parents:
            place = place.get(parent, {})
        if key not in place:
            raise ParamsError(f"{path} has no {name}")
        place[key] = value
    with publish(path) as temporary:
        yaml.dump(document, temporary)
        read_params(temporary)
