"""A request's JSON as what a predictor runs on; a fault is named by row and column."""

from typing import Any

import numpy as np
import orjson

from pipeline.core.errors import DataError
from pipeline.encoding.values import LARGEST_EXACT
from pipeline.serving.predictor import NUMBER, TEXT, Predictor, named

ONLY_TEXT = {str, type(None)}


def inputs_of(body: bytes, predictor: Predictor, max_rows: int) -> dict[str, np.ndarray]:
    """The rows of `{"columns": {NAME: [value of each row]}}`; columns that are not read may stay.

    A value is text, a whole number or a boolean where text is read, a number where one is read,
    and null where there is none.

    Raises:
        DataError: the body is no such JSON, a column is missing, or a value is of another kind.
    """
    columns = _columns(body)
    for name in predictor.columns:
        if not isinstance(columns.get(name, []), list):
            raise DataError(f"column {name} must be a list with the value of each row")
    missing = [name for name in predictor.columns if name not in columns]
    if missing:
        raise DataError(f"column {missing[0]} is missing; the model reads {predictor.columns}")
    rows = _rows(columns, predictor.columns, max_rows)
    inputs = {}
    for name in predictor.text_columns:
        values = columns[name]
        if not set(map(type, values)) <= ONLY_TEXT:
            values = [_text(value, name, row) for row, value in enumerate(values)]
        texts = np.empty(rows, dtype=object)
        texts[:] = [predictor.null_text if value is None else value for value in values]
        inputs[f"{TEXT}{name}"] = texts
    for name in predictor.number_columns:
        numbers = [_number(value, name, row) for row, value in enumerate(columns[name])]
        with named(name):
            inputs[f"{NUMBER}{name}"] = predictor.numbers(name, np.array(numbers, np.float64))
    return inputs


def _columns(body: bytes) -> dict[str, Any]:
    try:
        request = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise DataError(f"the request is not JSON: {error}") from None
    columns = request.get("columns") if isinstance(request, dict) else None
    if not isinstance(columns, dict):
        raise DataError('the request must be {"columns": {NAME: [value of each row, …], …}}')
    return columns


def _rows(columns: dict[str, Any], names: list[str], max_rows: int) -> int:
    lengths = {name: len(columns[name]) for name in names}
    rows = lengths[names[0]]
    for name, length in lengths.items():
        if length != rows:
            raise DataError(
                f"column {name} has {length} rows and column {names[0]} has {rows}; give a value "
                "or null for every row"
            )
    if rows > max_rows:
        raise DataError(f"the request has {rows} rows, {max_rows} are allowed; send several")
    return rows


def _text(value: Any, column: str, row: int) -> str | None:
    """The spelling that `pipeline.encoding.values.as_text` gives a value in a log."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < LARGEST_EXACT:
        return str(int(value))
    if isinstance(value, int):
        return str(value)
    raise DataError(
        f"row {row}, column {column}: {_shown(value)} names no value; give text, a whole number or "
        "null"
    )


def _number(value: Any, column: str, row: int) -> float:
    if isinstance(value, (int, float)):
        return float(value)
    if value is None:
        return float("nan")
    raise DataError(
        f"row {row}, column {column}: {_shown(value)} is not a number; give one, or null where "
        "there is none"
    )


def _shown(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= 40 else f"{text[:40]}…"
