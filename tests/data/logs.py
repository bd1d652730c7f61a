"""A small log in any form, landed by the generic reader or refused by it."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.core.errors import DataError
from pipeline.data.ingest.file_reader import land_files
from pipeline.data.ingest.mapping import Mapping
from pipeline.data.log_store.day_rows import read_day

HEADER = "ts,item,price,click\n"


def mapping(**keys: Any) -> Mapping:
    """A log of items, prices and clicks with seconds since 1970, with keys replaced."""
    document = {
        "format": "mine",
        "kind": "csv",
        "time_zone": "UTC",
        "time": {"column": "ts", "format": "epoch_s"},
        "columns": {"item": "text", "price": "float64", "click": "int8"},
    }
    return Mapping.model_validate({**document, **keys})


def written(path: Path, text: str | bytes) -> Path:
    """A file with `text`, compressed as its name says."""
    content = text.encode() if isinstance(text, str) else text
    codec = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}.get(path.suffix)
    with pa.output_stream(str(path), compression=codec) as stream:
        stream.write(content)
    return path


def landed(folder: Path, rules: Mapping, *sources: Path) -> dict[str, pa.Table]:
    """The days that the log in `folder` has after the sources were landed."""
    manifest = land_files(folder, rules, sources).manifest
    return {day: read_day(folder, day) for day in manifest.days}


def refusal(folder: Path, rules: Mapping, text: str | bytes, name: str = "log.csv") -> str:
    """The sentence with which a file is refused, from its name on; nothing is landed."""
    return refused(folder, rules, written(folder / name, text))


def refused(folder: Path, rules: Mapping, *sources: Path) -> str:
    """The sentence with which files are refused, from the first name on; nothing is landed."""
    with pytest.raises(DataError) as error:
        land_files(folder / "data", rules, sources)
    assert not (folder / "data").exists()
    assert [path.name for path in folder.glob(".data*")] in ([], [".data.tmp-lock"])
    assert "\n" not in str(error.value)
    return str(error.value).removeprefix(f"{folder}/")


def stored(path: Path, **columns: Any) -> Path:
    """A Parquet file with as many good rows as the columns that are given have."""
    rows = len(next(iter(columns.values())))
    good = {"ts": range(rows), "item": ["a"] * rows, "price": [1.0] * rows, "click": [0] * rows}
    pq.write_table(pa.table({**good, **columns}), path)
    return path


def bytes_in(folder: Path) -> dict[str, bytes]:
    """Relative path → content of every file."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
