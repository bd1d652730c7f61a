"""Ali-CCP: impressions in sample_skeleton files, most of their features in common_features files.

Lines of a skeleton are sample_id,click,conversion,common_feature_index,feature_num,feature_list, of
the common features common_feature_index,feature_num,feature_list; no header, no time. A list is
feature (^A feature)*, a feature is field ^B id ^C value; ^A, ^B, ^C are bytes 1, 2, 3. Two tasks:
`ali-ccp` (every impression, response click) and `ali-ccp-cvr` (clicked ones, response conversion).

The files have no time, so as in the paper the training file is split 1:1: by a hash of the common
index, which is one visit of a user, its rows are the days 1970-01-01 to -10, of which five are for
training and five for calibration. The rows of the test file are the day 1970-01-11.

The common features are larger than memory. Both files are cut by the hash of the common index into
128 parts on the disk and joined part by part: in memory are a part of either file, a block of lines
and the rows that wait for their days.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from duckdb import DuckDBPyConnection
from pyarrow import dataset

from pipeline.core.errors import DataError
from pipeline.core.files import scratch_folder, sha256_of
from pipeline.data.ingest.file_reader import refuse_equal
from pipeline.data.ingest.mapping import Mapping
from pipeline.data.ingest.records import LogFile, Report
from pipeline.data.log_store.day_writer import DayWriter, Part
from pipeline.data.log_store.engine import engine
from pipeline.data.log_store.landing import DEFAULTS, Landed, LandingOptions, LogKind, land_parts

OF_PART, OF_DAY = "adacalib-first--", "adacalib-second-"  # 16 bytes each, as SipHash wants


def shares(text: pa.StringArray, key: str, parts: int) -> np.ndarray:
    """Which of equal shares of all texts each text is in, on every machine: int64 [n] from 0.

    Args:
        text: [n]; null is as "".
        key: of the hash; under another one the shares are independent of these.
        parts: how many shares; at most 2^31.
    """
    from pandas.util import hash_array  # here, for every landing loads this module

    texts = text.fill_null("").to_numpy(zero_copy_only=False)
    high = hash_array(texts, hash_key=key, categorize=False) >> np.uint64(32)
    return ((high * np.uint64(parts)) >> np.uint64(32)).astype(np.int64)


FORMATS = ("ali-ccp", "ali-ccp-cvr")
TRAIN_DAYS = 10  # numbers 0 to 9; the test file's day comes next
PARTS = 128  # as many files are open at a time; some systems allow 256
BLOCK = 2048  # lines read at a time; one of common features is many kB long
JOINED = 32 << 20  # bytes of common features that are repeated, one time for each row, at a time
NAME = re.compile(r"(sample_skeleton|common_features)_(train|test)")
KEY = "common_feature_index"
LINES = {
    "common_features": (KEY, "feature_num", "feature_list"),
    "sample_skeleton": ("sample_id", "click", "conversion", KEY, "feature_num", "feature_list"),
}

ONE = (
    *("101", "121", "122", "124", "125", "126", "127", "128", "129"),  # the user
    *("205", "206", "207", "216"),  # the item
    *("508", "509", "702", "853"),  # how often user and item met
    "301",  # the place
)
MANY = ("109_14", "110_14", "127_14", "150_14", "210")
MEASURED = ("508", "509", "702", "853", *MANY)  # their values are weights, all others are 1
UNKNOWN = "values of fields that are not known"
AGAIN = "values of fields that have one already"
SCHEMA = pa.schema(
    {
        **dict.fromkeys(ONE, pa.string()),
        **{f"{name}_value": pa.float32() for name in ONE if name in MEASURED},
        **dict.fromkeys(MANY, pa.list_(pa.string())),
        **{f"{name}_value": pa.list_(pa.float32()) for name in MANY},
    }
)
FEATURE = (
    r"[^\x01-\x03]+\x02[^\x01-\x03]+\x03"
    r"[+-]?\d{1,9}(\.\d*)?([eE][+-]?[012]?\d)?"  # within a float32
)
LIST = rf"^({FEATURE}(\x01{FEATURE})*)?$"


def _expanded(rows: str) -> str:
    """The query of a relation's lists as columns: a field of ONE that is not in a row is null, one
    of MANY an empty list; the first value stays.

    It has `single`, too, the fields of ONE, and `unknown`, how many features have no known one.
    """
    columns = []
    for name in SCHEMA.names:
        of, found = name.removesuffix("_value"), "weights" if name.endswith("_value") else "ids"
        one = f"{found}[list_position(fields, '{of}')]"
        many = f"list_where({found}, list_transform(fields, lambda f: f = '{of}'))"
        columns.append(f'{one if of in ONE else many} AS "{name}"')
    return f"""
    SELECT *, {", ".join(columns)}, list_filter(fields, lambda f: f IN {ONE}) AS single,
        len(list_filter(fields, lambda f: f NOT IN {(*ONE, *MANY)})) AS unknown
    FROM (
        SELECT *, replace(replace(feature_list, chr(2), chr(1)), chr(3), chr(1)) AS parts,
            string_split(parts, chr(1)) AS found, len(found) // 3 * 3 AS last,
            found[1:last:3] AS fields, found[2:last:3] AS ids,
            CAST(found[3:last:3] AS FLOAT[]) AS weights
        FROM {rows}
    )
    """


def _of_both(name: str) -> str:
    """A column of both sides of the join: the row's own value or values before the common ones."""
    both = "coalesce" if name.removesuffix("_value") in ONE else "list_concat"
    return f'{both}(own."{name}", common."{name}") AS "{name}"'


TOGETHER = f"""
SELECT own.sample_id, own.{KEY}, own.day, {", ".join(map(_of_both, SCHEMA.names))},
    CAST(own.click AS TINYINT) AS click, CAST(own.conversion AS TINYINT) AS conversion,
    own.unknown + common.unknown AS "{UNKNOWN}",
    list_concat(own.single, common.single) AS singles,
    CAST(len(singles) - list_unique(singles) AS BIGINT) AS "{AGAIN}"
FROM ({_expanded("rows")}) AS own POSITIONAL JOIN common
"""


def kind(log_format: str) -> LogKind:
    """What all days have in common."""
    labels = ("click", "conversion") if log_format == "ali-ccp" else ("conversion",)
    ids = [pa.field(name, pa.string()) for name in ("sample_id", KEY)]
    schema = pa.schema([*ids, *SCHEMA, *(pa.field(name, pa.int8()) for name in labels)])
    return LogKind(log_format, "UTC", schema, {})


def land_files(
    folder: Path, log_format: str, sources: Sequence[Path], options: LandingOptions = DEFAULTS
) -> Landed:
    """Land the days of `sources` in `folder`.

    Rows with a conversion and no click, and rows whose common features are in no file, are dropped
    and counted. The rows of a day are in the order of the 128 parts, then of the files.

    Args:
        folder: the log's folder.
        log_format: one of FORMATS.
        sources: sample_skeleton_train and common_features_train, and the same of test, with any
            ending; each may be several files.
        options: see `land_parts`.

    Raises:
        DataError: a file is missing or is not of the format; it is named, with the line.
    """
    files, log, report = _files_of(sources), kind(log_format), options.report
    first: dict[str, Path] = {}
    for path in () if options.event_id else filter(Path.is_file, sources):
        refuse_equal(path, sha256_of(path), first)

    def parts(place: Path) -> Iterator[tuple[str, Part]]:
        writer = DayWriter(place / "days", log.schema)
        for name in sorted({name for _, name in files}, reverse=True):
            paths = [path for what in LINES for path in files[what, name] if path.is_file()]
            size = sum(path.stat().st_size for path in paths)
            with scratch_folder(parent=place) as lines, engine() as database:
                cut = [
                    _cut(lines / what, files[what, name], columns, report)
                    for what, columns in LINES.items()
                ]
                for number in range(PARTS):
                    known, rows = (d.to_table(filter=pc.field("part") == number) for d in cut)
                    rows = _with_days(rows, writer, test=name == "test")
                    _join(database, rows, _once(known), writer)
                    report((size - size // 2) // PARTS)
        yield from writer.parts()

    return land_parts(folder, log, parts, options)


def _files_of(sources: Sequence[Path]) -> dict[tuple[str, str], list[Path]]:
    """The files by what they hold, and of which part of the log: train or test."""
    files: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for path in sources:
        found = NAME.search(path.name)
        if found is None:
            raise DataError(
                f"{path} is named neither sample_skeleton_ nor common_features_, train or test"
            )
        files[found[1], found[2]].append(path)
    for what, name in product(LINES, {name for _, name in files}):
        if (what, name) not in files:
            raise DataError(f"{what}_{name} is not among the files; name it beside the others")
    return files


def _cut(
    folder: Path, paths: Sequence[Path], columns: Sequence[str], report: Report
) -> dataset.Dataset:
    """The lines of files on the disk, in parts by the hash of KEY, in their order."""
    schema = pa.schema({**dict.fromkeys(columns, pa.string()), "part": pa.int64()})
    parts = dataset.partitioning(pa.schema([schema.field("part")]))
    dataset.write_dataset(
        _batches(paths, columns, report),
        folder,
        schema=schema,
        format="feather",
        partitioning=parts,
        max_open_files=PARTS,
        preserve_order=True,
        file_options=dataset.IpcFileFormat().make_write_options(compression="lz4"),
    )
    return dataset.dataset(folder, schema=schema, format="feather", partitioning=parts)


def _batches(
    paths: Sequence[Path], columns: Sequence[str], report: Report
) -> Iterator[pa.RecordBatch]:
    """The lines of files; half of the bytes are reported, the other half is the join."""
    lines = Mapping.model_validate(
        {
            **{"format": "ali-ccp", "kind": "csv", "time_zone": "UTC", "row_blocks": 1},
            **{"positions": columns, "quote": None, "columns": dict.fromkeys(columns, "text")},
        }
    )
    for path in paths:
        file = LogFile(path, lines)
        for table in file.worked(_checked, lambda size: report(size // 2), rows=BLOCK):
            part = shares(table[KEY].combine_chunks(), OF_PART, PARTS)
            yield from table.append_column("part", pa.array(part)).to_batches()


def _checked(table: pa.Table) -> pa.Table:
    """`table`, whose lines are of the format."""
    for name in {"click", "conversion"} & {*table.column_names}:
        if not pc.all(pc.is_in(table[name], value_set=pa.array(["0", "1"]))).as_py():
            raise DataError(f"{name} is neither 0 nor 1")
    if "click" not in table.column_names and pc.any(pc.equal(table[KEY], "")).as_py():
        raise DataError(f"{KEY} is empty")
    lists = table["feature_list"]
    held = pc.add(pc.count_substring(lists, "\x01"), 1)
    held = pc.if_else(pc.equal(lists, ""), 0, held).to_numpy()
    said = table["feature_num"].cast(pa.int64()).to_numpy()
    if (held != said).any():  # told of one line alone
        raise DataError(f"the line says {said[0]} features, its list holds {held[0]}")
    if not pc.all(pc.match_substring_regex(lists, LIST)).as_py():
        raise DataError(
            "a feature is not spelled field ^B id ^C value, where each is there and the value is "
            "a number"
        )
    return table


def _once(common: pa.Table) -> pa.Table:
    """The lines of a part, each index once.

    Raises:
        DataError: an index is there twice, with different features.
    """
    known = common.group_by([KEY, "feature_list"], use_threads=False).aggregate([])
    counted = pc.value_counts(known[KEY])
    for index in counted.filter(pc.greater(counted.field("counts"), 1)).field("values"):
        raise DataError(
            f"common features: index {index} is there twice, with different features; remove one"
        )
    return known


def _with_days(rows: pa.Table, writer: DayWriter, *, test: bool) -> pa.Table:
    """The rows that the task has, with their days; the others are counted."""
    day = shares(rows[KEY].combine_chunks(), OF_DAY, TRAIN_DAYS)
    if test:
        day[:] = TRAIN_DAYS
    click, conversion = (rows[name].to_numpy() == "1" for name in ("click", "conversion"))
    wanted = np.ones(len(rows), bool)
    rules = {"conversion without click": ~click & conversion}
    if "click" not in writer.schema.names:
        rules["click is not 1"] = ~click
    for rule, breaks in rules.items():
        writer.drop(rule, day[wanted & breaks])
        wanted &= ~breaks
    return rows.append_column("day", pa.array(day)).filter(pa.array(wanted))


def _join(database: DuckDBPyConnection, rows: pa.Table, known: pa.Table, writer: DayWriter) -> None:
    """Write rows with the common features of their visits, some at a time."""
    place = pc.index_in(rows[KEY].combine_chunks(), value_set=known[KEY].combine_chunks())
    alone = pc.is_null(place)
    writer.drop("no common features", rows.filter(alone)["day"].to_numpy())
    rows, place = rows.filter(pc.invert(alone)), place.drop_null()
    database.register("known", known)
    common = database.sql(_expanded("known")).to_arrow_table()
    step = max(1, JOINED * max(len(known), 1) // max(common.nbytes, 1))
    for start in range(0, len(rows), step):
        database.register("rows", rows.slice(start, step))
        database.register("common", common.take(place.slice(start, step)))
        found = database.sql(TOGETHER).to_arrow_table()
        day = found["day"].to_numpy()
        for rule in (UNKNOWN, AGAIN):
            writer.drop(rule, np.repeat(day, found[rule].to_numpy()))
        writer.add(found.select(writer.schema.names).cast(writer.schema), day)
