"""Rows that a model ships with, and what it says of them: for whoever serves it elsewhere."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.checkpoint.merged_model import MergedModel
from pipeline.checkpoint.serving_table import END_TO_END
from pipeline.encoding.features import Encoder, LoggedScore, Scaling
from pipeline.encoding.values import SEPARATOR
from pipeline.encoding.vocabulary import Vocabulary

VALUES = 22  # of a column, from all over its vocabulary
DEVIATIONS = (-2.0, -1.0, 0.0, 1.0, 2.0)
LOGITS = (-8.0, -4.0, -2.0, 0.0, 2.0)
UNSEEN = "(a value that no log had)"


def end_to_end_tolerance(steepest: float) -> float:
    """How far a calibrated logit may lie from another runtime's, by the map's steepest slope."""
    return END_TO_END * max(1.0, steepest)


def vectors_of(model: MergedModel) -> dict[str, Any]:
    """The test vectors of a model.

    Returns:
        `columns`: NAME → value of each row, which /score takes as they are: known field values,
        null, and one that is unseen; `expected`: what the model says of the rows; `tolerance`: how
        far a logit may lie from that.
    """
    encoder = model.encoder
    field = _field_columns(encoder)
    rows = len(field[encoder.field[0]])
    columns = {
        n: _repeated(_some(values), rows) for n, values in encoder.categorical.items()
    } | field
    for column in encoder.numeric:
        both = columns.get(column.name)
        numbers = _numbers(column) if both is None else [*map(_as_number, both)]
        columns[column.name] = _repeated(numbers, rows)
    said = model.predict(pa.table(columns))
    steepest = float(model.network.lines[:, 2].abs().max())
    return {
        "columns": columns,
        "expected": {name: values.tolist() for name, values in vars(said).items()},
        "tolerance": end_to_end_tolerance(steepest),
    }


def _field_columns(encoder: Encoder) -> dict[str, list[Any]]:
    """Known field values, then unseen ones of known parents."""
    keys, depth = _some(encoder.field_values), len(encoder.parents)
    unknown = [UNSEEN] * depth
    parts = (key.split(SEPARATOR) for key in _spread(encoder.field_values.parents))
    above = [*((unknown + of_key)[-depth:] for of_key in parts), *[unknown][:depth]]
    columns: dict[str, list[Any]] = {
        name: [_part(key, place, len(encoder.field)) for key in keys] + [UNSEEN] * len(above)
        for place, name in enumerate(encoder.field)
    }
    for place, name in enumerate(encoder.parents):
        of_parents = [each[place] for each in above]
        known = columns.get(name, _repeated(of_parents, len(keys)))[: len(keys)]
        columns[name] = known + of_parents
    return columns


def _some(vocabulary: Vocabulary) -> list[str | None]:
    return [*_spread(vocabulary.values), *vocabulary.pooled[:1], None, UNSEEN]


def _spread(names: Sequence[str]) -> list[str]:
    """Some names from all over, in their order."""
    places = np.linspace(0, len(names) - 1, min(VALUES, len(names))).round().astype(int)
    return [names[place] for place in dict.fromkeys(places.tolist())]


def _part(key: str | None, position: int, parts: int) -> str | None:
    return key if key is None or key == UNSEEN or parts == 1 else key.split(SEPARATOR)[position]


def _numbers(column: Scaling | LoggedScore) -> list[float]:
    if isinstance(column, LoggedScore):
        logits = np.array(LOGITS)
        return (logits if column.space == "logit" else 1 / (1 + np.exp(-logits))).tolist()
    scaled = column.mean + column.scale * np.array(DEVIATIONS)
    return (np.sign(scaled) * np.expm1(np.abs(scaled))).tolist()


def _as_number(text: str | None) -> float | None:
    """The number of a column that is read as text as well; null where it is none."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if number.is_integer() and str(int(number)) == text else None


def _repeated(values: Sequence[Any], n: int) -> list[Any]:
    return [values[row % len(values)] for row in range(n)]
