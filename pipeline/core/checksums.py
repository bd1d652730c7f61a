"""A folder whose manifest holds the checksum of every byte in it."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from pipeline.core.errors import ArtifactError
from pipeline.core.files import read_json, sha256_of, write_json

MANIFEST = "manifest.json"


def file_sums(folder: Path) -> dict[str, str]:
    """The sha256 of every file of a folder, by its path in the folder, in order of the paths."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256_of(path) for path in files}


def json_sha256(value: Any) -> str:
    """The sha256 of a value as JSON with sorted keys, in hexadecimal."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def manifest_sums(parts: Mapping[str, Path]) -> dict[str, str]:
    """What an artifact notes of those that it is made of: name → sha256 of what its manifest says.

    Raises:
        ArtifactError: a manifest is missing or damaged.
    """
    return {name: json_sha256(read_json(folder / MANIFEST)) for name, folder in parts.items()}


def refuse_others(artifact: Path, noted: Mapping[str, str], parts: Mapping[str, Path]) -> None:
    """Refuse an artifact beside others than those that it was made of.

    Args:
        artifact: its folder or file.
        noted: its own `manifest_sums` of then; empty where it has none.
        parts: the artifacts beside it, by their names there.

    Raises:
        ArtifactError: one of them is another, or has no manifest.
    """
    for name, found in manifest_sums(parts).items():
        if noted.get(name) != found:
            raise ArtifactError(
                f"{artifact} was made with other {name} than {parts[name]}; run dvc repro"
            )


def _sum_of(manifest: dict[str, Any]) -> str:
    return json_sha256({key: value for key, value in manifest.items() if key != "sha256"})


def write_checksums(folder: Path, manifest: dict[str, Any]) -> None:
    """Write manifest.json with the sha256 of the folder's files, and of the manifest itself."""
    listed = manifest | {"files": file_sums(folder)}
    write_json(folder / MANIFEST, listed | {"sha256": _sum_of(listed)})


def verify(folder: Path) -> dict[str, Any]:
    """The manifest of such a folder, after every file in it was read and found as it was written.

    Raises:
        ArtifactError: the manifest is missing or damaged, or a file is missing, added or damaged;
            the sentence names the file.
    """
    manifest = read_json(folder / MANIFEST)
    remedy = "bring it back with dvc checkout, or make it again with dvc repro"
    if not isinstance(manifest, dict) or manifest.get("sha256") != _sum_of(manifest):
        raise ArtifactError(f"{folder / MANIFEST} is not as it was written; {remedy}")
    files = manifest.get("files")
    if not isinstance(files, dict) or not all(_is_inside(name) for name in files):
        raise ArtifactError(f"{folder / MANIFEST} does not list files of its folder; {remedy}")
    _refuse_strange(folder, remedy)
    found = file_sums(folder)
    del found[MANIFEST]
    for name, sum_then in files.items():
        if name not in found:
            raise ArtifactError(f"{folder / name} is missing; {remedy}")
        if found.pop(name) != sum_then:
            raise ArtifactError(f"{folder / name} is not as it was written; {remedy}")
    if found:
        raise ArtifactError(f"{folder / min(found)} does not belong to {folder}; {remedy}")
    return manifest


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts


def _refuse_strange(folder: Path, remedy: str) -> None:
    """Refuse what is neither a file nor a folder of its own; a file may be a link into a cache."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file() and (path.is_symlink() or not path.is_dir()):
            raise ArtifactError(f"{path} is no file and does not belong to {folder}; {remedy}")
