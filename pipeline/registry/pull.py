"""A serving host follows production: a folder that always shows one whole, verified version.

DIR is a symbolic link to a version in `.DIR.versions` beside it. A newer version is fetched and
verified there first; then the link is replaced in one step. The version before stays for readers
that have it open.
"""

import shutil
import tempfile
from pathlib import Path

from pipeline.core.errors import AdaCalibError, ArtifactError, ReleaseError
from pipeline.core.files import MANIFEST, make_folder, publish, sha256_of, verify
from pipeline.registry import commits, tags
from pipeline.registry.promote import Production, described
from pipeline.registry.read_back import bring, home_of
from pipeline.registry.tools import stores
from pipeline.registry.tools.locks import hold

SEEN = "assignment"  # the number of the assignment that was followed last


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
    held, authority = _held(folder)
    store = target.parent.resolve() / f".{target.name}.versions"
    current = described(folder, held)
    _refuse_strange(target, store)
    already = _shows(target, current)
    source = None if already else home_of(folder, authority, remote)
    make_folder(store)
    with hold(store / "lock", "adacalib pull", str(target)):
        _refuse_behind(held, store, authority, target)
        if not already:
            before = target.resolve()
            version = _bring(folder, current, store, source)
            with publish(target) as link:
                link.symlink_to(Path(store.name) / version.name, target_is_directory=True)
            for other in store.iterdir():  # older versions, and what a killed pull left
                if other.is_dir() and other not in (version, before):
                    shutil.rmtree(other)
        with publish(store / SEEN) as seen:
            seen.write_text(f"{held.number}\n")
    return f"{target} {'shows' if already else 'now shows'} {current.version}, production's version"


def _held(folder: Path) -> tuple[tags.Tag, str]:
    """What is in production by its authority, and the authority."""
    commits.check_clone(folder)
    authority = commits.authority(folder)
    tags.fetch_tags(folder, authority)
    history = tags.assignments(folder)
    if not history:
        where = "this clone" if authority == "." else f"git remote {authority!r}"
        raise ReleaseError(f"{where} has nothing in production yet; promote a version first")
    return history[-1], authority


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


def _bring(folder: Path, current: Production, store: Path, remote: stores.Remote | None) -> Path:
    """A folder in the store with the version's bytes, verified."""
    with tempfile.TemporaryDirectory(prefix=".adacalib-", dir=store) as scratch:
        copy = Path(scratch) / "model"
        bring(folder, current.commit, copy, current.model_sha256, remote)
        version = Path(tempfile.mkdtemp(prefix=f"{current.version}-", dir=store))
        version.chmod(0o755)  # whoever serves may be another user
        copy.replace(version)
    return version
