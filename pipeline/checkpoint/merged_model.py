"""A merged model in memory: base network and serving map, and what they predict.

Rows that a model ships with, and what it says of them: for whoever serves it elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from scipy.special import expit
from torch import nn

from pipeline.checkpoint.serving_table import END_TO_END
from pipeline.core.columns import Columns, Float32, Float64, Int32
from pipeline.encoding.features import Encoded, Encoder, LoggedScore, Scaling
from pipeline.encoding.values import SEPARATOR
from pipeline.encoding.vocabulary import Vocabulary
from pipeline.formats.maps import PROBABILITY_CLIP, PiecewiseLinearMap
from pipeline.model.scoring import Base

BATCH_ROWS = 65_536
VALUES = 22  # of a column, from all over its vocabulary
DEVIATIONS = (-2.0, -1.0, 0.0, 1.0, 2.0)
LOGITS = (-8.0, -4.0, -2.0, 0.0, 2.0)
UNSEEN = "(a value that no log had)"


@dataclass(frozen=True)
class Prediction(Columns):
    """What a model says of n rows.

    Attributes:
        uncalibrated_logit: float32 [n], the base model's.
        calibrated_logit: float64 [n].
        probability: float64 [n], of a response, in (0, 1).
        field_value_id: int32 [n], 0 = unseen or null.
    """

    uncalibrated_logit: Float32
    calibrated_logit: Float64
    probability: Float64
    field_value_id: Int32


@dataclass(frozen=True)
class MergedModel(Base):
    """A checkpoint in memory: a base model whose field values are known, and what calibrates it.

    Attributes:
        serving_map: a row for each field value.
        auxiliary: a network on the row's features whose logit is added; None where there is none.
    """

    serving_map: PiecewiseLinearMap
    auxiliary: nn.Module | None

    @property
    def field_values(self) -> list[str | None]:
        """The field value of every id; None for the id 0."""
        return self.encoder.field_values.names

    def predict(self, table: pa.Table) -> Prediction:
        """The prediction for every row of a log; columns in any order, others are not read.

        Raises:
            DataError: a column is missing or does not hold what it should.
        """
        encoded = self.encoder.encode(table)
        logit, ids = self.uncalibrated_logit(encoded, BATCH_ROWS), encoded.field_value_id
        calibrated = self.serving_map(logit, ids) + self.auxiliary_term(encoded)
        inside = np.clip(expit(calibrated), PROBABILITY_CLIP, 1 - PROBABILITY_CLIP)
        return Prediction(logit, calibrated, inside, ids)

    @torch.inference_mode()
    def auxiliary_term(self, encoded: Encoded) -> np.ndarray | float:
        """What the auxiliary network adds to the calibrated logit of rows: float64 [n], or 0."""
        if self.auxiliary is None:
            return 0.0
        ids = torch.tensor(encoded.categorical, dtype=torch.int64)
        return self.auxiliary(ids, torch.tensor(encoded.numeric)).double().numpy()


def end_to_end_tolerance(serving_map: PiecewiseLinearMap) -> float:
    """How far a calibrated logit may lie from another runtime's, by the map's steepest slope."""
    return END_TO_END * max(1.0, float(np.abs(serving_map.segment_slopes).max()))


def vectors_of(model: MergedModel) -> dict[str, Any]:
    """The test vectors of a model.

    Returns:
        `columns`: NAME → value of each row, which /score takes as they are: known field values,
        null, and one that is unseen; `expected`: what the model says of the rows; `tolerance`: how
        far a logit may lie from that.
    """
    encoder = model.encoder
    columns: dict[str, list[Any]] = {n: _some(known) for n, known in encoder.categorical.items()}
    columns |= _field_columns(encoder)
    for column in encoder.numeric:
        both = columns.get(column.name)
        columns[column.name] = [*map(_as_number, both)] if both else _numbers(column)
    rows = range(max(map(len, columns.values())))
    columns = {name: [some[row % len(some)] for row in rows] for name, some in columns.items()}
    said = model.predict(pa.table(columns))
    return {
        "columns": columns,
        "expected": {name: values.tolist() for name, values in vars(said).items()},
        "tolerance": end_to_end_tolerance(model.serving_map),
    }


def _field_columns(encoder: Encoder) -> dict[str, list[Any]]:
    """Known field values, then pairs, and unseen ones of known parents."""
    values, names = encoder.field_values, [*encoder.field, *encoder.parents]
    unknown: list[Any] = [UNSEEN] * len(names)
    keys = _spread([*values.pairs]) + _spread([*values.parents])
    parts = [(unknown + key.split(SEPARATOR))[-len(names) :] for key in keys]
    above = [dict(zip(names, each, strict=True)) for each in [*parts, unknown]]
    rows = [
        above[row % len(above)] | dict(zip(encoder.field, _parts(key, encoder), strict=True))
        for row, key in enumerate(_some(values))
    ]
    rows += above if encoder.parents else []
    return {name: [row[name] for row in rows] for name in names}


def _parts(key: str | None, encoder: Encoder) -> Sequence[Any]:
    alone = key is None or key == UNSEEN or len(encoder.field) == 1
    return [key] * len(encoder.field) if alone else str(key).split(SEPARATOR)


def _some(vocabulary: Vocabulary) -> list[str | None]:
    return [*_spread(vocabulary.values), *vocabulary.pooled[:1], None, UNSEEN]


def _spread(names: Sequence[str]) -> list[str]:
    """Some names from all over, in their order."""
    places = np.linspace(0, len(names) - 1, min(VALUES, len(names))).round().astype(int)
    return [names[place] for place in dict.fromkeys(places.tolist())]


def _numbers(column: Scaling | LoggedScore) -> list[float]:
    if isinstance(column, LoggedScore):
        logits = np.array(LOGITS)
        return (logits if column.space == "logit" else 1 / (1 + np.exp(-logits))).tolist()
    scaled = column.mean + column.scale * np.array(DEVIATIONS)
    size = np.expm1(np.minimum(np.abs(scaled), 709.0))  # which is near the largest float64
    return (np.sign(scaled) * size).tolist()


def _as_number(text: str | None) -> float | None:
    """The number of a column that is read as text as well; null where it is none."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if number.is_integer() and str(int(number)) == text else None
