"""Blocks of a file's rows in the types of the mapping, and the first row that does not fit."""

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.errors import DataError
from pipeline.data.ingest.mapping import OWN_NAME, TYPES, Mapping
from pipeline.data.ingest.records import RowBlock
from pipeline.encoding.values import as_text

SPELLED = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
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
            columns[name] = _typed(table[name], kind, mapping, name in stamps)
        except (DataError, pa.ArrowException) as error:
            raise DataError(_fault(name, table[name], kind, mapping, str(error))) from None
    return pa.table(columns)


def _typed(
    column: pa.ChunkedArray, kind: pa.DataType, mapping: Mapping, is_stamp: bool
) -> pa.ChunkedArray:
    if is_stamp and pa.types.is_timestamp(column.type):
        return column
    if is_stamp and pa.types.is_date(column.type):
        return column.cast(pa.string())
    spelled = any(is_type(column.type) for is_type in SPELLED)
    if kind == pa.string():
        return pa.chunked_array([_without(as_text(column), mapping.nulls)])
    if spelled:
        text = _without(as_text(column), mapping.number_nulls)
        return _numbers(text, kind, mapping, is_stamp)
    if is_stamp and pa.types.is_floating(column.type):
        column = pc.floor(column)
    return column.cast(kind)


def _without(text: pa.StringArray, nulls: Sequence[str]) -> pa.StringArray:
    """`text` with the spellings `nulls` as null."""
    if not nulls:
        return text
    missing = pc.is_in(text, value_set=pa.array(nulls, pa.string()))
    return (
        pc.if_else(missing, pa.scalar(None, pa.string()), text) if pc.any(missing).as_py() else text
    )


def _numbers(
    text: pa.StringArray, kind: pa.DataType, mapping: Mapping, is_stamp: bool
) -> pa.ChunkedArray:
    """Spelled numbers, white space around them passed over; of stamps the whole part."""
    decimal, thousands = mapping.decimal, mapping.thousands
    if thousands:
        grouped = rf"^[+-]?\d{{1,3}}({re.escape(thousands)}\d{{3}})+({re.escape(decimal)}\d*)?$"
        whole = pc.replace_substring(text, thousands, "")
        text = pc.if_else(pc.match_substring_regex(text, grouped), whole, text)
    if decimal == ",":
        other = pc.match_substring(text, ".")
        text = pc.if_else(other, "a point", pc.replace_substring(text, ",", "."))
    try:
        return pa.chunked_array([text.cast(kind)])
    except pa.ArrowInvalid:
        text = pc.utf8_trim(text, " \t")
        if is_stamp:
            text = pc.replace_substring_regex(text, r"^(\d+)\.\d+$", r"\1")
        return pa.chunked_array([text.cast(kind)])


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
