"""Small logs for tests: landed as the product lands them, or written as a stranger would."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.files import sha256_of
from pipeline.data.log_store.day_writer import DayWriter, Part
from pipeline.data.log_store.landing import (
    DEFAULTS,
    Landed,
    LandingOptions,
    LogKind,
    land_parts,
)
from pipeline.data.log_store.manifest import ContentDigest, Manifest
from pipeline.formats.days import day_number
from pipeline.params.sections import LogParams

SCHEMA = pa.schema(
    {"item": pa.string(), "price": pa.float64(), "shown": pa.int64(), "click": pa.int8()}
)
KIND = LogKind("tiny", "UTC", SCHEMA, {"seed": 1})
PRIVATE = LogKind("tiny", "UTC", SCHEMA, {})


def tiny_day(rows: int = 4, **columns: list[Any]) -> pa.Table:
    """A day of `rows` rows that keeps the contract of `tiny_log_params`, with columns replaced."""
    values: dict[str, list[Any]] = {
        "item": ["a", "b", "001", "NA"] * rows,
        "price": [1.0, 2.5, 3.0, 0.5] * rows,
        "shown": [1, 2, 3, 4] * rows,
        "click": [0, 1, 0, 1] * rows,
    }
    return pa.table(
        {n: pa.array(columns.get(n, v[:rows]), SCHEMA.field(n).type) for n, v in values.items()}
    )


def tiny_log_params(**values: Any) -> LogParams:
    """The log section that fits `tiny_day`, with values replaced."""
    section = {
        "format": "tiny",
        "time_zone": "UTC",
        "label": "click",
        "impressions": None,
        "field": ("item",),
        "categorical": ("item",),
        "numeric": ("price",),
        "truth": None,
    }
    return LogParams(**{**section, **values})


def content_sha256(table: pa.Table) -> str:
    """The hash of the content of all rows of a day."""
    digest = ContentDigest()
    digest.add(table)
    return digest.hexdigest()


def land_days(
    folder: Path,
    kind: LogKind,
    fill: Callable[[DayWriter], None],
    options: LandingOptions = DEFAULTS,
) -> Landed:
    """Land the rows that `fill` adds to a writer."""

    def parts(place: Path) -> Iterator[tuple[str, Part]]:
        writer = DayWriter(place, kind.schema)
        fill(writer)
        yield from writer.parts()

    return land_parts(folder, kind, parts, options)


def land_day(folder: Path, kind: LogKind, day: str, table: pa.Table) -> Manifest:
    """Make `table` the rows of a day, however many there were."""

    def fill(stage: DayWriter) -> None:
        stage.add(table, np.full(len(table), day_number(day)))

    return land_days(folder, kind, fill, LandingOptions(allow_shrink=True)).manifest


def write_log(folder: Path, days: dict[str, pa.Table | list[pa.Table]]) -> Path:
    """A log as any other tool might have written it: types and columns as they come."""
    folder.mkdir(parents=True)
    manifest: dict[str, Any] = {"format": "tiny", "time_zone": "UTC", "days": {}}
    for day, tables in days.items():
        parts = tables if isinstance(tables, list) else [tables]
        files = {}
        (folder / f"day={day}").mkdir()
        for number, table in enumerate(parts):
            path = folder / f"day={day}" / f"part-{number}.parquet"
            pq.write_table(table, path)
            files[path.name] = sha256_of(path)
        entry = {"rows": sum(map(len, parts)), "content_sha256": content_sha256(parts[0])}
        manifest["days"][day] = {**entry, "files": files}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file below `folder`, hidden ones too, and its bytes."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def write_clicks(folder: Path) -> None:
    """Two files of clicks, the second with three late events of the first day; and a mapping."""
    (folder / "clicks.yaml").write_text(
        "{format: clicks, kind: csv, time_zone: UTC, time: {column: at, format: iso8601},"
        " columns: {shop: text, click: int8}}\n"
    )
    first = ["2024-04-01T10:00:00Z,a,0\n"] * 1500
    second = ["2024-04-01T23:59:30Z,a,1\n"] * 3 + ["2024-04-02T10:00:00Z,b,0\n"] * 1500
    for day, rows in {"2024-04-01": first, "2024-04-02": second}.items():
        (folder / f"{day}.csv").write_text("at,shop,click\n" + "".join(rows))
