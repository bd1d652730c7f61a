"""params.yaml as one frozen, typed section per stage; nothing else opens that file."""

from collections.abc import Sequence
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML, YAMLError

from pipeline.core.errors import ParamsError
from pipeline.params.sections import Params
from pipeline.params.types import Section

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
            near = get_close_matches(str(key), _keys(parents), 1)
            meant = f" (did you mean {near[0]}?)" if near else ""
            unknown.setdefault(place, []).append(f"{str(key)!r}{meant}")
        elif item["type"] == "missing":
            missing.setdefault(place, []).append(str(key))
        else:
            name = ".".join(str(part) for part in item["loc"])
            whole = isinstance(item["input"], (dict, BaseModel))
            shown = "" if whole else f" is {_shown(item['input'])}"
            values.append(f"{name}{shown}: {_said(item)}")
    sentences = []
    for place in dict.fromkeys([*unknown, *missing]):
        parts = [f"has unknown {', '.join(sorted(unknown[place]))}"] if place in unknown else []
        parts += [f"lacks {sorted(missing[place])}"] if place in missing else []
        sentences.append(f"{place or 'the file'} {' and '.join(parts)}")
    return f"{path}: {'; '.join(sentences + values)}"


def _keys(parents: Sequence[str | int]) -> list[str]:
    """The keys that a section may have; none where it is no section."""
    model: Any = Params
    for part in [*parents, None]:
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return []
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        model = fields[part].annotation if part in fields else None
    return list(fields)


def _shown(value: Any) -> str:
    """A value as params.yaml spells it."""
    if isinstance(value, date):
        return str(value)
    return repr(list(value) if isinstance(value, tuple) else value)


def _said(item: Any) -> str:
    if item["type"] == "too_short":
        return f"it needs {item['ctx']['min_length']} or more"
    return item["msg"].removeprefix("Value error, ").replace("Input should be", "it should be")


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
    from pipeline.core.files import publish

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
