"""The source as syntax trees, and the DAG: what tests of import rules and of dvc.yaml read."""

import ast
from functools import cache
from pathlib import Path

from ruamel.yaml import YAML

ROOT = Path(__file__).parent.parent
PIPELINE = sorted((ROOT / "pipeline").rglob("*.py"))
FLOWS = sorted((ROOT / "flows").rglob("*.py"))
DAG = YAML(typ="safe", pure=True).load((ROOT / "dvc.yaml").read_text())["stages"]


@cache
def nodes(file: Path) -> tuple[ast.AST, ...]:
    """Every node of a file's syntax tree, the file itself first."""
    return tuple(ast.walk(ast.parse(file.read_text())))


@cache
def imports(file: Path) -> set[str]:
    """Every module a file imports, anywhere in it, by its full name."""
    names = set()
    for node in nodes(file):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def module_file(name: str) -> Path | None:
    """The file of a module of the pipeline, or None where the name is something in a module."""
    path = ROOT / Path(*name.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in candidates if file.is_file()), None)


def top_imports(file: Path) -> set[str]:
    """What a file imports when it is imported itself, not later in a function."""
    names = set()
    for node in nodes(file)[0].body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def importers(package: str, files: list[Path]) -> set[str]:
    """The files that import a package."""
    return {
        str(file.relative_to(ROOT))
        for file in files
        if any(name == package or name.startswith(f"{package}.") for name in imports(file))
    }


def imported_by(file: Path) -> set[Path]:
    """The pipeline's files that a file imports, directly or not, with the packages they are in."""
    found: set[Path] = set()
    waiting = [file]
    while waiting:
        current = waiting.pop()
        if current in found:
            continue
        found.add(current)
        for name in imports(current):
            if name.split(".")[0] == "pipeline":
                parts = name.split(".")
                names = [".".join(parts[: i + 1]) for i in range(len(parts))]
                waiting += [f for f in map(module_file, names) if f]
    return found


def data_paths(stage: dict) -> set[str]:
    """The declared data paths of a stage: dependencies and outputs that are not code."""
    declared = stage.get("deps", []) + stage.get("outs", [])
    declared += [next(iter(metric)) for metric in stage.get("metrics", [])]
    return {path for path in declared if not path.startswith("pipeline")}
