"""Rows of a log as the arrays that the base network reads; everything it needs is in a manifest."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.core.errors import DataError
from pipeline.encoding.scaling import NumberSums, Scaling, Served
from pipeline.encoding.values import as_numbers, field_keys
from pipeline.encoding.vocabulary import ValueCounts, Vocabulary


@dataclass(frozen=True)
class Encoded:
    """Rows as the base network reads them.

    Attributes:
        categorical: int32 [n, C], ids in [0, size of the vocabulary]; 0 = unseen or null.
        numeric: float32 [n, N], standardised, finite.
        field_value_id: int32 [n]; 0 = unseen or null.
    """

    categorical: np.ndarray
    numeric: np.ndarray
    field_value_id: np.ndarray

    def __len__(self) -> int:
        return len(self.field_value_id)


@dataclass(frozen=True)
class Encoder:
    """What turns rows into arrays: a vocabulary for each categorical feature and for the field.

    Attributes:
        categorical: feature → its vocabulary, in the order of the network's inputs.
        numeric: scalings, in that order too; or alone the score that was served.
        field: columns whose joint value is calibrated.
        field_values: the vocabulary of their keys.
    """

    categorical: Mapping[str, Vocabulary]
    numeric: tuple[Scaling | Served, ...]
    field: tuple[str, ...]
    field_values: Vocabulary

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> "Encoder":
        """The encoder that a base model's manifest describes."""
        return cls(
            {f["name"]: _vocabulary(f) for f in manifest["categorical"]},
            tuple((Served if "space" in f else Scaling)(**f) for f in manifest["numeric"]),
            tuple(manifest["field"]["columns"]),
            _vocabulary(manifest["field"]),
        )

    def manifest(self) -> dict[str, Any]:
        """The encoder as JSON can hold it: `categorical`, `numeric` and `field`."""
        return {
            "categorical": [
                {"name": name, "values": known.names} for name, known in self.categorical.items()
            ],
            "numeric": [vars(scaling) for scaling in self.numeric],
            "field": {
                "columns": list(self.field),
                "values": self.field_values.names,
                "pooled": list(self.field_values.pooled),
            },
        }

    @property
    def vocabulary_sizes(self) -> list[int]:
        """Number of ids of every categorical feature, the id 0 included."""
        return [len(vocabulary) + 1 for vocabulary in self.categorical.values()]

    @property
    def numeric_columns(self) -> list[str]:
        """Names of the columns of `Encoded.numeric`."""
        return [name for scaling in self.numeric for name in scaling.columns]

    def encode(self, table: pa.Table) -> Encoded:
        """The rows of `table`, in their order.

        Raises:
            DataError: a column is missing or does not hold what it should.
        """
        categorical = np.empty((table.num_rows, len(self.categorical)), dtype=np.int32)
        for position, (name, vocabulary) in enumerate(self.categorical.items()):
            categorical[:, position] = vocabulary.ids(field_keys(table, [name]))
        numeric = [scaling(_numbers(table, scaling.name)) for scaling in self.numeric]
        return Encoded(
            categorical,
            np.concatenate([np.empty((table.num_rows, 0), np.float32), *numeric], axis=1),
            self.field_values.ids(field_keys(table, self.field)),
        )


def _vocabulary(described: Mapping[str, Any]) -> Vocabulary:
    """What a manifest says of a feature's or a field's values."""
    return Vocabulary.of_names(described["values"], described.get("pooled", ()))


def encode(table: pa.Table, manifest: Mapping[str, Any]) -> Encoded:
    """The rows of `table` as the network of `manifest` reads them.

    Raises:
        DataError: as `Encoder.encode`.
    """
    return Encoder.from_manifest(manifest).encode(table)


class EncoderSums:
    """What an encoder is learned from, added up a day at a time.

    Args:
        categorical, numeric: features.
        field: columns whose joint value is calibrated.
    """

    def __init__(
        self, categorical: Sequence[str], numeric: Sequence[str], field: Sequence[str]
    ) -> None:
        self._categorical = {name: ValueCounts() for name in categorical}
        self._numeric = {name: NumberSums() for name in numeric}
        self._field, self._field_values = tuple(field), ValueCounts()

    def add_features(self, table: pa.Table) -> None:
        """Add the features of a day's rows.

        Raises:
            DataError: a column is missing or does not hold what it should.
        """
        for name, counts in self._categorical.items():
            counts.add(field_keys(table, [name]))
        for name, sums in self._numeric.items():
            sums.add(_numbers(table, name))

    def add_field_values(self, table: pa.Table) -> None:
        """Add the field values of a day's rows.

        Raises:
            DataError: a column is missing or cannot name values.
        """
        self._field_values.add(field_keys(table, self._field))

    def encoder(self, max_vocabulary: int, max_field_values: int | None) -> Encoder:
        """The encoder of what was added.

        Args:
            max_vocabulary: values of a categorical feature with an id of their own.
            max_field_values: ids of field values; the rarer ones are pooled. None: all.
        """
        counts, sums = self._categorical.items(), self._numeric.items()
        return Encoder(
            {name: Vocabulary.of(values, max_vocabulary) for name, values in counts},
            tuple(numbers.scaling(name) for name, numbers in sums),
            self._field,
            Vocabulary.of_field(self._field_values, max_field_values),
        )


def pooled_share(
    days: Iterable[tuple[str, pa.Table]],
    columns: Sequence[str],
    vocabulary: Vocabulary,
    label: str,
    impressions: str | None,
) -> dict[str, float]:
    """What the pooled field values hold of all impressions and responses; empty if none is pooled.

    Args:
        days: days and their rows, read only where a value is pooled.
        columns: of the field.
        vocabulary: of the field.
        label, impressions: as of `counts`.

    Returns:
        `field_values` (how many are pooled), `impressions`, `impression_share`, `responses`,
        `response_share`; a share of nothing is 0.

    Raises:
        DataError: as `counts`; the day is named.
    """
    if not vocabulary.pooled:
        return {}
    sums = np.zeros((2, 2), np.int64)
    for day, table in days:
        with named(day):
            pooled = vocabulary.is_pooled(vocabulary.ids(field_keys(table, columns)))
            amounts = np.stack(counts(table, label, impressions)).astype(np.int64)
        sums += np.stack([amounts[:, pooled].sum(axis=1), amounts.sum(axis=1)])
    shares = sums[0] / np.maximum(sums[1], 1)
    return {
        "field_values": len(vocabulary.pooled),
        "impressions": int(sums[0, 0]),
        "impression_share": float(shares[0]),
        "responses": int(sums[0, 1]),
        "response_share": float(shares[1]),
    }


def _numbers(table: pa.Table, name: str) -> np.ndarray:
    """The numbers of a column as float64 [n], NaN where null; what is infinite is refused."""
    if name not in table.column_names:
        raise DataError(f"column {name} is missing; the table has {table.column_names}")
    try:
        values = as_numbers(table.column(name))
    except DataError as error:
        raise DataError(f"column {name}: {error}") from None
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        raise DataError(
            f"column {name} is {values[row]} in row {row}; a logarithm of 0 or a division by 0 "
            f"made it: give the raw value, or null where there is none"
        )
    return values


def counts(table: pa.Table, label: str, impressions: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Impressions and responses of every row: int32 [n] each.

    Args:
        table: rows of a log.
        label: column with the response: 0 or 1, or their number where a row is an aggregate.
        impressions: column with the impressions of a row; None: every row is one.

    Raises:
        DataError: a count is null, negative or not whole, or there are more responses than
            impressions in a row.
    """
    responses = _whole(table, label)
    shown = np.ones_like(responses) if impressions is None else _whole(table, impressions)
    if (responses > shown).any():
        row = int(np.flatnonzero(responses > shown)[0])
        raise DataError(
            f"column {label} has {responses[row]} responses of {shown[row]} impressions in row "
            f"{row}; name the column with impressions in log.impressions, or repair the day"
        )
    return shown, responses


def weights(table: pa.Table, column: str | None) -> np.ndarray | float:
    """The weight of every row, float64 [n]; 1 where no column has it.

    Raises:
        DataError: the column is missing or holds what is no number.
    """
    return 1.0 if column is None else _numbers(table, column)


def _whole(table: pa.Table, name: str) -> np.ndarray:
    values = _numbers(table, name)
    wrong = ~((values >= 0) & (values <= np.iinfo(np.int32).max) & (values == np.trunc(values)))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise DataError(
            f"column {name} must hold whole numbers from 0, row {row} has {values[row]}"
        )
    return values.astype(np.int32)


@contextmanager
def named(day: str) -> Iterator[None]:
    """Whatever is wrong with rows inside, the sentence begins with their day."""
    try:
        yield
    except DataError as error:
        raise DataError(f"day {day}: {error}") from None
