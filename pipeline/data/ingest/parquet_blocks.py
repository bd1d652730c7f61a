"""Parquet files as tables of the mapping's types, a bounded number of rows at a time."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.core.errors import DataError
from pipeline.data.ingest.mapping import Mapping
from pipeline.encoding.values import as_text

ROWS = 1 << 16  # of a block
SPELLED = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
Result = TypeVar("Result")


@dataclass(frozen=True)
class RowBlock:
    """Rows of a file as they are stored there.

    Attributes:
        path: of the file.
        row: number of the first of them, from 1.
        table: the columns that the mapping reads.
    """

    path: Path
    row: int
    table: pa.Table


def count_stored(path: Path) -> int:
    """How many rows a Parquet file has.

    Raises:
        DataError: the file is missing or has no footer.
    """
    with _whole(path):
        return pq.read_metadata(path).num_rows


def read_row_blocks(path: Path, mapping: Mapping, rows: int = ROWS) -> Iterator[RowBlock]:
    """The rows of a Parquet file.

    Raises:
        DataError: the file is missing or damaged, or lacks a column.
    """
    names = list(mapping.source_types)
    with _whole(path), pq.ParquetFile(path) as file:
        present = file.schema_arrow.names
        missing = [name for name in names if present.count(name) != 1]
        if missing:
            raise DataError(f"{path}: column {missing[0]} is missing; the file has {present}")
        row = 1
        for batch in file.iter_batches(rows, columns=names):
            yield RowBlock(path, row, pa.Table.from_batches([batch]))
            row += batch.num_rows


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    if path.is_dir():
        raise DataError(f"{path} is a folder; name the files in it")
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; name a file of the log") from None
    except (OSError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"{path} is no whole Parquet file: {reason}; fetch or write it again, or say kind: csv "
            "in the mapping where it is text"
        ) from None


def typed(table: pa.Table, mapping: Mapping) -> pa.Table:
    """The columns with the types that the mapping declares; text by the rule of `as_text`.

    The spellings of a missing value hold in text columns of the file, as they do in CSV.

    Raises:
        DataError: a value does not fit its type.
    """
    columns, stamps = {}, {rule.column for rule in (mapping.time, mapping.date) if rule}
    stamps |= {made.of for made in mapping.made.values() if made.of and made.rule == "within"}
    for name, kind in mapping.source_types.items():
        try:
            columns[name] = _typed(table[name], kind, mapping, name in stamps)
        except (DataError, pa.ArrowException) as error:
            raise DataError(f"column {name}: {str(error).splitlines()[0]}") from None
    return pa.table(columns)


def _typed(
    column: pa.ChunkedArray, kind: pa.DataType, mapping: Mapping, is_stamp: bool
) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if is_stamp and pa.types.is_timestamp(column.type):
        return column
    if is_stamp and pa.types.is_date(column.type):
        return column.cast(pa.string())
    spelled = any(is_type(column.type) for is_type in SPELLED)
    if spelled:
        column.validate(full=True)  # a Parquet file may call any bytes text
    if kind == pa.string():
        return pa.chunked_array([_without(as_text(column), mapping.nulls)])
    if spelled:
        column = pa.chunked_array([_without(as_text(column), mapping.number_nulls)])
    return column.cast(kind)


def _without(text: pa.StringArray, nulls: Sequence[str]) -> pa.StringArray:
    """`text` with the spellings `nulls` as null."""
    missing = pc.is_in(text, value_set=pa.array(nulls, pa.string()))
    return pc.if_else(missing, pa.scalar(None, pa.string()), text)


def by_row(block: RowBlock, work: Callable[[pa.Table], Result]) -> Result:
    """`work` of the block's rows; where it refuses them, the first row it refuses is named.

    Args:
        work: refuses some rows exactly where it refuses one of them.

    Raises:
        DataError: `work` raised it or an Arrow error.
    """
    try:
        return work(block.table)
    except (DataError, pa.ArrowException):
        low, high = 0, len(block.table)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            work(block.table.slice(low, middle - low))
            low = middle
        except (DataError, pa.ArrowException):
            high = middle
    try:
        work(block.table.slice(low, 1))
    except (DataError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{block.path}, row {block.row + low}: {reason}") from None
    raise DataError(f"{block.path}, rows from {block.row} on cannot be read together")
