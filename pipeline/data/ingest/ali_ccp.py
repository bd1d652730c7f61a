"""Ali-CCP: impressions in sample_skeleton files, most of their features in common_features files.

Lines of a skeleton are sample_id,click,conversion,common_feature_index,feature_num,feature_list, of
the common features common_feature_index,feature_num,feature_list; no header, no time. Two tasks:
`ali-ccp` (every impression, response click) and `ali-ccp-cvr` (clicked ones, response conversion).

The files have no time, so as in the paper the training file is split 1:1: by a hash of the common
index, which is one visit of a user, its rows are the days 1970-01-01 to -10, of which five are for
training and five for calibration. The rows of the test file are the day 1970-01-11.

The common features are larger than memory. Both files are cut by the hash of the common index into
128 parts on the disk and joined part by part: in memory are a part of the common features, a block
of each file and the rows that wait for their days.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.errors import DataError
from pipeline.data.ingest import ali_ccp_features as features
from pipeline.data.ingest.ali_ccp_features import PARTS, Partitions
from pipeline.data.ingest.file_reader import Report, equal_files, prefetched
from pipeline.data.ingest.mapping import Mapping
from pipeline.data.ingest.records import opened
from pipeline.data.ingest.typed_rows import by_row
from pipeline.data.log_store.day_writer import DayWriter
from pipeline.data.log_store.landing import (
    DEFAULTS,
    Landed,
    LandingOptions,
    LogKind,
    land_days,
)
from pipeline.encoding.hashing import hashes, shares

FORMATS = ("ali-ccp", "ali-ccp-cvr")
TRAIN_DAYS = 10  # numbers 0 to 9; the test file's day comes next
LINES = 2048  # read at a time; one of common features is many kB long
JOINED = 32 << 20  # bytes of common features that are repeated, one time for each row, at a time
NAME = re.compile(r"(sample_skeleton|common_features)_(train|test)")
KEY = "common_feature_index"
SKELETON = ("sample_id", "click", "conversion", KEY, "feature_num", "feature_list")
COMMON = (KEY, "feature_num", "feature_list")


def _lines_of(columns: Sequence[str]) -> Mapping:
    """Lines without a header, all text."""
    return Mapping.model_validate(
        {
            **{"format": "ali-ccp", "kind": "csv", "time_zone": "UTC", "row_blocks": 1},
            **{"positions": columns, "quote": None, "columns": dict.fromkeys(columns, "text")},
        }
    )


def kind(log_format: str) -> LogKind:
    """What all days have in common."""
    labels = ("click", "conversion") if log_format == "ali-ccp" else ("conversion",)
    ids = {"sample_id": pa.string(), KEY: pa.string()}
    columns = {name: features.SCHEMA.field(name).type for name in features.SCHEMA.names}
    schema = pa.schema({**ids, **columns, **dict.fromkeys(labels, pa.int8())})
    return LogKind(log_format, "UTC", schema, {})


@dataclass
class _Part:
    """The files of the training or of the test part."""

    skeleton: list[Path] = field(default_factory=list)
    common: list[Path] = field(default_factory=list)


def land_files(
    folder: Path,
    log_format: str,
    sources: Sequence[Path],
    limit_days: int | None = None,
    report: Report = lambda _: None,
    *,
    options: LandingOptions = DEFAULTS,
) -> Landed:
    """Land the days of `sources` in `folder`.

    Rows with a conversion and no click, and rows whose common features are in no file, are dropped
    and counted. The rows of a day are in the order of the 128 parts, then of the files.

    Args:
        folder: the log's folder.
        log_format: one of FORMATS.
        sources: sample_skeleton_train and common_features_train, and the same of test, with any
            ending; each may be several files.
        limit_days: only the first so many days.
        report: called with bytes of the files that were read since the last call.
        options: see `land_days`.

    Raises:
        DataError: a file is missing or is not of the format; it is named, with the line.
    """
    parts = _parts_of(sources)
    days = limit_days or TRAIN_DAYS + 1

    def fill(writer: DayWriter) -> None:
        for name, files in sorted(parts.items(), reverse=True):
            with TemporaryDirectory(prefix=f".{folder.name}.tmp-", dir=folder.parent) as place:
                join = _Join(Path(place), log_format, name, days, writer)
                join.land(files, report)

    return land_days(folder, kind(log_format), fill, options)


def _parts_of(sources: Sequence[Path]) -> dict[str, _Part]:
    parts: dict[str, _Part] = {}
    for path in sources:
        found = NAME.search(path.name)
        if found is None:
            raise DataError(
                f"{path} is neither sample_skeleton_train, common_features_train nor one of test; "
                f"a file's name says which it is"
            )
        part = parts.setdefault(found[2], _Part())
        (part.skeleton if found[1] == "sample_skeleton" else part.common).append(path)
    for name, part in parts.items():
        if not part.skeleton or not part.common:
            missing = "common_features" if part.skeleton else "sample_skeleton"
            raise DataError(f"{missing}_{name} is not among the files; name it beside the others")
    for position, earlier in equal_files(sources).items():
        raise DataError(f"{sources[position]} holds the same bytes as {earlier}; name one of them")
    return parts


class _Join:
    """The rows of one part of the log on their way to their days."""

    def __init__(
        self, place: Path, log_format: str, part: str, days: int, writer: DayWriter
    ) -> None:
        self._place, self._clicked_only, self._part = place, log_format == "ali-ccp-cvr", part
        self._days, self._writer = days, writer

    def land(self, files: _Part, report: Report) -> None:
        """Read, cut, join and write."""
        paths = [*files.common, *files.skeleton]
        size = sum(path.stat().st_size for path in paths if path.is_file())
        with Partitions(self._place / "common", KEY) as common:
            for table in _tables(files.common, COMMON, _common_of, report):
                common.add(table)
        with Partitions(self._place / "skeleton", KEY) as skeleton:
            for table in _tables(files.skeleton, SKELETON, _skeleton_of, report):
                skeleton.add(self._wanted(table))
        for number in range(PARTS):
            self._join(common.part(number), skeleton.part(number))
            report((size - size // 2) // PARTS)

    def _day(self, keys: pa.ChunkedArray) -> np.ndarray:
        if self._part == "test":
            return np.full(len(keys), TRAIN_DAYS)
        return shares(hashes(keys.combine_chunks())[:, 1], TRAIN_DAYS)

    def _wanted(self, table: pa.Table) -> pa.Table:
        """The rows that the task has, with their days; the others are counted."""
        day = self._day(table[KEY])
        click, conversion = (table[name].to_numpy() for name in ("click", "conversion"))
        wanted = day < self._days
        rules = {"conversion without click": (click == 0) & (conversion == 1)}
        if self._clicked_only:
            rules["click is not 1"] = click == 0
        for rule, breaks in rules.items():
            self._writer.drop(rule, day[wanted & breaks])
            wanted &= ~breaks
        return table.append_column("day", pa.array(day)).filter(pa.array(wanted))

    def _join(self, common: Iterable[pa.Table], skeleton: Iterable[pa.Table]) -> None:
        known = _once(pa.concat_tables([_no_common(), *common]).combine_chunks())
        rows = max(1, JOINED * max(len(known), 1) // max(known.nbytes, 1))
        for block in skeleton:
            for start in range(0, len(block), rows):
                self._write_rows(block.slice(start, rows), known)

    def _write_rows(self, rows: pa.Table, known: pa.Table) -> None:
        place = pc.index_in(rows[KEY].combine_chunks(), value_set=known[KEY].combine_chunks())
        alone = pc.is_null(place)
        self._writer.drop("no common features", rows.filter(alone)["day"].to_numpy())
        rows, place = rows.filter(pc.invert(alone)), place.drop_null()
        found = features.joined(rows, known.take(place))
        day = rows["day"].to_numpy()
        for rule in features.LEFT_OUT:
            self._writer.drop(rule, np.repeat(day, found[rule].to_numpy()))
        for name in ("sample_id", KEY, "click", "conversion"):
            found = found.append_column(name, rows[name])
        self._writer.add(found, day)


def _tables(
    paths: Sequence[Path],
    columns: Sequence[str],
    table_of: Callable[[pa.Table], pa.Table],
    report: Report,
) -> Iterator[pa.Table]:
    """The lines of files as tables; half of the bytes are reported, the other half is the join."""
    for path in paths:
        with (
            opened(path, _lines_of(columns)) as file,
            closing(prefetched(file.blocks(LINES))) as blocks,
        ):
            size, reported = path.stat().st_size // 2, 0
            for block in blocks:
                yield by_row(block, table_of, file.place_of)
                report(int(size * block.read) - reported)
                reported = int(size * block.read)
            report(size - reported)


def _skeleton_of(table: pa.Table) -> pa.Table:
    for name in ("click", "conversion"):
        known = pc.is_in(table[name], value_set=pa.array(["0", "1"]))
        if pc.any(pc.invert(known)).as_py():
            raise DataError(f"{name} is neither 0 nor 1")
        table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.int8()))
    return _with_features(table)


def _common_of(table: pa.Table) -> pa.Table:
    if pc.any(pc.equal(table[KEY], "")).as_py():
        raise DataError(f"{KEY} is empty")
    return _with_features(table)


def _with_features(table: pa.Table) -> pa.Table:
    """`table` with columns in place of its feature lists."""
    declared = table["feature_num"].cast(pa.int64()).to_numpy()
    found = features.feature_columns(table["feature_list"].combine_chunks(), declared)
    rest = table.drop_columns(["feature_num", "feature_list"])
    for name in found.column_names:
        rest = rest.append_column(name, found[name])
    return rest


def _no_common() -> pa.Table:
    return _common_of(pa.table({name: pa.array([], pa.string()) for name in COMMON}))


def _once(common: pa.Table) -> pa.Table:
    """The lines of a part, each index once.

    Raises:
        DataError: an index is there twice, with different features.
    """
    coded = common[KEY].combine_chunks().dictionary_encode()
    _, first = np.unique(coded.indices.to_numpy(), return_index=True)
    again = np.setdiff1d(np.arange(len(common)), first)
    for row in again:
        other = int(first[coded.indices[int(row)].as_py()])
        if not common.slice(int(row), 1).equals(common.slice(other, 1)):
            index = common[KEY][int(row)].as_py()
            raise DataError(
                f"common features: the index {index} is there twice, with different features; "
                f"remove one of the two lines"
            )
    return common.take(pa.array(np.sort(first))) if len(again) else common
