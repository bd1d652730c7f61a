"""What a service says of itself in OpenAPI, made from the columns of its model."""

from typing import Any

from pipeline.serving.predictor import SCHEMA, Predictor
from pipeline.serving.requests import ARROW

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
    columns = predictor.vectors.get("columns", {})
    columns = {name: values[:EXAMPLE_ROWS] for name, values in columns.items()}
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
