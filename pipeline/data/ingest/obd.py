"""Open Bandit: real fashion-ad impressions of 2019-11-24..30, one file for each of three campaigns
(all, men, women) and two policies that chose the items (bts, random).

The data is CC BY 4.0, ZOZO Technologies. Fetched is the sample inside the package obp, 60,000
impressions with 287 clicks; the whole data set of 26 million is read from its files.
"""

import io
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from pipeline.core.errors import DataError
from pipeline.data.ingest.fetched import fetch_members
from pipeline.data.ingest.file_reader import (
    Report,
    equal_files,
    land_rows,
    prefetched,
    read_rows,
)
from pipeline.data.ingest.mapping import Mapping as FileMapping
from pipeline.data.ingest.transform import LogRows
from pipeline.data.log_store.day_rows import local_days, rows_by_day
from pipeline.data.log_store.landing import DEFAULTS, Landed, LandingOptions, LogKind

REQUIREMENT = "obp==0.4.1"
SHA256 = "87dec9caf4283c25ab13036532e0a24566f1c7bdcad1653a8ded43b2f5ef8208"
PARTS = [(policy, campaign) for policy in ("bts", "random") for campaign in ("all", "men", "women")]
ROWS = 60_000

KIND = LogKind(
    format="obd",
    time_zone="UTC",
    schema=pa.schema(
        {
            "campaign": pa.string(),
            "policy": pa.string(),
            "item_id": pa.string(),  # "<campaign>:<item>", because each campaign counts from 0
            "position": pa.int8(),
            "hour": pa.int8(),
            "user_feature_0": pa.string(),
            "user_feature_1": pa.string(),
            "user_feature_2": pa.string(),
            "user_feature_3": pa.string(),
            "propensity_score": pa.float64(),
            "click": pa.int8(),
        }
    ),
    origin={"package": REQUIREMENT, "sha256": SHA256},
)


def days() -> Iterator[tuple[str, pa.Table]]:
    """The seven days and their impressions, fetched from the package index.

    Raises:
        ToolError: the download failed.
    """
    names = {part: "obp/dataset/obd/{0}/{1}/{1}.csv".format(*part) for part in PARTS}
    content = fetch_members(REQUIREMENT, SHA256, list(names.values()))
    yield from days_of({part: content[name] for part, name in names.items()})


def land_files(
    folder: Path,
    sources: Sequence[Path],
    limit_days: int | None = None,
    report: Report = lambda _: None,
    *,
    options: LandingOptions = DEFAULTS,
) -> Landed:
    """Land the days of files of the data set; see `reader.land_files`.

    The rows of a day are in the order of the files. A file's folders name its policy and campaign:
    bts/men/men.csv, also compressed.

    Raises:
        DataError: a file's folders name neither, or it is not of the format; the line is named.
    """
    parts = {path: _part_of(path) for path in sources}
    for position, earlier in equal_files(sources).items():
        raise DataError(f"{sources[position]} holds the same bytes as {earlier}; name one of them")
    rows = prefetched(_rows_of(parts, report))
    kind = replace(KIND, origin={})
    return land_rows(folder, kind, rows, limit_days, options, in_order=False)


def _part_of(path: Path) -> tuple[str, str]:
    """The policy and campaign that the folders of a file name."""
    part = path.resolve().parts[-3:-1]
    if part not in PARTS:
        raise DataError(
            f"{path} lies in no folder POLICY/CAMPAIGN of the data set, such as bts/men/men.csv; "
            f"keep its folders"
        )
    return part[0], part[1]


def _rows_of(
    parts: Mapping[Path, tuple[str, str]], report: Report
) -> Generator[LogRows, None, None]:
    for path, (policy, campaign) in parts.items():
        for rows in read_rows(FILES, [path], report):
            table = _named(rows.table, policy, campaign)
            yield replace(rows, table=table.select(KIND.schema.names).cast(KIND.schema))


def days_of(parts: Mapping[tuple[str, str], bytes]) -> Iterator[tuple[str, pa.Table]]:
    """The UTC days of the log in ascending order, the rows of a day in order of time.

    Args:
        parts: (policy, campaign) → a CSV of the sample with its header; time stamps carry their
            offset from UTC, some without microseconds.
    """
    log = pa.concat_tables(_read(*part, content) for part, content in parts.items())
    log = log.take(pc.sort_indices(log, [("timestamp", "ascending")]))
    numbers = local_days(log["timestamp"], KIND.time_zone)
    yield from rows_by_day(log.select(KIND.schema.names).cast(KIND.schema), numbers)


def _read(policy: str, campaign: str, content: bytes) -> pa.Table:
    types = {
        "timestamp": pa.timestamp("us", "UTC"),
        "item_id": pa.string(),
        **{column.name: column.type for column in KIND.schema if column.name in _TAKEN},
    }
    options = csv.ConvertOptions(column_types=types, include_columns=list(types))
    table = csv.read_csv(io.BytesIO(content), convert_options=options)
    hour = table["timestamp"].cast(pa.int64()).to_numpy() // 3_600_000_000 % 24
    return _named(table, policy, campaign).append_column("hour", pa.array(hour, pa.int64()))


def _named(table: pa.Table, policy: str, campaign: str) -> pa.Table:
    """`table` with the columns policy and campaign, and items distinguished by campaign."""
    item = pc.binary_join_element_wise(campaign, table["item_id"], ":")
    table = table.set_column(table.column_names.index("item_id"), "item_id", item)
    for name, value in {"campaign": campaign, "policy": policy}.items():
        table = table.append_column(name, pa.array([value] * len(table), pa.string()))
    return table


_TAKEN = {"position", "click", "propensity_score", *(f"user_feature_{i}" for i in range(4))}
FILES = FileMapping.model_validate(
    {
        "format": "obd",
        "kind": "csv",
        "time_zone": "UTC",
        "time": {"column": "timestamp", "format": "iso8601"},
        "columns": {
            **{"item_id": "text", "position": "int8", "propensity_score": "float64"},
            **{f"user_feature_{i}": "text" for i in range(4)},
            "click": "int8",
        },
        "made": {"hour": {"rule": "hour"}},
    }
)
