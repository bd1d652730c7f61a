"""Whole files or nothing: what is published appears under its name complete, or not at all."""

import hashlib
import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.core.errors import ArtifactError


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def discard(path: Path) -> None:
    """Remove a file, a link or a folder, where it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, where they are missing.

    Raises:
        ArtifactError: something else stands where one of them would be, or may not be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        places = [folder, *folder.parents]
        stands = next(p for p in places if os.path.lexists(p) and not p.is_dir())
        raise ArtifactError(
            f"{stands} is no folder, so nothing can be made in it; name another place, or move it "
            "away"
        ) from None
    except PermissionError as error:
        raise ArtifactError(
            f"the folder {folder} cannot be made ({error.strerror}); name another place"
        ) from None


@contextmanager
def publish(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside `target`; on a clean exit it becomes `target`, else it goes.

    The writer may make a file, a folder or a link to a folder there. Everything is fsynced before
    the rename, so a reader sees the previous version or the whole new one, also after a power cut.
    A folder that stands at `target` is moved aside first (a rename cannot replace a folder that is
    not empty).

    Raises:
        ArtifactError: a file was written where a folder stands, a folder where a file stands, or a
            file stands where the folder around `target` would be; what stands stays as it is.
    """
    make_folder(target.parent)
    writer = f"{socket.gethostname()}-{os.getpid()}"  # of machines that share the place, too
    temporary = target.with_name(f".{target.name}.tmp-{writer}")
    discard(temporary)
    try:
        yield temporary
        for file in [*temporary.rglob("*"), temporary] if temporary.is_dir() else [temporary]:
            _sync(file)
        if target.is_dir() and not target.is_symlink():
            if not temporary.is_dir():
                raise ArtifactError(f"{target} is a folder, which no file may replace; name a file")
            aside = target.with_name(f".{target.name}.tmp-old-{writer}")
            target.rename(aside)
            temporary.rename(target)
            discard(aside)
        else:
            if os.path.lexists(target) and temporary.is_dir() and not temporary.is_symlink():
                raise ArtifactError(
                    f"{target} is no folder, which no folder may replace; name another place, or "
                    "move it away"
                )
            temporary.replace(target)
        _sync(target.parent)
    except BaseException:
        discard(temporary)
        raise


def remove_unfinished(folder: Path) -> None:
    """Remove what writers that died left in a folder that is not published yet."""
    for path in [*folder.rglob(".*.tmp-*")]:
        discard(path)


def write_json(path: Path, value: Any) -> None:
    """Publish `value` as JSON with sorted keys; NaN and infinities are written as null."""
    with publish(path) as temporary:
        temporary.write_text(
            json.dumps(finite_json(value), indent=2, sort_keys=True, allow_nan=False) + "\n"
        )


def finite_json(value: Any) -> Any:
    """`value` with every float that is not finite replaced by None, which JSON can carry."""
    if isinstance(value, dict):
        return {str(key): finite_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite_json(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not (float("-inf") < value < float("inf")):
        return None
    return value


def read_json(path: Path) -> Any:
    """The content of a JSON file.

    Raises:
        ArtifactError: the file is missing or is not JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise ArtifactError(
            f"{path} does not exist; run the stage that writes it: dvc repro"
        ) from None
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, or nested without end
        raise ArtifactError(f"{path} is not JSON ({error}); remove it and run dvc repro") from None


def write_report(path: Path, report: dict[str, Any]) -> None:
    """Publish a report as a list of one: DVC takes each number of an object for a metric."""
    write_json(path, [report])


def read_report(path: Path, *keys: str) -> Any:
    """The content of a report; those of before are no list.

    Args:
        path: of the file.
        keys: that it must have, where there are any.

    Raises:
        ArtifactError: the file is missing, is not JSON, or lacks a key.
    """
    content = read_json(path)
    content = content[0] if isinstance(content, list) and content else content
    if keys and not (isinstance(content, dict) and {*keys} <= {*content}):
        raise ArtifactError(f"{path} does not say {', '.join(keys)}; run dvc repro")
    return content


def sha256_of(path: Path) -> str:
    """The sha256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
