"""A version's bytes, read back to the last one from where those who follow production read them."""

import tempfile
from pathlib import Path

from pipeline.core.errors import ArtifactError, ReleaseError, ToolError
from pipeline.core.files import MANIFEST, sha256_of, verify
from pipeline.registry.tools import dvc, stores
from pipeline.registry.tools.programs import git


def push_and_read_back(
    folder: Path, commit: str, model_sha256: str, remote: stores.Remote | None
) -> str:
    """Bring data and model where others find them, and prove it; says where that is.

    Raises:
        ToolError: DVC failed, or the remote lacks bytes.
        ArtifactError: bytes there are damaged.
        ReleaseError: the model there is another.
    """
    if remote is None:
        read_back(folder, commit, model_sha256, remote)
        return "its bytes are in this folder's DVC cache alone: DVC has no default remote"
    dvc.push(folder)
    try:
        read_back(folder, commit, model_sha256, remote)
    except ToolError as error:
        listed = _place(str(dvc.model_md5((folder / "dvc.lock").read_text())))
        raise ToolError(
            f"{error}; DVC sends nothing of a folder again while the remote has its list: "
            f"remove {listed} there and promote again"
        ) from None
    except ArtifactError as error:
        raise ArtifactError(f"{error} and promote again") from None
    return f"its bytes were read back from DVC remote {remote.address}"


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
        ArtifactError: a file there is damaged, missing or added; the sentence names store and
            object, and what is to be removed there.
        ReleaseError: it is another model.
    """
    dvc.fetch(folder, commit, copy, remote=remote, cached=remote is None)
    try:
        verify(copy)
    except ArtifactError as error:
        what = str(error).partition(";")[0].replace(f"{copy}/", "")
        where = f"DVC remote {remote.address}" if remote else "DVC's cache"
        objects = " and ".join(_objects(folder, commit, what.partition(" ")[0]))
        raise ArtifactError(f"{what} at {where}: remove {objects} there") from None
    if sha256_of(copy / MANIFEST) != model_sha256:
        raise ReleaseError("DVC gives another model than the one that was judged; run dvc repro")


def how_to_send(folder: Path, commit: str) -> str:
    """What brings a version's bytes to DVC's remote again, whatever stands in the worktree."""
    return (
        f"remove {_place(_listed(folder, commit))} there, if it is there, as DVC sends nothing of "
        "a folder while the remote has its list, and send the bytes from a clone that has them: "
        f"git restore --source {commit[:10]} dvc.lock data.dvc, dvc push, "
        "git restore dvc.lock data.dvc"
    )


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
