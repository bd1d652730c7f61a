"""DVC's remotes, and what cache and remote hold, object by object, through DVC's own modules."""

import configparser
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.core.errors import ToolError

BATCH = 1000  # objects that are removed in one request


@dataclass(frozen=True)
class Remote:
    """A DVC remote: its name in DVC's configuration, and its address."""

    name: str
    address: str


def dvc_remote(folder: Path, name: str | None = None) -> Remote | None:
    """The DVC remote of a name, or the default one; None if no name is given and none is default.

    Raises:
        ToolError: DVC's configuration cannot be read, or has no remote of that name.
    """
    config = _config(folder)
    found = name or config["core"].get("remote")
    if found and found not in config["remote"]:
        raise ToolError(
            f"there is no DVC remote {found!r}, there are {sorted(config['remote'])}; "
            f"dvc remote add {found} URL, or name another: dvc remote default NAME"
        )
    return Remote(found, str(config["remote"][found]["url"])) if found else None


def cache_folder(folder: Path) -> Path:
    """Where DVC keeps the bytes of a project.

    Raises:
        ToolError: DVC's configuration cannot be read.
    """
    return Path(_config(folder)["cache"].get("dir") or folder.resolve() / ".dvc" / "cache")


def _config(folder: Path) -> Any:
    from dvc.config import Config

    with _answering("DVC's configuration in .dvc/config and .dvc/config.local"):
        return Config(str((folder / ".dvc").resolve()))


def share_cache(folder: Path, owner: Path) -> None:
    """Let a checkout use cache, default remote and private settings of another.

    Raises:
        ToolError: DVC's configuration cannot be read.
    """
    settings = settings_of(owner, dvc_remote(owner), str(cache_folder(owner)))
    with (folder / ".dvc" / "config.local").open("w") as file:
        settings.write(file)


def settings_of(
    folder: Path, remote: Remote | None, cache: str | None
) -> configparser.ConfigParser:
    """What DVC is to know elsewhere: the remotes of today, and credentials, which no commit has.

    The address is absolute: a relative one would count from there. In quotes DVC takes no sign of
    it for a comment or a list.
    """
    found = configparser.ConfigParser(interpolation=None)
    found.read(folder / ".dvc" / "config")
    for section in found.sections():
        if not section.startswith("'remote "):
            found.remove_section(section)
    found.read(folder / ".dvc" / "config.local")
    if remote:
        own = {f"'remote \"{remote.name}\"'": {"url": f"'''{remote.address}'''"}}
        found.read_dict({"core": {"remote": remote.name}, **own})
    if cache:
        found.read_dict({"cache": {"dir": f"'''{cache}'''"}})
    return found


@dataclass(frozen=True)
class Store:
    """A cache or a remote; its objects are called by their md5, lists of folders end in ".dir".

    Attributes:
        name: in words.
        objects: DVC's database of objects.
    """

    name: str
    objects: Any

    def held(self) -> set[str]:
        """Every object."""
        with _answering(self.name):
            return set(self.objects.all()) if self.objects.fs.exists(self.objects.path) else set()

    def has(self, name: str) -> bool:
        """Whether it has an object."""
        with _answering(self.name):
            return bool(self.objects.exists(name))

    def entries(self, folder: str) -> dict[str, str]:
        """The objects of the files of a folder, of which the store has the list, by their paths."""
        with _answering(self.name):
            content = self.objects.fs.cat_file(self.objects.oid_to_path(folder))
            return {entry["relpath"]: entry["md5"] for entry in json.loads(content)}

    def size(self, objects: set[str]) -> int:
        """The bytes of objects."""
        with _answering(self.name):
            infos = self.objects.fs.info([self.objects.oid_to_path(o) for o in sorted(objects)])
        return sum(info["size"] for info in infos)

    def batches(self, objects: set[str]) -> Iterator[list[str]]:
        """Objects in parts, lists of folders first: a folder without its list is sent again."""
        order = sorted(objects, key=lambda name: (not name.endswith(".dir"), name))
        yield from (order[start : start + BATCH] for start in range(0, len(order), BATCH))

    def probe(self) -> None:
        """Write an object, read it and remove it again."""
        with _answering(self.name):
            fs, place = self.objects.fs, self.objects.fs.join(self.objects.path, "adacalib-doctor")
            fs.makedirs(self.objects.path, exist_ok=True)
            try:
                fs.pipe_file(place, b"ok")
                fs.cat_file(place)
            finally:  # a full disk leaves an empty one
                fs.remove(place)

    def remove(self, objects: list[str]) -> None:
        """Remove objects."""
        with _answering(self.name):
            self.objects.fs.remove([self.objects.oid_to_path(o) for o in objects])


@contextmanager
def stores(folder: Path) -> Iterator[list[Store]]:
    """Yield the cache of a project and, where it has one, its default remote.

    Raises:
        ToolError: DVC cannot open them; so do the methods of a store that does not answer.
    """
    from dvc.repo import Repo

    with _answering("DVC"):
        repo = Repo(str(folder))
    with repo:
        found = [Store("the cache", repo.cache.local)]
        if repo.config["core"].get("remote"):
            with _answering("DVC's remote"):
                remote = repo.cloud.get_remote_odb(None, "clean")
            found.append(Store(f"DVC remote {remote.path}", remote))
        yield found


@contextmanager
def _answering(name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # each kind of remote has errors of its own
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ToolError(f"{name} failed: {reason}") from error
