"""A request's body as what a predictor runs on; a fault is named by row and column.

What a service says of itself in OpenAPI, made from the columns of its model.
"""

import json
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from pipeline.core.errors import DataError
from pipeline.encoding.values import LARGEST_EXACT, placed
from pipeline.serving.predictor import NUMBER, SCHEMA, TEXT, Predictor

ARROW = "application/vnd.apache.arrow.stream"
ONLY_TEXT = {str, type(None)}
FORMS = '{"columns": {NAME: [value of each row, …], …}} or {"records": [{NAME: value, …}, …]}'


def inputs_of(
    body: bytes, media_type: str, predictor: Predictor, max_rows: int
) -> dict[str, np.ndarray]:
    """The rows of a body; columns that are not read may stay.

    Args:
        body: an Arrow stream where `media_type` says so, else JSON in one of `FORMS`. A value in
            JSON is text, a whole number or a boolean where text is read, a number where one is
            read, a boolean where the log had booleans, and null where there is none.
        media_type: of the body.
        predictor: that is to run on them.
        max_rows: of one request.

    Raises:
        DataError: the body is none of these, a column is missing or there twice, or a value is of
            another kind.
    """
    if media_type.startswith(ARROW):
        table = _table(body)
        _refuse_many(table.num_rows, max_rows)
        return predictor.inputs_of(table)
    columns = _columns(body, predictor)
    _refuse_uneven(columns, max_rows)
    for name in predictor.columns:
        if name not in columns and predictor.reading:
            made_of = {raw: columns[raw] for raw in predictor.reading.raw(name)}
            columns[name] = predictor.column(_rows_of(made_of), name).to_pylist()
    inputs = {}
    for name in predictor.text_columns:
        values = columns[name]
        if not set(map(type, values)) <= ONLY_TEXT:
            values = [_text(value, name, row) for row, value in enumerate(values)]
        inputs[f"{TEXT}{name}"] = np.array(predictor.texts(values, name), object)
    for name in predictor.number_columns:
        values = columns[name]
        if predictor.reading and str in set(map(type, values)):
            with placed(f"column {name}: "):
                values = _spelled(values, predictor, name)
        if name in predictor.booleans:
            values = [int(value) if isinstance(value, bool) else value for value in values]
        numbers = [_number(value, name, row) for row, value in enumerate(values)]
        with placed(f"column {name}: "):
            inputs[f"{NUMBER}{name}"] = predictor.numbers(name, np.array(numbers, np.float64))
    return inputs


def _table(body: bytes) -> pa.Table:
    try:
        source = pa.BufferReader(body)
        with pa.ipc.open_stream(source) as stream:
            table = stream.read_all()
        table.validate(full=True)
        _ = table.schema.names  # where they are no UTF-8, only this says so
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"the request is no whole Arrow stream: {error}") from None
    if source.tell() < len(body):
        raise DataError("the request goes on after an Arrow stream; send one stream")
    return table


def _rows_of(columns: dict[str, list[Any]]) -> pa.RecordBatch:
    """Columns of which others are made."""
    try:
        return pa.RecordBatch.from_pydict(columns)
    except (pa.ArrowException, OverflowError):
        names = " and ".join(columns)
        raise DataError(f"column {names} holds values of several kinds; give one") from None


def _spelled(values: list[Any], predictor: Predictor, name: str) -> list[Any]:
    """Numbers where texts spell them by the log's rules, and null where they spell a null."""
    texts = [value if isinstance(value, str) else None for value in values]
    numbers = predictor.spelled(pa.array(texts, pa.string()), name).to_pylist()
    pairs = zip(values, numbers, strict=True)
    return [number if isinstance(value, str) else value for value, number in pairs]


def _columns(body: bytes, predictor: Predictor) -> dict[str, list[Any]]:
    """The columns that are taken, each a list."""
    request = _parsed(body)
    known = {"columns": dict, "records": list}
    forms = [form for form, kind in known.items() if isinstance(request.get(form), kind)]
    if len(forms) != 1:
        raise DataError(f"the request must be {FORMS}")
    if forms == ["records"]:
        return _columns_of(request["records"], predictor)
    columns: dict[str, list[Any]] = request["columns"]
    names = predictor.columns_in(columns)
    for name in names:
        if not isinstance(columns[name], list):
            raise DataError(f"column {name} must be a list with the value of each row")
    return {name: columns[name] for name in names}


def _parsed(body: bytes) -> dict[str, Any]:
    """The JSON object of a body. orjson is strict, and json sees keys that come twice."""
    try:
        request = orjson.loads(body)
        json.loads(body, object_pairs_hook=_refuse_doubled)
    except (orjson.JSONDecodeError, RecursionError) as error:
        raise DataError(f"the request is not JSON: {error}; a stream says so: {ARROW}") from None
    return request if isinstance(request, dict) else {}


def _refuse_doubled(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        doubled = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{_shown(doubled)} is there twice in one object; keep one of them")


def _columns_of(records: list[Any], predictor: Predictor) -> dict[str, list[Any]]:
    names = predictor.columns
    if predictor.reading and records and isinstance(records[0], dict):
        names = predictor.columns_in(records[0])
    try:
        return {name: [record[name] for record in records] for name in names}
    except (KeyError, TypeError, IndexError):
        whole = (isinstance(record, dict) and {*names} <= {*record} for record in records)
        row = [*whole].index(False)
        if not isinstance(records[row], dict):
            raise DataError(f"row {row} is {_shown(records[row])}, which is no object") from None
        missing = next(name for name in names if name not in records[row])
        raise DataError(
            f"row {row} lacks column {missing}; the model reads {names}, null where there is none"
        ) from None


def _refuse_uneven(columns: dict[str, list[Any]], max_rows: int) -> None:
    first, *_ = columns
    rows = len(columns[first])
    for name, values in columns.items():
        if len(values) != rows:
            raise DataError(
                f"column {name} has {len(values)} rows and column {first} has {rows}; give a value "
                "or null for every row"
            )
    _refuse_many(rows, max_rows)


def _refuse_many(rows: int, max_rows: int) -> None:
    if rows > max_rows:
        raise DataError(f"the request has {rows} rows, {max_rows} are allowed; send several")


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
    raise _wrong(value, column, row, "names no value; give text, a whole number or null")


def _number(value: Any, column: str, row: int) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if value is None:
        return float("nan")
    raise _wrong(value, column, row, "is not a number; give one, or null where there is none")


def _wrong(value: Any, column: str, row: int, why: str) -> DataError:
    return DataError(f"row {row}, column {column}: {_shown(value)} {why}")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:40]}…"


TEXT_KINDS, NUMBER_KINDS = ["string", "integer", "boolean", "null"], ["number", "null"]
ANSWERS = {"bool": "boolean", "int32": "integer", "float": "number", "double": "number"}
EXAMPLE_ROWS = 2
JSON, PLAIN = "application/json", "text/plain"


def document(predictor: Predictor) -> dict[str, Any]:
    """The calls of a model's service; the examples of /score are requests that work."""
    health, metrics = _object({"version": {"type": "string"}}, ["version"]), {"type": "string"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "AdaCalib", "version": predictor.version[:12]},
        "paths": {
            "/score": {"post": _score_call(predictor)},
            "/health": {"get": {"responses": {"200": _answer("The version", health)}}},
            "/metrics": {"get": {"responses": {"200": _answer("Prometheus", metrics, PLAIN)}}},
        },
    }


def _score_call(predictor: Predictor) -> dict[str, Any]:
    kinds = {name: {"type": TEXT_KINDS} for name in predictor.text_columns}
    kinds |= {name: {"type": NUMBER_KINDS} for name in predictor.number_columns}
    kinds |= {name: {"type": TEXT_KINDS} for name in predictor.booleans}
    made = predictor.reading.made if predictor.reading else {}
    needed = [name for name in kinds if name not in made]  # the others, or what they are made of
    lists = {name: _list(kind) for name, kind in kinds.items()}
    forms = [
        _object({"columns": _object(lists, needed)}, ["columns"]),
        _object({"records": _list(_object(kinds, needed))}, ["records"]),
    ]
    request = {"schema": {"oneOf": forms}, "examples": _examples(predictor)}
    said = {field.name: _list({"type": ANSWERS[str(field.type)]}) for field in SCHEMA}
    answer = _object({"version": {"type": "string"}, **said}, ["version", *said])
    error = _object({"error": {"type": "string"}}, ["error"])
    return {
        "summary": "Score rows",
        "requestBody": {"required": True, "content": {JSON: request, ARROW: {}}},
        "responses": {
            "200": _answer("The scores of the rows", answer),
            "413": _answer("The request is too long", error),
            "422": _answer("What is wrong with the request", error),
        },
    }


def _examples(predictor: Predictor) -> dict[str, Any]:
    vectors = predictor.vectors.get("columns", {})
    columns = {name: values[:EXAMPLE_ROWS] for name, values in vectors.items()}
    records = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if not columns:
        return {}
    return {"columns": {"value": {"columns": columns}}, "records": {"value": {"records": records}}}


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _answer(what: str, schema: dict[str, Any], kind: str = JSON) -> dict[str, Any]:
    return {"description": what, "content": {kind: {"schema": schema}}}
