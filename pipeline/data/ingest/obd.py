"""Open Bandit: real fashion-ad impressions of 2019-11-24..30, one file for each of three campaigns
(all, men, women) and two policies that chose the items (bts, random).

The data is CC BY 4.0, ZOZO Technologies. Item ids are "<campaign>:<item>", as each campaign counts
from 0. Fetched is the sample inside the package obp, 60,000 impressions with 287 clicks; the whole
data set of 26 million is read from its files.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.errors import DataError
from pipeline.data.ingest.fetched import days_in, fetched
from pipeline.data.ingest.file_reader import land_rows, read_rows, refuse_equal
from pipeline.data.ingest.mapping import fetched_mapping
from pipeline.data.ingest.records import Report
from pipeline.data.ingest.transform import LogRows
from pipeline.data.log_store.landing import DEFAULTS, Landed, LandingOptions

REQUIREMENT = "obp==0.4.1"
SHA256 = "87dec9caf4283c25ab13036532e0a24566f1c7bdcad1653a8ded43b2f5ef8208"
PARTS = [(policy, campaign) for policy in ("bts", "random") for campaign in ("all", "men", "women")]
ROWS = 60_000

FILES = fetched_mapping("obd")
FEATURES = [f"user_feature_{number}" for number in range(4)]
COLUMNS = ("item_id", "position", "hour", *FEATURES, "propensity_score", "click")
PART = [pa.field(name, pa.string()) for name in ("campaign", "policy")]  # of a file's folders
KIND = replace(
    FILES.log_kind(),
    schema=pa.schema([*PART, *map(FILES.schema.field, COLUMNS)]),
    origin={"package": REQUIREMENT, "sha256": SHA256},
    reading={},
)


def days() -> Iterator[tuple[str, pa.Table]]:
    """The seven days and their impressions, fetched from the package index.

    Raises:
        ToolError: the download failed.
    """
    with fetched(REQUIREMENT, SHA256) as content:
        yield from days_of(
            [content / f"obp/dataset/obd/{policy}/{name}/{name}.csv" for policy, name in PARTS]
        )


def land_files(folder: Path, sources: Sequence[Path], options: LandingOptions = DEFAULTS) -> Landed:
    """Land the days of files of the data set; see `reader.land_files`.

    The rows of a day are in the order of the files. A file's folders name its policy and campaign:
    bts/men/men.csv, also compressed.

    Raises:
        DataError: a file's folders name neither, or it is not of the format; the line is named.
    """
    refuse_equal(sources)
    rows, kind = _rows_of(sources, options.report), replace(KIND, origin={})
    return land_rows(folder, kind, rows, options, in_order=False)


def _rows_of(paths: Sequence[Path], report: Report) -> Generator[LogRows, None, None]:
    """Their columns are those of KIND and `timestamp`; folders name policy and campaign."""
    parts = {path: path.resolve().parts[-3:-1] for path in paths}
    for path, part in parts.items():
        if part not in PARTS:
            raise DataError(
                f"{path} lies in no folder POLICY/CAMPAIGN of the data set, such as "
                "bts/men/men.csv; keep its folders"
            )
    for path, (policy, campaign) in parts.items():
        for rows in read_rows(FILES, [path], LandingOptions(report=report)):
            item = pc.binary_join_element_wise(campaign, rows.table["item_id"], ":")
            table = rows.table.drop_columns("item_id").append_column("item_id", item)
            for name, value in {"campaign": campaign, "policy": policy}.items():
                table = table.append_column(name, pa.repeat(value, len(table)))
            yield replace(rows, table=table)


def days_of(paths: Sequence[Path]) -> Iterator[tuple[str, pa.Table]]:
    """The UTC days of the log in ascending order, the rows of a day in order of time.

    Args:
        paths: of the sample, whose stamps are all in UTC, some without microseconds.
    """
    for day, table in days_in(_rows_of(paths, lambda _: None)):
        yield day, table.sort_by("timestamp").select(KIND.schema.names)  # as text, which is as time
