"""Blocks of a file's rows in the types of the mapping, and the first row that does not fit."""

import re
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from pipeline.core.errors import DataError
from pipeline.data.ingest.mapping import TYPES, Mapping
from pipeline.data.ingest.records import RowBlock
from pipeline.encoding.stamps import OWN_NAME

Result = TypeVar("Result")


def typed(table: pa.Table, mapping: Mapping) -> pa.Table:
    """The columns with the types that the mapping declares; text by the rule of `as_text`.

    Raises:
        DataError: a value does not fit its type.
    """
    columns, stamps = {}, {rule.column for rule in (mapping.time, mapping.date) if rule}
    stamps |= {made.of for made in mapping.made.values() if made.of and made.rule == "within"}
    for name, kind in mapping.source_types.items():
        try:
            columns[name] = mapping.reading.typed(table[name], kind, is_stamp=name in stamps)
        except (DataError, pa.ArrowException) as error:
            raise DataError(_fault(name, table[name], kind, mapping, str(error))) from None
    return pa.table(columns)


def _fault(
    name: str, column: pa.ChunkedArray, kind: pa.DataType, mapping: Mapping, said: str
) -> str:
    """What is wrong with a column of one row; with more rows nobody reads it."""
    value = None if len(column) != 1 or kind == pa.string() else column[0].as_py()
    if not isinstance(value, str):
        return f"column {name}: {said.splitlines()[0]}"
    if value.strip() == name:
        return f"column {name} is {value!r}, {OWN_NAME}"
    word = next(word for word, declared in TYPES.items() if declared == kind)
    return f"column {name} is {value!r}, which is no {word}{_step(value, mapping)}"


def _step(value: str, mapping: Mapping) -> str:
    if re.fullmatch(r"[+-]?\d{1,3}([,.]\d{3})+", value):
        sign = "," if "," in value else "."
        return (
            f"; where {sign} parts thousands, say thousands: '{sign}' in the mapping, and where it "
            f"is the decimal sign, decimal: '{sign}'"
        )
    if re.fullmatch(r"[+-]?\d+,\d+", value) and mapping.decimal == ".":
        return "; where a comma is the decimal sign, say decimal: ',' in the mapping"
    if re.search(r"\d", value):
        return "; correct the value, or the column's type in the mapping"
    return (
        "; in the mapping number_nulls lists spellings of a missing number, and a made column by "
        "the rule equals is 1 where a text is one of its values"
    )


class RowError(DataError):
    """A row does not fit; `row` is its number from 1."""

    def __init__(self, sentence: str, row: int) -> None:
        super().__init__(sentence)
        self.row = row


def by_row(
    block: RowBlock, work: Callable[[pa.Table], Result], place_of: Callable[[int], str]
) -> Result:
    """`work` of the block's rows; where it refuses them, the first row it refuses is named.

    Args:
        work: refuses some rows exactly where it refuses one of them.
        place_of: number of a row → where it is, in words.

    Raises:
        RowError: `work` raised a DataError or an Arrow error.
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
    place = place_of(block.row + low)
    try:
        work(block.table.slice(low, 1))
    except (DataError, pa.ArrowException) as error:
        sentence = f"{block.path}, {place}: {str(error).splitlines()[0]}"
        raise RowError(sentence, block.row + low) from None
    raise DataError(f"{block.path}, rows from {place} on cannot be read together")
