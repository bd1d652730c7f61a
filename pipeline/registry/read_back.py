"""A version's bytes, read back to the last one from where those who follow production read them."""

import tempfile
from pathlib import Path

from pipeline.core.errors import ArtifactError, ReleaseError, ToolError
from pipeline.core.files import MANIFEST, sha256_of, verify
from pipeline.registry.tools import dvc, stores
from pipeline.registry.tools.programs import git


def home_of(folder: Path, authority: str, name: str | None = None) -> stores.Remote | None:
    """The DVC remote that has production's bytes; None, the cache, where it is this clone's own.

    Args:
        folder: a clone of the project.
        authority: the git remote that says what is in production, or ".".
        name: of a DVC remote; None: the default one.

    Raises:
        ReleaseError: there is none, and others follow the authority.
    """
    remote = stores.dvc_remote(folder, name)
    if remote is None and authority != ".":
        raise ReleaseError(
            f"git remote {authority!r} says what is in production, and this clone has no default "
            "DVC remote that says where the bytes are: dvc remote add --default NAME URL, commit "
            f".dvc/config, and try again; or, to promote alone, git remote remove {authority}"
        )
    return remote


def push_and_read_back(
    folder: Path, commit: str, model_sha256: str, remote: stores.Remote | None
) -> str:
    """Bring data and model where others find them, and prove it; says where that is.

    Raises:
        AdaCalibError: DVC failed, or as `bring`.
    """
    if remote:
        dvc.push(folder)
    read_back(folder, commit, model_sha256, remote)
    if remote:
        return f"its bytes were read back from DVC remote {remote.address}"
    return "its bytes are in this folder's DVC cache alone: DVC has no default remote"


def read_back(folder: Path, commit: str, model_sha256: str, remote: stores.Remote | None) -> None:
    """Refuse a version that others could not fetch, or whose bytes are not the judged ones.

    Raises:
        AdaCalibError: as `bring`.
    """
    with tempfile.TemporaryDirectory(prefix="adacalib-") as place:
        bring(folder, commit, Path(place) / "model", model_sha256, remote)


def bring(
    folder: Path, commit: str, copy: Path, model_sha256: str, remote: stores.Remote | None
) -> None:
    """Bring the model of a commit into a new folder, and hold it against the one that was judged.

    Args:
        folder: a clone of the project.
        commit: its full name.
        copy: the folder to make.
        model_sha256: of the manifest that was judged.
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
    try:
        dvc.fetch(folder, commit, copy, remote=remote, cached=remote is None)
    except ToolError as error:
        raise ToolError(
            f"{error}; nothing was changed: remove {_place(_listed(folder, commit))} there, if it "
            f"is there, as DVC sends nothing of a folder while a store has its list, and {send}"
        ) from None
    try:
        verify(copy)
    except ArtifactError as error:
        what = str(error).partition(";")[0].replace(f"{copy}/", "")
        where = f"DVC remote {remote.address}" if remote else "DVC's cache"
        objects = " and ".join(_objects(folder, commit, what.partition(" ")[0]))
        raise ArtifactError(
            f"{what} at {where}; nothing was changed: remove {objects} there, and {send}"
        ) from None
    if sha256_of(copy / MANIFEST) != model_sha256:
        raise ReleaseError("DVC gives another model than the one that was judged; run dvc repro")


def _listed(folder: Path, commit: str) -> str:
    return str(dvc.model_md5(git(folder, "show", f"{commit}:dvc.lock").output))


def _objects(folder: Path, commit: str, file: str) -> list[str]:
    """Where a store has a file of a commit's model, if it is known, and the list of its files."""
    listed = _listed(folder, commit)
    with stores.stores(folder) as found:
        held = next((store.entries(listed) for store in found if store.has(listed)), {})
    return [_place(md5) for md5 in (held.get(file), listed) if md5]


def _place(md5: str) -> str:
    return f"files/md5/{md5[:2]}/{md5[2:]}"
