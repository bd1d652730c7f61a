"""Writes docs/params.md from examples/flights.yaml, which is what is shipped (defaults, meanings),
and pipeline.params.sections (types).

python docs/params.py
"""

import re
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from pipeline.params.sections import LARGEST, Params

ROOT = Path(__file__).parent.parent
LINE = re.compile(r"^(?P<indent> *)(?P<key>\w+):(?: (?P<default>.*?))?(?: *# (?P<meaning>.*))?$")
HEAD = """# Parameters

Every value that may change a result is in `params.yaml`, one section per stage; the command line
and the environment change none. An unknown, missing or mistyped key is refused with its path.
Dates are quoted. This page is made from `examples/flights.yaml`, which is `params.yaml` as it is
shipped, and `pipeline/params/sections.py` by `python docs/params.py`.
"""
LIMITS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def type_name(annotation: Any) -> str:
    """A type as people read it."""
    if annotation is type(None):
        return "null"
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is None:
        return getattr(annotation, "__name__", str(annotation))
    if hasattr(annotation, "__metadata__"):
        return type_name(parts[0]) + limits(annotation.__metadata__)
    if str(origin).endswith("Literal"):
        return " or ".join(f"`{part}`" for part in parts)
    if origin in (tuple, list, dict):
        inner = dict.fromkeys(type_name(part) for part in parts if part is not ...)
        return f"{origin.__name__} of {', '.join(inner)}"
    return " or ".join(type_name(part) for part in parts)


def limits(metadata: Any) -> str:
    """Bounds of a number, with a leading space."""
    found = []
    for item in metadata:
        for part in (item, *getattr(item, "metadata", ())):
            found += [
                f"{sign} {getattr(part, name):g}"
                for name, sign in LIMITS.items()
                if getattr(part, name, LARGEST) != LARGEST
            ]
    return f" {', '.join(found)}" if found else ""


def row(key: str, default: str, meaning: str, field: FieldInfo) -> str:
    """A line of the table."""
    kind = type_name(field.annotation) + limits(field.metadata)
    cells = [f"`{key}`", f"`{default}`", kind, meaning]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def page() -> str:
    """The page as text."""
    lines, path, models = [HEAD], [], [Params]
    for text in (ROOT / "examples/flights.yaml").read_text().splitlines():
        found = LINE.match(text)
        if not found:
            continue
        depth = len(found["indent"]) // 2
        path, models = [*path[:depth], found["key"]], models[: depth + 1]
        fields: dict[str, FieldInfo] = models[-1].model_fields
        field = fields.get(found["key"]) or fields[f"{found['key']}_"]
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            models.append(field.annotation)
            about = (found["meaning"] or (field.annotation.__doc__ or "").split("\n")[0]).strip()
            about = about[:1].upper() + about[1:]
            lines += [f"{'#' * (depth + 2)} {'.'.join(path)}", "", about, ""]
            lines += ["| key | default | type | meaning |", "|---|---|---|---|"]
        else:
            lines.append(row(found["key"], found["default"], found["meaning"] or "", field))
    return re.sub(r"(\|\n)(#)", r"\1\n\2", "\n".join(lines)) + "\n"


if __name__ == "__main__":
    (ROOT / "docs/params.md").write_text(page())
