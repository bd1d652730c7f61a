"""The columns of a log as text, numbers and counts: one rule for every reader and request.

Field values and categories are text.
The spelling never depends on how a file happened to store a column, so the id 7 is "7" on a day
that holds integers, on a day that holds text, and in a serving request.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.errors import DataError

SEPARATOR = "\x1f"
MARK = "\x1e"  # begins a name that is no text of a log
NULL_NAME = f"{MARK}(null)"
POOLED_NAME = f"{MARK}(other)"
PARENT = f"{MARK}{SEPARATOR}"  # begins the name of a parent of field values, before its key
PAIR = f"{MARK}{MARK}"  # begins that of a field value together with its parents
SPACES = ("logit", "probability")  # what a logged score may be
SCORE_CLIP = 1e-15  # a logged probability is taken to lie in [this, 1 - this]: ±34.5 in logit
LARGEST_EXACT = 2**53  # from here on neighbouring whole numbers share one float64

Column: TypeAlias = pa.Array | pa.ChunkedArray


def _plain(column: Column) -> pa.Array:
    """`column` as one array without dictionary encoding."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        return _plain(column.dictionary_decode())
    return column


def without_nan(numbers: Column) -> Column:
    """Float `numbers` as float64, NaN as null: in many tools a gap is NaN."""
    numbers = numbers.cast(pa.float64())
    return pc.if_else(pc.is_nan(numbers), pa.scalar(None, numbers.type), numbers)


def _whole(numbers: pa.Array) -> pa.Array:
    """Float `numbers` as int64, NaN as null."""
    numbers = without_nan(numbers)
    wrong = pc.or_(
        pc.not_equal(numbers, pc.trunc(numbers)), pc.greater_equal(pc.abs(numbers), LARGEST_EXACT)
    )
    row = pc.index(wrong, True).as_py()
    if row >= 0:
        raise DataError(
            f"a float column names values only by whole numbers below 2**53, row {row} has "
            f"{numbers[row].as_py()!r}; write the column as text or integers"
        )
    return numbers.cast(pa.int64())


def _whole_decimals(numbers: pa.Array) -> pa.Array:
    """Decimal `numbers` without their places after the point."""
    try:
        return numbers.cast(pa.decimal256(76))
    except pa.ArrowInvalid:
        raise DataError(
            "a decimal column names values only by whole numbers; write the column as text"
        ) from None


def as_text(column: Column) -> pa.StringArray:
    """The values of `column` as text; null stays null.

    Text stays as it is ("001", "NA", "null", "TRUE", "" are values like any other). Integers are
    spelled in decimal, every digit of a 64-bit id kept. Booleans are "true" and "false". Floats,
    which is what integers with gaps turn into in many tools, are accepted where every value is a
    whole number below 2**53, and spelled as integers: "7", never "7.0"; NaN is null there. The
    rule looks at values alone, so it does not matter how a log is cut into files. Decimals are
    accepted where they are whole, bytes where they are UTF-8.

    Args:
        column: [n] array, chunked or not, dictionary-encoded or not.

    Raises:
        DataError: a float is not whole or may have lost digits, or the type has no spelling.
    """
    column = _plain(column)
    if pa.types.is_floating(column.type):
        column = _whole(column)
    if pa.types.is_decimal(column.type):
        column = _whole_decimals(column)
    if pa.types.is_temporal(column.type) or pa.types.is_nested(column.type):
        raise DataError(f"type {column.type} cannot name values; name a column of text")
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:  # some Parquet writers store text as bytes
        raise DataError("a column of bytes names values only in UTF-8") from None


def as_numbers(column: Column) -> np.ndarray:
    """The values of a number column as float64 [n], null as NaN.

    Raises:
        DataError: the column holds text or anything else that is not a number.
    """
    column = _plain(column)
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    is_number = pa.types.is_primitive(column.type) and not pa.types.is_temporal(column.type)
    if not (is_number or pa.types.is_decimal(column.type)):
        raise DataError(f"type {column.type} is not a number; write the column as numbers")
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def field_keys(table: pa.Table, columns: Sequence[str]) -> pa.StringArray:
    """The joint value of `columns` in every row: text [n], null where any part is null.

    Several columns are joined by the unit separator "\\x1f".

    Raises:
        DataError: a column is missing, cannot name values, a part of a joint value holds the
            separator itself (two different values could then share a key), or a value begins with
            the mark "\\x1e" of the names that stand for null and for pooled values.
    """
    parts = []
    for name in columns:
        column = _column(table, name)
        with placed(f"column {name}: "):
            parts.append(as_text(column))
        _refuse_row(name, pc.starts_with(parts[-1], MARK), "begins with the reserved mark \\x1e")
    if len(parts) == 1:
        return parts[0]
    for name, part in zip(columns, parts, strict=True):
        _refuse_row(name, pc.match_substring(part, SEPARATOR), "holds the separator \\x1f")
    return pc.binary_join_element_wise(*parts, SEPARATOR, null_handling="emit_null")


def names_above(
    table: pa.Table, field: Sequence[str], parents: Sequence[str]
) -> list[pa.StringArray]:
    """Of each row the pair of its field value and its parents, and what the value belongs to, from
    near to far: names, text [n] each; none where there are no parents.

    A parent is its own column's value and those of the farther ones, so an advertiser of two
    verticals is two. Null where a part is.

    Args:
        table: rows of a log.
        field: columns whose joint value is calibrated.
        parents: columns that it belongs to, from near to far.

    Raises:
        DataError: as `field_keys`.
    """
    if not parents:
        return []
    keys = [(PAIR, [*field, *parents]), *((PARENT, parents[n:]) for n in range(len(parents)))]
    named = ((mark, field_keys(table, columns)) for mark, columns in keys)
    return [pc.binary_join_element_wise(pa.scalar(mark), key, "") for mark, key in named]


def _refuse_row(column: str, wrong: pa.BooleanArray, what: str) -> None:
    row = pc.index(wrong, True).as_py()
    if row >= 0:
        raise DataError(f"column {column} {what} in row {row}; remove it")


def numbers_of(table: pa.Table, name: str) -> np.ndarray:
    """The numbers of a column of `table` as float64 [n], NaN where null.

    Raises:
        DataError: the column is missing or holds what is no number; it is named.
    """
    column = _column(table, name)
    with placed(f"column {name}: "):
        return as_numbers(column)


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise DataError(f"column {name} is missing; the table has {table.column_names}")
    return table.column(name)


def refuse_doubled(taken: Iterable[str], names: Sequence[str]) -> None:
    """Refuse rows that have a column twice.

    Args:
        taken: the columns that are read.
        names: all that the rows have.

    Raises:
        DataError: one of those that are read is there more than once.
    """
    twice = next((name for name in taken if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"column {twice} is there more than once; keep one of them")


def counts(
    table: pa.Table, label: str, impressions: str | None, *, waits: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Impressions and responses of every row: int32 [n] each. No other place reads a label.

    Args:
        table: rows of a log.
        label: column with the response (a click or a conversion): 0 or 1, or their number where a
            row is an aggregate.
        impressions: column with the impressions of a row; None: every row is one.
        waits: labels of these rows are yet to come, and a null is none so far.

    Raises:
        DataError: a count is null, negative or not whole, or there are more responses than
            impressions in a row; column and row are named.
    """
    responses = numbers_of(table, label)
    responses = np.where(np.isnan(responses) & waits, 0, responses)
    if impressions is None:
        rule = (
            "must be 0 or 1 (a missing one is no 0, but by the rule marked of the mapping where "
            "responses alone are filled in; one to come waits: log.maturity_days)"
        )
        refuse_rows(~np.isin(responses, (0, 1)), responses, label, rule, key="keep")
        return np.ones(len(table), np.int32), responses.astype(np.int32)
    shown = numbers_of(table, impressions)
    whole = (shown >= 0) & (shown <= np.iinfo(np.int32).max) & (shown == np.floor(shown))
    refuse_rows(~whole, shown, impressions, "must be a whole number, 0 or more, below 2**31")
    fits = (responses >= 0) & (responses <= shown) & (responses == np.floor(responses))
    rule = f"must be a whole number from 0 to {impressions}"
    refuse_rows(~fits, responses, label, rule, key="at_most")
    return shown.astype(np.int32), responses.astype(np.int32)


def weights(table: pa.Table, column: str | None) -> np.ndarray | float:
    """The weight of every row, float64 [n]; 1 where no column has it.

    Raises:
        DataError: the column is missing or holds what is no number.
    """
    return 1.0 if column is None else numbers_of(table, column)


def refuse_rows(
    wrong: np.ndarray, values: np.ndarray, column: str, rule: str, *, key: str = ""
) -> None:
    """Refuse rows by the first of them.

    Args:
        wrong: bool [n].
        values: float64 [n], what stands there.
        column, rule: its name, and what a value must be.
        key: of a mapping, which leaves out such rows where a value is there and too large.

    Raises:
        DataError: a row is wrong.
    """
    rows = np.flatnonzero(wrong)
    if len(rows):
        value = values[rows[0]]
        shown = "null or NaN" if np.isnan(value) else f"{value:.9g}"
        more = f", as {len(rows) - 1} more rows do" if len(rows) > 1 else ""
        key = "drop_null" if np.isnan(value) else key if value > 0 else ""
        remedy = f", or leave them out ({key} of the mapping, after adacalib drop)," if key else ""
        raise DataError(
            f"column {column}, row {rows[0]} is {shown}{more}: it {rule}; repair the "
            f"rows{remedy} and land the day again"
        )


@contextmanager
def placed(place: str) -> Iterator[None]:
    """Whatever is wrong with rows inside, the sentence begins with `place`: "day 2024-03-08, "."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{place}{error}") from None


def logged_score_column(conventions: Mapping[str, Any]) -> tuple[str, str] | None:
    """Column and space ("logit" or "probability") of the logged score; None: a base model is
    trained."""
    for space in SPACES:
        column = conventions.get(f"served_{space}")
        if column is not None:
            return column, space
    return None


def logged_logit(values: np.ndarray, space: str) -> np.ndarray:
    """The logits of logged scores, float32 [n].

    A logit is taken as it is. A probability p becomes ln p - ln(1 - p), computed in float64
    whatever it was stored as; 0 and 1 stand for SCORE_CLIP and 1 - SCORE_CLIP.

    Args:
        values: float64 [n].
        space: "logit" or "probability".

    Raises:
        DataError: a score is null, a logit is not a finite float32, or a probability lies outside
            [0, 1].
    """
    missing = np.flatnonzero(np.isnan(values))
    if len(missing):
        raise DataError(
            f"{len(missing)} of {len(values)} logged scores are null or NaN, the first in row "
            f"{missing[0]}; every row needs its logged score"
        )
    if space == "probability":
        _refuse_score(values, (values < 0) | (values > 1), "is no probability", "served_logit")
        inside = np.clip(values, SCORE_CLIP, 1 - SCORE_CLIP)
        return (np.log(inside) - np.log(1 - inside)).astype(np.float32)
    too_large = np.abs(values) > np.finfo(np.float32).max
    _refuse_score(values, too_large, "is no finite logit", "served_probability")
    return values.astype(np.float32)


def _refuse_score(values: np.ndarray, wrong: np.ndarray, what: str, other: str) -> None:
    rows = np.flatnonzero(wrong)
    if len(rows):
        raise DataError(
            f"row {rows[0]} is {values[rows[0]]:.9g}, which {what}, as {len(rows)} of "
            f"{len(values)} rows have it; repair the scores, or name the column in log.{other}"
        )
