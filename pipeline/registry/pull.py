"""A version's bytes: proved where others read them, pinned beside a run, shown to a serving host.

A serving host follows production by a folder that always shows one whole, verified version: DIR is
a symbolic link to a version in `.DIR.versions` beside it. A newer version is fetched and verified
there first; then the link is replaced in one step. The version before stays for readers that have
it open.
"""

import shutil
import time
from dataclasses import replace
from pathlib import Path

from pipeline.core.errors import AdaCalibError, ArtifactError, ReleaseError
from pipeline.core.files import (
    MANIFEST,
    file_sums,
    make_folder,
    publish,
    scratch_folder,
    sha256_of,
    verify,
)
from pipeline.formats import champion
from pipeline.registry import commits, tags
from pipeline.registry.tools import dvc, stores
from pipeline.registry.tools.programs import committed, hold
from pipeline.registry.verdicts import Production, described, gate_of, production

BIN_TABLES = Path("artifacts/tables")
SEEN = "assignment"  # the number of the assignment that was followed last


def home_of(folder: Path, name: str | None = None) -> stores.Remote | None:
    """The DVC remote that has production's bytes; None, the cache, where it is this clone's own.

    Args:
        folder: a clone of the project.
        name: of a DVC remote; None: the default one.

    Raises:
        ReleaseError: there is none, and others follow the git remote.
    """
    remote, authority = stores.dvc_remote(folder, name), commits.authority(folder)
    if remote is None and authority != ".":
        raise ReleaseError(
            f"git remote {authority!r} says what is in production, and this clone has no default "
            "DVC remote that says where the bytes are: dvc remote add --default NAME URL, commit "
            f".dvc/config, and try again; or, to promote alone, git remote remove {authority}"
        )
    return remote


def push_and_read_back(folder: Path, commit: str) -> str:
    """Bring data and model where others find them, and prove it; says where that is.

    Raises:
        AdaCalibError: DVC failed, or as `home_of` and `bring`.
    """
    remote = home_of(folder)
    if remote:
        dvc.push(folder)
    read_back(folder, commit, remote)
    if remote:
        return f"its bytes were read back from DVC remote {remote.address}"
    return "its bytes are in this folder's DVC cache alone: DVC has no default remote"


def read_back(folder: Path, commit: str, remote: stores.Remote | None) -> None:
    """Refuse a version that others could not fetch, or whose bytes are not the judged ones.

    Raises:
        AdaCalibError: as `bring`.
    """
    with scratch_folder() as place:
        bring(folder, commit, place / "model", remote)


def bring(folder: Path, commit: str, copy: Path, remote: stores.Remote | None) -> None:
    """Bring the model of a commit into a new folder, and hold it against its verdict's.

    Args:
        folder: a clone of the project.
        commit: its full name.
        copy: the folder to make.
        remote: where its bytes are; None: in the cache.

    Raises:
        ToolError: it cannot be had from there.
        ArtifactError: a file there is damaged, missing or added.
            Both sentences name store and object, and how the bytes get there again.
        ReleaseError: it is another model.
    """
    send = (
        "send the bytes from a clone that has them: git restore --source "
        f"{commit[:10]} dvc.lock data.dvc, dvc push, git restore dvc.lock data.dvc"
    )
    listed = _place(str(dvc.model_md5(folder, commit)))
    lost = (
        f"nothing was changed: see that the store is mounted, remove {listed} there, if it is "
        f"there, as DVC sends nothing of a folder while a store has its list, and {send}"
    )
    dvc.fetch(folder, commit, copy, only=remote, remedy=lost)
    try:
        verify(copy)
    except ArtifactError as error:
        what = str(error).partition(";")[0].replace(f"{copy}/", "")
        where = f"DVC remote {remote.address}" if remote else "DVC's cache"
        objects = " and ".join(_objects(folder, commit, what.partition(" ")[0]))
        raise ArtifactError(
            f"{what} at {where}; nothing was changed: remove {objects} there, and {send}"
        ) from None
    if sha256_of(copy / MANIFEST) != gate_of(folder, commit)["model_sha256"]:
        raise ReleaseError("DVC gives another model than the one that was judged; run dvc repro")


def _objects(folder: Path, commit: str, file: str) -> list[str]:
    """Where a store has a file of a commit's model, if it is known, and the list of its files."""
    listed = str(dvc.model_md5(folder, commit))
    with stores.stores(folder) as found:
        held = next((store.entries(listed) for store in found if store.has(listed)), {})
    return [_place(md5) for md5 in (held.get(file), listed) if md5]


def _place(md5: str) -> str:
    return f"files/md5/{md5[:2]}/{md5[2:]}"


def pin_champion(root: Path) -> str:
    """Pin what is in production now as the champion of the next run; a sentence says which.

    The registry is asked afresh. Promotion and rollback themselves never move the pin, so nothing
    goes stale by being promoted: whoever starts a run for a new day pins first.

    Raises:
        ReleaseError: the git remote that says what is in production does not answer.
        ArtifactError: DVC gives other bytes than the version's.
        ToolError: git or dvc failed.
    """
    tags.fetch_tags(root)
    current = production(root)
    if current is None:
        champion.write_pin(root / champion.PIN, None)
        return "nothing is in production, so there is no champion"
    pin = champion.Pin(current.version, current.commit, current.last_day, current.model_sha256, {})
    held = _pinned(root)
    if not (held and replace(held, tables={}) == pin):
        tables = _bring_pinned(root, pin)
        champion.write_pin(root / champion.PIN, replace(pin, tables=tables))
        champion.pinned(root / champion.PIN)
    return f"{pin.version} is the champion"


def fetch_champion(root: Path) -> str:
    """Bring the bytes that champion.json names, if they are not here; a sentence says which.

    Raises:
        ArtifactError: champion.json is damaged, or DVC gives other bytes than it names.
        ToolError: git or dvc failed.
    """
    champion.start_pin(root)
    pin = champion.read_pin(root / champion.PIN)
    if pin is None:
        return f"{champion.PIN} pins nothing, so there is no champion"
    if not _pinned(root):
        _bring_pinned(root, pin)
        champion.pinned(root / champion.PIN)
    return f"{pin.version} is the champion"


def _pinned(root: Path) -> champion.Pin | None:
    """The pin whose bytes are here; None also where champion.json is damaged."""
    try:
        return champion.pinned(root / champion.PIN)
    except ArtifactError:
        return None


def _bring_pinned(root: Path, pin: champion.Pin) -> dict[str, str]:
    """Put a version's model and bin tables into the champion's folder; the tables' sums come back.

    They come from DVC's cache where it has them, else from the remote. A version whose commit names
    no tables has none.
    """
    with publish(root / champion.MODEL) as model, publish(root / champion.TABLES) as tables:
        dvc.fetch(root, pin.commit, model)
        if f"path: {BIN_TABLES}\n" in (committed(root, pin.commit, "dvc.lock") or ""):
            dvc.fetch(root, pin.commit, tables, path=BIN_TABLES)
        else:
            tables.mkdir()
        return file_sums(tables)


def pull(folder: Path, target: Path, remote: str | None = None) -> str:
    """Make a folder show what is in production; one sentence says what was done.

    Nothing is done where it shows that already. Every byte comes from DVC's remote and is verified
    before anybody sees it. Only an assignment that is newer than the one followed before is
    followed, so an older version comes by a rollback of the registry alone.

    Args:
        folder: a clone of the project; it needs no cache.
        target: the folder, for example of `adacalib serve --model`; made where it is missing.
        remote: name of a DVC remote; None: the default one.

    Raises:
        ReleaseError: nothing is in production, nobody says where its bytes are, the git remote does
            not answer or is behind, or `target` is somebody else's.
        ArtifactError: the remote gives other bytes than the ones that were judged, or a file stands
            where the folder around `target` would be.
        ToolError: the remote lacks bytes, another pull is at work, or git or dvc is missing.
    """
    tags.fetch_tags(folder)
    authority, history = commits.authority(folder), tags.assignments(folder)
    if not history:
        where = "this clone" if authority == "." else f"git remote {authority!r}"
        raise ReleaseError(f"{where} has nothing in production yet; promote a version first")
    held = history[-1]
    store = target.parent.resolve() / f".{target.name}.versions"
    current = described(folder, held)
    _refuse_strange(target, store)
    already = _shows(target, current)
    source = None if already else home_of(folder, remote)
    make_folder(store)
    with hold(store / "lock", "adacalib pull", str(target)):
        _refuse_behind(held, store, authority, target)
        if not already:
            before = target.resolve()
            version = store / f"{current.version}-{time.time_ns()}"
            with publish(version) as copy:
                bring(folder, current.commit, copy, source)
            with publish(target) as link:
                link.symlink_to(Path(store.name) / version.name, target_is_directory=True)
            for other in store.iterdir():  # older versions, and what a killed pull left
                if other.is_dir() and other not in (version, before):
                    shutil.rmtree(other)
        with publish(store / SEEN) as seen:
            seen.write_text(f"{held.number}\n")
    return f"{target} {'shows' if already else 'now shows'} {current.version}, production's version"


def _refuse_strange(target: Path, store: Path) -> None:
    ours = target.is_symlink() and target.parent.resolve() / target.readlink().parent == store
    if not ours and (target.is_symlink() or target.exists()):
        raise ReleaseError(
            f"{target} was not made by adacalib pull; choose another folder, or move it away"
        )


def _refuse_behind(held: tags.Tag, store: Path, authority: str, target: Path) -> None:
    note = store / SEEN
    seen = note.read_text().strip() if note.exists() else "0"
    if not seen.isdecimal():
        raise ArtifactError(
            f"{note} does not say which assignment {target} followed last; remove it and pull again"
        )
    if held.number < int(seen):
        raise ReleaseError(
            f"git remote {authority!r} is behind: {held.version} is its assignment {held.number}, "
            f"{target} followed number {seen} already and stays as it is; bring the remote's tags "
            "up to date"
        )


def _shows(target: Path, current: Production) -> bool:
    try:
        verify(target)
    except AdaCalibError:
        return False
    return sha256_of(target / MANIFEST) == current.model_sha256
