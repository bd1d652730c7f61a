"""Folders of their own for examples and back-tests: the project's files, other parameters."""

import os
import shutil
from pathlib import Path
from typing import Any

from pipeline.core.errors import AdaCalibError
from pipeline.core.files import publish
from pipeline.core.typed_yaml import read_keys
from pipeline.formats.champion import start_pin
from pipeline.params.params_file import flat, read_params, set_values
from pipeline.registry.tools.programs import git

SHIPPED = Path("examples/flights.yaml")
"""Every parameter as it is shipped, whatever params.yaml says by now."""


def prepare(example: str) -> Path:
    """The folder in which an example runs: this one where params.yaml fits it, else demo/EXAMPLE.

    demo/EXAMPLE gets the project's files as they are now and the shipped params.yaml with the
    values of examples/EXAMPLE.yaml. Its data, artifacts and DVC cache stay between calls, so that a
    second run finds nothing to do.

    Raises:
        AdaCalibError: there is no such example, or this is not the project's folder.
        ToolError: git is missing or this is not a clone.
    """
    if read_params().log.format == example:
        return Path()
    overrides = Path("examples") / f"{example}.yaml"
    if not overrides.is_file():
        known = sorted(path.stem for path in Path("examples").glob("*.yaml"))
        raise AdaCalibError(f"no example {example!r}; there are {known}")
    folder = Path("demo") / example
    copy_project(folder)
    shutil.copyfile(SHIPPED, folder / "params.yaml")
    set_values(folder / "params.yaml", flat(read_keys(overrides, AdaCalibError)))
    return folder


def write_start(name: str, mapping: str, params: dict[str, Any]) -> list[str]:
    """Write `name`.yaml with a mapping and `name`.params.yaml, the shipped params.yaml with other
    values; their names come back.

    Raises:
        AdaCalibError: one of them is there, or the values do not fit.
    """
    files = Path(f"{name}.yaml"), Path(f"{name}.params.yaml")
    for file in files:
        if file.exists():
            raise AdaCalibError(f"{file} is there already; move it away, or choose another --name")
    with publish(files[0]) as first, publish(files[1]) as second:
        first.write_text(mapping, encoding="utf-8")
        shutil.copyfile(SHIPPED, second)
        set_values(second, params)
    return [str(file) for file in files]


def copy_project(folder: Path) -> None:
    """Give `folder` the project's files as they are now, params.yaml too, outside version control.

    Its own data, dvc.lock, artifacts, reports and DVC cache stay as they are.

    Raises:
        ToolError: git is missing or this is not a clone.
    """
    kept = {Path(name) for name in ("params.yaml", "data.dvc", "dvc.lock", "champion.json")}
    shutil.rmtree(folder / "pipeline", ignore_errors=True)  # modules deleted since the last call
    listing = git(Path(), "ls-files", "--cached", "--others", "--exclude-standard", "-z").output
    for file in [Path(name) for name in listing.split("\0") if name]:  # new ones, too
        if file.is_file() and file not in kept and file.parts[0] != "reports":
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, folder / file)
    shutil.copyfile("params.yaml", folder / "params.yaml")
    try:
        read_keys(folder / "dvc.lock", AdaCalibError)
    except AdaCalibError:  # DVC was killed while it wrote; it finds in its cache what was made
        (folder / "dvc.lock").unlink()
    start_pin(folder)
    (folder / ".dvc" / "config.local").write_text("[core]\n    no_scm = true\n")


def share_data(source: Path, target: Path) -> None:
    """Make `target` hold the log in `source`, by hard links where the disk has them.

    Landing renames new files into place, so what is shared here never changes under a reader.
    """
    with publish(target) as temporary:
        shutil.copytree(source, temporary, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without links
        shutil.copy2(source, target)
