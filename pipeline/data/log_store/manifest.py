"""The manifest of a landed log: which days there are, of which rows, in which files.

The hash of a day's content: of its values, however they are stored.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.errors import ArtifactError, DataError
from pipeline.core.files import read_json, sha256_of, write_json

MANIFEST = "manifest.json"
COMING = ".manifest.json.coming"  # what a landing is about to make of it
PART = "part-0.parquet"
REMEDY = "remove it, and dvc checkout data.dvc brings it back"


@dataclass(frozen=True)
class SourceRows:
    """Rows of a day that came from one file.

    Attributes:
        file: its name, with the folders that it lay in whose names are key=value, days or hours.
        sha256: of its bytes.
        rows: how many.
    """

    file: str
    sha256: str
    rows: int


@dataclass(frozen=True)
class DayEntry:
    """One landed day.

    Attributes:
        rows: number of rows, over all its files.
        content_sha256: `content_sha256` of its rows, whatever wrote the files.
        files: name in the day's folder → sha256 of its bytes.
        dropped: rule → rows of the sources (values, where it names values) that it left out.
        sources: where the rows came from, in their order; empty where no file is known.
        labels: logical day of a landing → responses of the day then; None: not known.
    """

    rows: int
    content_sha256: str
    files: Mapping[str, str]
    dropped: Mapping[str, int] = field(default_factory=dict)
    sources: tuple[SourceRows, ...] = ()
    labels: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """A landed log.

    Attributes:
        format: name of the reader that landed it.
        time_zone: days begin at midnight there.
        days: "YYYY-MM-DD" → its entry, in ascending order.
        columns: name → Arrow type, as the format declares them for every day.
        origin: what the rows were made from (a package and its sha256, a size and a seed); empty
            where the log cannot be brought again by a command.
        reading: how the newest files were read, see `pipeline.encoding.reading`; empty: unknown.
    """

    format: str
    time_zone: str
    days: Mapping[str, DayEntry]
    columns: Mapping[str, str] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)
    reading: Mapping[str, Any] = field(default_factory=dict)

    def entry(self, day: str) -> DayEntry:
        """The entry of `day`.

        Raises:
            DataError: the manifest does not name the day.
        """
        if day not in self.days:
            raise DataError(f"day {day} is not in the manifest, which {self.extent()}; land it")
        return self.days[day]

    def extent(self) -> str:
        """How many days there are, and from when to when, as the end of a sentence."""
        if not self.days:
            return "has no days"
        return f"has {amount(len(self.days), 'day')}: {min(self.days)}..{max(self.days)}"


def amount(number: int, thing: str) -> str:
    """A number of things: "1 day", "1,500 days"."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def read_manifest(path: Path) -> Manifest:
    """The manifest at `path`; where a landing was killed, what is true of the files there.

    A landing says what it will do, then replaces files, then the manifest. So of each day that it
    names either the old entry or the new one is true, and the file's checksum shows which.

    Raises:
        DataError: there is none, or it is not a manifest.
    """
    coming = _coming(path.parent)
    if coming is None:
        return _read(path)
    days = dict(_read(path).days) if path.exists() else {}
    for day, entry in coming.days.items():
        if days.get(day) != entry and _is_there(path.parent, day, entry):
            days[day] = entry
    return replace(coming, days=dict(sorted(days.items())))


def _coming(folder: Path) -> Manifest | None:
    """What a landing that has not ended is about to make of the manifest; None where none runs."""
    try:
        return _read(folder / COMING)
    except DataError:
        if (folder / COMING).exists():
            raise
        return None


def _is_there(folder: Path, day: str, entry: DayEntry) -> bool:
    files = {day_folder(folder, day) / name: sha256 for name, sha256 in entry.files.items()}
    return all(path.exists() and sha256_of(path) == sha256 for path, sha256 in files.items())


def _read(path: Path) -> Manifest:
    if not path.exists():
        raise DataError(
            f"{path} does not exist: there is no data; bring a log with adacalib data FORMAT"
        )
    try:
        document = read_json(path, REMEDY)
        days = dict(sorted(document["days"].items()))
        for day, entry in days.items():
            sources = tuple(SourceRows(**source) for source in entry.get("sources", ()))
            days[day] = DayEntry(**{**entry, "sources": sources})
        return Manifest(**{**document, "days": days})
    except (TypeError, KeyError, AttributeError):
        raise DataError(f"{path} is not the manifest of a log; {REMEDY}") from None
    except ArtifactError as error:
        raise DataError(str(error)) from None


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Publish `manifest` as JSON: same manifest, same bytes."""
    document = asdict(manifest)
    if not manifest.reading:
        del document["reading"]
    for entry in document["days"].values():
        for name in ("dropped", "sources", "labels"):
            if not entry[name]:
                del entry[name]
    write_json(path, document)


def check_listing(folder: Path, manifest: Manifest, days: list[str]) -> None:
    """Refuse a log whose folders and files are not those its manifest names, for `days`.

    Raises:
        DataError: a day folder or a file is there and not in the manifest, or the reverse.
    """
    on_disk = {path.name.removeprefix("day=") for path in folder.glob("day=*")}
    begun = _coming(folder)
    unknown = sorted(on_disk - set(manifest.days) - set(begun.days if begun else ()))
    if unknown:
        raise DataError(
            f"{folder}/day={unknown[0]} is not in {folder / MANIFEST}; land that day, or remove it"
        )
    for day in days:
        found = {p.name for p in day_folder(folder, day).glob("*") if not p.name.startswith(".")}
        named = set(manifest.entry(day).files)
        for name in sorted(found ^ named):
            fault = "is not in the manifest" if name in found else "is missing"
            raise DataError(
                f"{day_folder(folder, day) / name} {fault}; land the day {day} again, or dvc pull"
            )


def holds(folder: Path, manifest: Manifest) -> bool:
    """Whether `folder` holds exactly the files the manifest names, byte for byte."""
    try:
        check_listing(folder, manifest, list(manifest.days))
    except DataError:
        return False
    return all(_is_there(folder, day, entry) for day, entry in manifest.days.items())


def day_folder(folder: Path, day: str) -> Path:
    """Where the files of `day` lie below `folder`."""
    return folder / f"day={day}"


CONTENT_BLOCK = 1 << 17  # rows hashed, and written as one row group, at a time; it decides bytes
LIST_BLOCK = 1 << 12  # the same where a column holds lists, whose rows may be long


def block_rows(schema: pa.Schema) -> int:
    """How many rows of a log with this schema are hashed and written at a time."""
    return LIST_BLOCK if any(map(pa.types.is_list, schema.types)) else CONTENT_BLOCK


class ContentDigest:
    """The content's sha256, of `rows` rows that come in whole blocks, the last one smaller.

    It is of column names, types and values, in order: equal for equal rows. It reads values, not
    storage, so chunks, the Parquet writer and its version do not matter.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._blocks: list[str] = []

    def add(self, table: pa.Table) -> None:
        """Add the next rows.

        Raises:
            DataError: a column has a type other than text, numbers, booleans, time stamps or lists.
        """
        size = block_rows(table.schema)
        for start in range(0, max(len(table), 1), size):
            self._blocks.append(_block_sha256(table.slice(start, size)))
        self.rows += len(table)

    def hexdigest(self) -> str:
        """The sha256 of the only block, or of the hexadecimal sha256s of all of them in order."""
        if len(self._blocks) == 1:
            return self._blocks[0]
        return hashlib.sha256("".join(self._blocks).encode()).hexdigest()


def _block_sha256(table: pa.Table) -> str:
    digest = hashlib.sha256(f"{table.num_rows} rows".encode())
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        if pa.types.is_large_string(column.type):  # as pandas has text
            column = column.cast(pa.string())
        digest.update(f"\n{name}: {type_name(column.type)}\n".encode())
        digest.update(_validity(column))
        for part in _bytes_of(name, column):
            digest.update(part)
    return digest.hexdigest()


def type_name(kind: pa.DataType) -> str:
    """A type's name, the same whatever its lists call their values."""
    return f"list<{kind.value_type}>" if pa.types.is_list(kind) else str(kind)


def _validity(column: pa.Array) -> bytes:
    return np.packbits(column.is_valid().to_numpy(zero_copy_only=False)).tobytes()


def _bytes_of(name: str, column: pa.Array) -> list[bytes | memoryview]:
    """The values of `column` as bytes: little-endian numbers, or lengths and then all within."""
    if pa.types.is_null(column.type):
        return []
    if pa.types.is_list(column.type):
        lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        values = column.flatten()
        return [lengths.astype("<i8").tobytes(), _validity(values), *_bytes_of(name, values)]
    if pa.types.is_string(column.type):
        lengths = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        return [lengths.astype("<i8").tobytes(), _text_of(column.drop_null())]
    if pa.types.is_boolean(column.type) or pa.types.is_timestamp(column.type):
        column = column.cast(pa.uint8() if pa.types.is_boolean(column.type) else pa.int64())
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise DataError(f"column {name} has type {column.type}, which a log's manifest cannot hash")
    numbers = column.fill_null(pa.scalar(0).cast(column.type)).to_numpy(zero_copy_only=False)
    return [numbers.astype(numbers.dtype.newbyteorder("<")).tobytes()]


def _text_of(column: pa.StringArray) -> memoryview:
    """All text of `column`, which has no nulls, in one piece and without a copy."""
    _, offsets, text = column.buffers()
    if not len(column) or text is None:
        return memoryview(b"")
    ends = np.frombuffer(offsets, "<i4")[column.offset : column.offset + len(column) + 1]
    return memoryview(text)[ends[0] : ends[-1]]
