"""The feature lists of Ali-CCP as columns, and rows cut into parts on the disk to be joined.

A list is feature (^A feature)*, a feature is field ^B id ^C value; ^A, ^B, ^C are bytes 1, 2, 3.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, ipc

from pipeline.core.errors import DataError
from pipeline.encoding.hashing import hashes, shares

ONE = (
    *("101", "121", "122", "124", "125", "126", "127", "128", "129"),  # the user
    *("205", "206", "207", "216"),  # the item
    *("508", "509", "702", "853"),  # how often user and item met
    "301",  # the place
)
MANY = ("109_14", "110_14", "127_14", "150_14", "210")
MEASURED = ("508", "509", "702", "853", *MANY)  # their values are weights, all others are 1
FIELDS = pa.array([*ONE, *MANY])
UNKNOWN = "values of fields that are not known"
AGAIN = "values of fields that have one already"
LEFT_OUT = (UNKNOWN, AGAIN)

SCHEMA = pa.schema(
    {
        **dict.fromkeys(ONE, pa.string()),
        **{f"{name}_value": pa.float32() for name in ONE if name in MEASURED},
        **dict.fromkeys(MANY, pa.list_(pa.string())),
        **{f"{name}_value": pa.list_(pa.float32()) for name in MANY},
    }
)


@dataclass(frozen=True)
class FeatureRows:
    """Features one under another.

    Attributes:
        row: int64 [k], the row of each, ascending.
        field: int64 [k], position among FIELDS; -1 where it is not one of them.
        id: text [k].
        value: float32 [k], finite.
    """

    row: np.ndarray
    field: np.ndarray
    id: pa.StringArray
    value: pa.FloatArray


def feature_columns(lists: pa.StringArray, declared: np.ndarray) -> pa.Table:
    """The columns of SCHEMA, and how many values of each row were left out by each of LEFT_OUT.

    A field of ONE that is not in a row is null, one of MANY an empty list. Where a field of ONE is
    there again its first value stays.

    Args:
        lists: [n] feature lists, "" where a row has none.
        declared: int [n], how many features the file says there are.

    Raises:
        DataError: there are more or fewer, or a list is not spelled like one.
    """
    found = _features(lists, declared)
    rows = len(lists)
    order = np.argsort(found.field, kind="stable")
    bounds = np.searchsorted(found.field[order], np.arange(len(FIELDS) + 1))
    columns, again = {}, np.zeros(rows, np.int64)
    for position, name in enumerate(FIELDS.to_pylist()):
        own = order[bounds[position] : bounds[position + 1]]
        if name in MANY:
            columns[name] = _listed(found.id, own, found.row, rows)
            columns[f"{name}_value"] = _listed(found.value, own, found.row, rows)
            continue
        first = np.ones(len(own), bool)
        first[1:] = found.row[own[1:]] != found.row[own[:-1]]
        again += np.bincount(found.row[own[~first]], minlength=rows)
        columns[name] = _placed(found.id, own[first], found.row, rows)
        if name in MEASURED:
            columns[f"{name}_value"] = _placed(found.value, own[first], found.row, rows)
    unknown = np.bincount(found.row[found.field < 0], minlength=rows)
    table = pa.table({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)
    return table.append_column(UNKNOWN, pa.array(unknown)).append_column(AGAIN, pa.array(again))


def _features(lists: pa.StringArray, declared: np.ndarray) -> FeatureRows:
    held = pc.add(pc.count_substring(lists, "\x01"), 1)
    held = pc.if_else(pc.equal(lists, ""), 0, held).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(held != declared)
    if len(wrong):
        raise DataError(
            f"the line says {declared[wrong[0]]} features, its list holds {held[wrong[0]]}"
        )
    row = np.repeat(np.arange(len(lists)), held)
    if not len(row):
        return FeatureRows(row, row, pa.array([], pa.string()), pa.array([], pa.float32()))
    filled = pc.binary_join_element_wise(lists.filter(pc.not_equal(lists, "")), "", "\n")
    table = _parsed(b"".join(value.as_buffer() for value in filled))
    field = pc.index_in(table["field"], value_set=FIELDS).fill_null(-1).to_numpy()
    return FeatureRows(
        row,
        field.astype(np.int64),
        table["id"].combine_chunks(),
        table["value"].combine_chunks(),
    )


def _parsed(text: bytes) -> pa.Table:
    """Lists, each ended by a line break, as columns field, id and value."""
    marks = np.frombuffer(text.translate(None, _OTHER_BYTES), np.uint8)
    marks = np.where(marks == ord("\n"), 1, marks)
    if len(marks) % 3 or (marks.reshape(-1, 3) != (2, 3, 1)).any():
        raise DataError("a feature is not spelled field ^B id ^C value")
    types = {"field": pa.string(), "id": pa.string(), "value": pa.float32()}
    table = csv.read_csv(
        pa.BufferReader(text.translate(_AS_LINES)),
        read_options=csv.ReadOptions(column_names=list(types), block_size=1 << 21),
        parse_options=csv.ParseOptions(
            delimiter="\x02", quote_char=False, ignore_empty_lines=False
        ),
        convert_options=csv.ConvertOptions(column_types=types, null_values=[]),
    )
    for name in ("field", "id"):
        if pc.any(pc.equal(table[name], "")).as_py():
            raise DataError(f"a feature has no {name}")
    if pc.any(pc.invert(pc.is_finite(table["value"]))).as_py():
        raise DataError("the value of a feature is not finite")
    return table


_OTHER_BYTES = bytes(byte for byte in range(256) if byte not in b"\x01\x02\x03\n")
_AS_LINES = bytes.maketrans(b"\x01\x03", b"\n\x02")


def _placed(values: pa.Array, own: np.ndarray, row: np.ndarray, rows: int) -> pa.Array:
    """`values` at `own` in their rows, null in the others."""
    place = np.full(rows, -1)
    place[row[own]] = own
    return values.take(pa.array(place, mask=place < 0))


def _listed(values: pa.Array, own: np.ndarray, row: np.ndarray, rows: int) -> pa.ListArray:
    """`values` at `own` as the lists of their rows, in their order."""
    ends = np.cumsum(np.bincount(row[own], minlength=rows))
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values.take(pa.array(own)))


def joined(own: pa.Table, common: pa.Table) -> pa.Table:
    """The features of each row and its common ones: the row's before, where both have a field.

    Args:
        own, common: [n] rows of `feature_columns`.
    """
    columns = {}
    again = np.zeros(len(own), np.int64)
    for name in SCHEMA.names:
        mine, other = own[name].combine_chunks(), common[name].combine_chunks()
        if pa.types.is_list(mine.type):
            columns[name] = _lists_of_both(mine, other)
            continue
        columns[name] = pc.coalesce(mine, other)
        if name in ONE:
            again += pc.and_(mine.is_valid(), other.is_valid()).to_numpy(zero_copy_only=False)
    table = pa.table(columns, schema=SCHEMA)
    for name in LEFT_OUT:
        counts = own[name].to_numpy() + common[name].to_numpy() + (again if name == AGAIN else 0)
        table = table.append_column(name, pa.array(counts))
    return table


def _lists_of_both(mine: pa.ListArray, other: pa.ListArray) -> pa.ListArray:
    lengths = [pc.list_value_length(lists).to_numpy() for lists in (mine, other)]
    if not lengths[0].any():
        return other
    if not lengths[1].any():
        return mine
    values = pa.concat_arrays([mine.flatten(), other.flatten()])
    row = np.concatenate([np.repeat(np.arange(len(mine)), length) for length in lengths])
    own = np.argsort(row, kind="stable")
    return _listed(values, own, row, len(mine))


PARTS = 128  # as many files are open at a time; some systems allow 256
BATCH = 64 << 20  # bytes of rows that wait before they are cut


class Partitions:
    """A context that takes rows; afterwards `part` gives those of one part.

    Rows with the same key are in the same part, in the order they came; a key's part does not
    depend on the other rows.

    Args:
        folder: where the parts are written.
        key: the text column that is hashed.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self._folder, self._key = folder, key
        self._waiting: list[pa.Table] = []
        self._writers: dict[int, ipc.RecordBatchStreamWriter] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._folder.mkdir()
        return self

    def __exit__(self, *error: object) -> None:
        with self._open:
            if error[0] is None:
                self._cut()

    def add(self, rows: pa.Table) -> None:
        """Add rows; all have the same columns."""
        self._waiting.append(rows)
        if sum(table.nbytes for table in self._waiting) > BATCH:
            self._cut()

    def part(self, number: int) -> Iterator[pa.Table]:
        """The rows of part `number`, from 0 to PARTS - 1, some at a time."""
        path = self._path(number)
        if not path.exists():
            return
        with pa.OSFile(str(path)) as file, ipc.open_stream(file) as stream:
            for batch in stream:
                yield pa.Table.from_batches([batch])

    def _path(self, number: int) -> Path:
        return self._folder / f"part-{number:03}.arrow"

    def _cut(self) -> None:
        """Move the rows that wait to their parts."""
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting).combine_chunks()
        self._waiting = []
        part = shares(hashes(rows[self._key].combine_chunks())[:, 0], PARTS)
        order = np.argsort(part, kind="stable")
        bounds = np.searchsorted(part[order], np.arange(PARTS + 1))
        for number in np.unique(part):
            own = order[bounds[number] : bounds[number + 1]]
            self._writer(int(number), rows.schema).write_table(rows.take(pa.array(own)))

    def _writer(self, number: int, schema: pa.Schema) -> ipc.RecordBatchStreamWriter:
        if number not in self._writers:
            file = self._open.enter_context(pa.OSFile(str(self._path(number)), "wb"))
            options = ipc.IpcWriteOptions(compression="lz4")
            writer = ipc.new_stream(file, schema, options=options)
            self._writers[number] = self._open.enter_context(writer)
        return self._writers[number]
