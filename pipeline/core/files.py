"""Whole files or nothing: what is published appears under its name complete, or not at all.

A folder whose manifest holds the checksum of every byte in it.
"""

import hashlib
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.core.errors import ArtifactError, ArtifactKeyError, DataError
from pipeline.core.signals import uninterrupted

# DVC leaves alone what is there: it looks at size and time stamp, or asks for --force.
AGAIN = "dvc repro brings it back or makes it again"
REMEDY = f"remove it, and {AGAIN}"


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
        ArtifactError: something else stands where one of them would be.
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
            with uninterrupted():
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
        with uninterrupted():
            discard(temporary)
        raise


@contextmanager
def scratch_folder(prefix: str = "adacalib-", parent: Path | None = None) -> Iterator[Path]:
    """Yield a new folder, which is gone with all that is in it when the block ends.

    Args:
        prefix: how its name begins.
        parent: where it is made; None: where the machine keeps temporary files.
    """
    with uninterrupted():
        made = tempfile.TemporaryDirectory(prefix=prefix, dir=parent)
    try:
        yield Path(made.name)
    finally:
        with uninterrupted():  # an interrupt before this line leaves it to the end of `made`
            made.cleanup()


def refuse_pipe(path: Path) -> None:
    """Refuse a pipe, socket or device: who opens one may wait for ever.

    Raises:
        DataError: it is one.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise DataError(f"{path} is neither a file nor a folder; name a file")


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


class Document(dict[str, Any]):
    """An object of a JSON file; to ask it for a key that it lacks is an `ArtifactError`."""

    def __init__(self, content: Any, place: str = "", remedy: str = "") -> None:
        """Keep what a sentence needs, and apart from what it says the sum of that, if it has one.

        Args:
            content: key → value.
            place: the name of the file.
            remedy: what brings it back as it was.
        """
        super().__init__(content)
        self.file_name, self.file_remedy, self.noted_sum = place, remedy, None

    def __missing__(self, key: str) -> Any:
        raise ArtifactKeyError(f"{self.file_name} does not say {key}; {self.file_remedy}")


def read_json(path: Path, remedy: str = REMEDY) -> Any:
    """The object that a JSON file holds, a report among them.

    Raises:
        ArtifactError: as `parse_json`, or the file is missing.
    """
    try:
        return parse_json(path.read_bytes(), str(path), remedy)
    except (FileNotFoundError, NotADirectoryError):
        raise ArtifactError(
            f"{path} does not exist; run the stage that writes it: dvc repro"
        ) from None
    except IsADirectoryError:
        raise ArtifactError(f"{path} is a folder, not a file; {remedy}") from None


def parse_json(content: str | bytes, place: str, remedy: str = REMEDY) -> Any:
    """The object of a text in JSON, or of a report, which is a list of one.

    Args:
        content: the text.
        place: what the sentence names.
        remedy: what the sentence says to do.

    Raises:
        ArtifactError: it is no JSON or no object, or does not say what `write_facts` wrote.
    """
    try:
        found = json.loads(content, object_hook=partial(Document, place=place, remedy=remedy))
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, or nested without end
        raise ArtifactError(f"{place} is not JSON ({error}); {remedy}") from None
    found = found[0] if isinstance(found, list) and len(found) == 1 else found
    if isinstance(found, Document):
        found.noted_sum = found.pop("sha256", None)
    if not isinstance(found, Document) or found.noted_sum not in (None, json_sha256(found)):
        raise ArtifactError(f"{place} is not as it was written; {remedy}")
    return found


def _with_sum(content: Mapping[str, Any]) -> dict[str, Any]:
    said = finite_json(content)
    return said | {"sha256": json_sha256(said)}


def write_facts(path: Path, value: Mapping[str, Any]) -> None:
    """Publish an object as `write_json` does, with the sha256 of what it says beside that."""
    write_json(path, _with_sum(value))


def write_report(path: Path, report: dict[str, Any]) -> None:
    """Publish an artifact as a list of one: DVC takes each number of an object for a metric."""
    write_json(path, [_with_sum(report)])


def found(report: Any, *place: str | int) -> Any:
    """What stands in a report under names and places in lists; None where there is nothing."""
    for key in place:
        try:
            report = report[key]
        except (KeyError, IndexError, TypeError):
            return None
    return report


def sha256_of(path: Path) -> str:
    """The sha256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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


def refuse_others(artifact: Path, parts: Mapping[str, Path]) -> None:
    """Refuse an artifact beside others than those whose `manifest_sums` it notes under `made_of`.

    Args:
        artifact: its report, or its folder with a manifest.
        parts: the artifacts beside it, by their names there.

    Raises:
        ArtifactError: one of them is another, or one of all has no manifest.
    """
    noted = read_json(artifact / MANIFEST if artifact.is_dir() else artifact).get("made_of", {})
    for name, sha256 in manifest_sums(parts).items():
        if noted.get(name) != sha256:
            raise ArtifactError(
                f"{artifact} was made with other {name} than {parts[name]}; run dvc repro"
            )


def write_checksums(folder: Path, manifest: dict[str, Any]) -> None:
    """Write manifest.json with the sha256 of the folder's files, and of the manifest itself."""
    write_facts(folder / MANIFEST, manifest | {"files": file_sums(folder)})


def verify(folder: Path, again: str = AGAIN) -> dict[str, Any]:
    """The manifest of such a folder, after every file in it was read and found as it was written.

    Args:
        folder: it.
        again: what a sentence says brings a file back.

    Raises:
        ArtifactError: the manifest is missing or damaged, or a file is missing, added or damaged;
            the sentence names the file.
    """
    remedy = f"remove it, and {again}"
    manifest = read_json(folder / MANIFEST, remedy)
    if manifest.noted_sum is None:
        raise ArtifactError(f"{folder / MANIFEST} is not as it was written; {remedy}")
    files = manifest.get("files")
    if not isinstance(files, dict):
        raise ArtifactError(f"{folder / MANIFEST} does not list files of its folder; {remedy}")
    _refuse_strange(folder, remedy)
    found = file_sums(folder)
    del found[MANIFEST]
    for name, sum_then in files.items():
        if name not in found:
            raise ArtifactError(f"{folder / name} is missing; {again}")
        if found.pop(name) != sum_then:
            raise ArtifactError(f"{folder / name} is not as it was written; {remedy}")
    if found:
        raise ArtifactError(f"{folder / min(found)} does not belong to {folder}; {remedy}")
    return manifest


def _refuse_strange(folder: Path, remedy: str) -> None:
    """Refuse what is neither a file nor a folder of its own; a file may be a link into a cache."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file() and (path.is_symlink() or not path.is_dir()):
            raise ArtifactError(f"{path} is no file and does not belong to {folder}; {remedy}")
