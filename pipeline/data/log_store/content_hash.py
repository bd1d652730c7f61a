"""The hash of a day's content: of its values, however they are stored."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.errors import DataError

CONTENT_BLOCK = 1 << 17  # rows hashed, and written as one row group, at a time; it decides bytes
LIST_BLOCK = 1 << 12  # the same where a column holds lists, whose rows may be long


def block_rows(schema: pa.Schema) -> int:
    """How many rows of a log with this schema are hashed and written at a time."""
    return LIST_BLOCK if any(map(pa.types.is_list, schema.types)) else CONTENT_BLOCK


class ContentDigest:
    """The content's sha256, of `rows` rows that come in whole blocks, the last one smaller.

    It is of column names, types and values, in order: equal for equal rows. It reads values, not
    storage, so chunks, the Parquet writer and its version do not matter.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._blocks: list[str] = []

    def add(self, table: pa.Table) -> None:
        """Add the next rows.

        Raises:
            DataError: a column has a type other than text, numbers, booleans, dates, time stamps or
                lists of these.
        """
        size = block_rows(table.schema)
        for start in range(0, max(len(table), 1), size):
            self._blocks.append(_block_sha256(table.slice(start, size)))
        self.rows += len(table)

    def hexdigest(self) -> str:
        """The sha256 of the only block, or of the hexadecimal sha256s of all of them in order."""
        if len(self._blocks) == 1:
            return self._blocks[0]
        return hashlib.sha256("".join(self._blocks).encode()).hexdigest()


def _block_sha256(table: pa.Table) -> str:
    digest = hashlib.sha256(f"{table.num_rows} rows".encode())
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        if pa.types.is_large_string(column.type):
            column = column.cast(pa.string())
        digest.update(f"\n{name}: {type_name(column.type)}\n".encode())
        digest.update(_validity(column))
        for part in _bytes_of(name, column):
            digest.update(part)
    return digest.hexdigest()


def type_name(kind: pa.DataType) -> str:
    """A type's name, the same whatever its lists call their values."""
    return f"list<{kind.value_type}>" if pa.types.is_list(kind) else str(kind)


def _validity(column: pa.Array) -> bytes:
    return np.packbits(column.is_valid().to_numpy(zero_copy_only=False)).tobytes()


def _bytes_of(name: str, column: pa.Array) -> list[bytes | memoryview]:
    """The values of `column` as bytes: little-endian numbers, or lengths and then all within."""
    if pa.types.is_null(column.type):
        return []
    if pa.types.is_list(column.type):
        lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        values = column.flatten()
        return [lengths.astype("<i8").tobytes(), _validity(values), *_bytes_of(name, values)]
    if pa.types.is_string(column.type):
        lengths = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        return [lengths.astype("<i8").tobytes(), _text_of(column.drop_null())]
    stored = [(pa.types.is_timestamp, pa.int64()), (pa.types.is_date32, pa.int32())]
    for is_type, kind in [*stored, (pa.types.is_boolean, pa.uint8())]:
        column = column.cast(kind) if is_type(column.type) else column
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise DataError(f"column {name} has type {column.type}, which a log's manifest cannot hash")
    numbers = column.fill_null(pa.scalar(0).cast(column.type)).to_numpy(zero_copy_only=False)
    return [numbers.astype(numbers.dtype.newbyteorder("<")).tobytes()]


def _text_of(column: pa.StringArray) -> memoryview:
    """All text of `column`, which has no nulls, in one piece and without a copy."""
    _, offsets, text = column.buffers()
    if not len(column) or text is None:
        return memoryview(b"")
    ends = np.frombuffer(offsets, "<i4")[column.offset : column.offset + len(column) + 1]
    return memoryview(text)[ends[0] : ends[-1]]
