"""What was made of a day, kept for the next run: bytes by a hash of all that they depend on.

They lie in the folder that all worktrees of a repository share; where there is no repository
nothing is kept. Whoever deletes the folder loses time and no byte of any output.
"""

import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.core.errors import AdaCalibError
from pipeline.core.files import finite_json, json_sha256, publish

LIBRARIES = ("duckdb", "numpy", "pandas", "pyarrow", "scipy", "torch")
LIMIT = "ADACALIB_REUSE_GB"  # in the environment, as it changes no result; 20 where it is not set
PLACE = "adacalib/days"


@dataclass(frozen=True)
class Made:
    """What was made of a day.

    Attributes:
        facts: small things, as JSON gives them back.
        payload: large ones.
    """

    facts: dict[str, Any]
    payload: bytes = b""

    @classmethod
    def of_columns(cls, facts: dict[str, Any], columns: pa.Table) -> "Made":
        """Columns as the payload."""
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, columns.schema, options=options) as writer:
            writer.write_table(columns)
        return cls(facts, sink.getvalue().to_pybytes())

    @property
    def columns(self) -> pa.Table:
        """What `of_columns` was given."""
        return pa.ipc.open_stream(self.payload).read_all()


class Reuse:
    """What one kind of work made of days.

    Args:
        near: a path of the checkout whose repository keeps it.
        kind: name of the work, for example "scores".
        of: what the work depends on for every day alike, beside code and libraries.
    """

    def __init__(self, near: Path, kind: str, of: Mapping[str, Any]) -> None:
        common = common_folder(near)
        self._folder = common / PLACE if common else None
        self._room = 0  # bytes to write before the folder is looked through again
        self._same = {"kind": kind, "of": finite_json(of), "made_by": made_by()}

    def made(self, of: Mapping[str, Any], make: Callable[[], Made]) -> Made:
        """What `make` makes, or made before of the same.

        Args:
            of: what it depends on for this day, as JSON can hold it.
            make: called where nothing whole is kept.
        """
        found = self._kept(of, make) if self._folder else make()
        # so that facts are the same whether they were read or made
        return Made(json.loads(json.dumps(finite_json(found.facts))), found.payload)

    def _kept(self, of: Mapping[str, Any], make: Callable[[], Made]) -> Made:
        assert self._folder is not None
        key = json_sha256(self._same | {"day": finite_json(of)})
        path = self._folder / key[:2] / key
        found = _read(path)
        if found is None:
            found = make()
            self._room -= _write(path, found)
            if self._room <= 0:  # to look through a full folder takes time
                limit = bytes_of(LIMIT, 20 * 10**9)
                self._room = limit // 20
                with suppress(OSError):  # another thread or run moves and removes files, too
                    trim(self._folder, limit - self._room)
        return found


def common_folder(near: Path) -> Path | None:
    """The folder that all worktrees of a path's repository share; None: there is no repository."""
    for folder in near.absolute().parents:
        git = folder / ".git"
        if git.is_dir():
            return git
        if git.is_file():
            own = folder / git.read_text().removeprefix("gitdir:").strip()
            shared = own / "commondir"
            return (own / shared.read_text().strip()).resolve() if shared.exists() else own
    return None


def forget(near: Path, *, really: bool) -> int:
    """Remove all that is kept for the repository of a path; how many bytes that are.

    Args:
        near: as of `Reuse`.
        really: whether to do it.
    """
    common = common_folder(near)
    folder = common / PLACE if common else near / PLACE
    if really:
        return trim(folder, 0)
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def trim(folder: Path, limit: int) -> int:
    """Remove what was used least recently, until no more than `limit` bytes are kept.

    Args:
        folder: of all that is kept.
        limit: bytes.

    Returns:
        How many bytes were removed.
    """
    kept = [(path.stat(), path) for path in folder.rglob("*") if path.is_file()]
    excess = sum(stat.st_size for stat, _ in kept) - limit
    removed = 0
    for stat, path in sorted(kept, key=lambda each: each[0].st_mtime_ns):
        if removed >= excess:
            break
        path.unlink(missing_ok=True)
        removed += stat.st_size
    return removed


def bytes_of(variable: str, otherwise: int) -> int:
    """As many bytes as a variable of the environment says in gigabytes; `otherwise` without it.

    Raises:
        AdaCalibError: it is no number.
    """
    value = os.environ.get(variable)
    try:
        return otherwise if value is None else int(float(value) * 1e9)
    except (ValueError, OverflowError):
        raise AdaCalibError(f"{variable} must be a number of gigabytes, it is {value!r}") from None


def _read(path: Path) -> Made | None:
    """What lies at a path, where it is there and as it was written."""
    try:
        head, _, rest = path.read_bytes().partition(b"\n")
        os.utime(path)
        if head.decode() != hashlib.sha256(rest).hexdigest():
            return None
        facts, _, payload = rest.partition(b"\n")
        return Made(json.loads(facts), payload)
    except (OSError, ValueError):
        return None


def _write(path: Path, made: Made) -> int:
    """Keep it; its bytes. Where there is no room or no right to, nothing is kept."""
    rest = json.dumps(finite_json(made.facts)).encode() + b"\n" + made.payload
    try:
        with publish(path) as temporary:
            temporary.write_bytes(hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)
        return path.stat().st_size
    except (OSError, AdaCalibError):
        return 0


@cache
def made_by() -> dict[str, str | None]:
    """The code and the libraries that decide bytes, and the kind of machine."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(f"{file.relative_to(package)}\n".encode() + file.read_bytes())
    machine = {"machine": platform.machine(), "python": platform.python_version()}
    # a host that only scores has not all of them
    versions = {name: version(name) if find_spec(name) else None for name in LIBRARIES}
    return machine | {"code": digest.hexdigest()} | versions
