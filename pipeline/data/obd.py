"""Open Bandit: 60,000 real fashion-ad impressions of 2019-11-24..30 with 287 clicks.

Source: the sample inside the package obp (the data is CC BY 4.0, ZOZO Technologies): three
campaigns (all, men, women) times two policies that chose the items (bts, random).
"""

import io
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from pipeline.data.days import local_days, rows_by_day
from pipeline.data.fetch import fetch_members
from pipeline.data.landing import LogKind

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
    item = pc.binary_join_element_wise(campaign, table["item_id"], ":")
    hour = table["timestamp"].cast(pa.int64()).to_numpy() // 3_600_000_000 % 24
    table = table.set_column(table.column_names.index("item_id"), "item_id", item)
    for name, value in {"campaign": campaign, "policy": policy}.items():
        table = table.append_column(name, pa.array([value] * len(table), pa.string()))
    return table.append_column("hour", pa.array(hour, pa.int64()))


_TAKEN = {"position", "click", "propensity_score", *(f"user_feature_{i}" for i in range(4))}
