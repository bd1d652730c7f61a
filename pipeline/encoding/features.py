"""Rows of a log as the arrays that the base network reads; all it needs is in a manifest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.core.errors import DataError
from pipeline.encoding.values import field_keys, logged_logit, names_above, numbers_of, placed
from pipeline.encoding.vocabulary import ValueCounts, Vocabulary

LARGEST_SCALED = 6.0  # standard deviations; a value further out is served as if it were there
NOTHING_KNOWN = Vocabulary(())
SMALLEST_SPREAD = 1e-6  # of the mean's size; a feature that varies less is a constant


def signed_log(values: np.ndarray) -> np.ndarray:
    """sign(x) · ln(1 + |x|): near zero the value itself, far out its logarithm on either side.

    Counters and amounts span powers of ten, and some are negative; unlike ln(1 + x), this is
    finite for every finite x.
    """
    return np.sign(values) * np.log1p(np.abs(values))


class NumberSums:
    """What a scaling is learned from, added up a day at a time."""

    def __init__(self) -> None:
        self._rows, self._missing, self._total, self._squares = 0, 0, 0.0, 0.0

    def add(self, values: np.ndarray) -> None:
        """Add the numbers of more rows, float64 [n], NaN where null."""
        present = signed_log(values[~np.isnan(values)])
        self._rows += len(present)
        self._missing += len(values) - len(present)
        self._total += float(present.sum())
        self._squares += float(present @ present)

    def scaling(self, name: str) -> "Scaling":
        """The scaling of the feature `name`, whose numbers these were."""
        mean = self._total / self._rows if self._rows else 0.0
        spread = max(self._squares / self._rows - mean**2, 0.0) ** 0.5 if self._rows else 0.0
        constant = spread <= SMALLEST_SPREAD * max(1.0, abs(mean))
        return Scaling(name, mean, 0.0 if constant else spread, self._missing > 0)


@dataclass(frozen=True)
class Scaling:
    """How one numeric feature becomes one or two columns.

    Attributes:
        name: the column in the log.
        mean: mean of `signed_log` over the rows it was fitted on, nulls left out.
        scale: standard deviation there; 0 for a constant, from which nothing was learned: its
            column is 0 whatever value comes.
        missing: whether a second column marks nulls (1) and values (0): only where there were
            nulls to learn from. The first column is 0, the mean, in a null row.
    """

    name: str
    mean: float
    scale: float
    missing: bool

    @property
    def columns(self) -> list[str]:
        """Names of the columns this feature becomes."""
        return [self.name, f"{self.name}.missing"] if self.missing else [self.name]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """The feature as float32 [n, 1] or [n, 2], within ±6 standard deviations.

        Args:
            values: float64 [n], finite, or NaN where null.
        """
        absent = np.isnan(values)
        inverse = 1.0 / self.scale if self.scale else 0.0
        scaled = (signed_log(values) - self.mean) * inverse
        scaled = np.where(absent, 0.0, np.clip(scaled, -LARGEST_SCALED, LARGEST_SCALED))
        parts = [scaled, absent] if self.missing else [scaled]
        return np.stack(parts, axis=1).astype(np.float32)


@dataclass(frozen=True)
class LoggedScore:
    """The logged score, as the one column of a network that passes it on.

    Attributes:
        name: the column in the log.
        space: "logit" or "probability".
    """

    name: str
    space: str

    @property
    def columns(self) -> list[str]:
        """Name of the column this score becomes."""
        return [self.name]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """The logged logit, float32 [n, 1].

        Raises:
            DataError: as `logged_logit`; the column is named.
        """
        with placed(f"column {self.name}: "):
            return logged_logit(values, self.space)[:, np.newaxis]


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


@dataclass(frozen=True)
class Encoder:
    """What turns rows into arrays: a vocabulary for each categorical feature and for the field.

    Attributes:
        categorical: feature → its vocabulary, in the order of the network's inputs.
        numeric: scalings, in that order too; or alone the logged score.
        field: columns whose joint value is calibrated.
        field_values: the vocabulary of their keys; none is known to a base model.
        parents: columns that a field value belongs to, from near to far.
    """

    categorical: Mapping[str, Vocabulary]
    numeric: tuple[Scaling | LoggedScore, ...]
    field: tuple[str, ...]
    field_values: Vocabulary = NOTHING_KNOWN
    parents: tuple[str, ...] = ()

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> "Encoder":
        """The encoder that the manifest of a base model, or of what was merged, describes."""
        return cls(
            {f["name"]: _vocabulary(f) for f in manifest["categorical"]},
            tuple((LoggedScore if "space" in f else Scaling)(**f) for f in manifest["numeric"]),
            tuple(manifest["field"]["columns"]),
            _vocabulary(manifest["field"]),
            tuple(manifest["field"].get("parents", ())),
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
                **({"parents": list(self.parents)} if self.parents else {}),
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

    def features(self, table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """`categorical` and `numeric` of `Encoded`, of the rows of `table` in their order.

        Raises:
            DataError: a column is missing or does not hold what it should.
        """
        categorical = np.empty((table.num_rows, len(self.categorical)), dtype=np.int32)
        for position, (name, vocabulary) in enumerate(self.categorical.items()):
            categorical[:, position] = vocabulary.ids(field_keys(table, [name]))
        numeric = [scaling(_numbers(table, scaling.name)) for scaling in self.numeric]
        none = np.empty((table.num_rows, 0), np.float32)
        return categorical, np.concatenate([none, *numeric], axis=1)

    def encode(self, table: pa.Table) -> Encoded:
        """The rows of `table`, in their order.

        Raises:
            DataError: a column is missing or does not hold what it should.
        """

        def above(rows: pa.Array) -> list[pa.StringArray]:
            return names_above(table.take(rows), self.field, self.parents)

        keys = field_keys(table, self.field)
        ids = self.field_values.ids(keys, above if self.parents else None)
        return Encoded(*self.features(table), ids)


def _vocabulary(described: Mapping[str, Any]) -> Vocabulary:
    """What a manifest says of a feature's or a field's values."""
    return Vocabulary.of_names(described.get("values", ()), described.get("pooled", ()))


class EncoderSums:
    """What an encoder's features are learned from, added up a day at a time.

    Args:
        categorical, numeric: features.
    """

    def __init__(self, categorical: Sequence[str], numeric: Sequence[str]) -> None:
        self._categorical = {name: ValueCounts() for name in categorical}
        self._numeric = {name: NumberSums() for name in numeric}

    def add_features(self, table: pa.Table) -> None:
        """Add the features of a day's rows.

        Raises:
            DataError: a column is missing or does not hold what it should.
        """
        for name, values in self._categorical.items():
            values.add(field_keys(table, [name]))
        for name, sums in self._numeric.items():
            sums.add(_numbers(table, name))

    def encoder(
        self, max_vocabulary: int, field: Sequence[str], parents: Sequence[str] = ()
    ) -> Encoder:
        """The encoder of what was added.

        Args:
            max_vocabulary: values of a categorical feature with an id of their own.
            field: columns whose joint value is calibrated.
            parents: columns that it belongs to, from near to far.
        """
        features, sums = self._categorical.items(), self._numeric.items()
        return Encoder(
            {name: Vocabulary.of(values, max_vocabulary) for name, values in features},
            tuple(numbers.scaling(name) for name, numbers in sums),
            tuple(field),
            parents=tuple(parents),
        )


def _numbers(table: pa.Table, name: str) -> np.ndarray:
    """The numbers of a column as float64 [n], NaN where null; what is infinite is refused."""
    values = numbers_of(table, name)
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        raise DataError(
            f"column {name} is {values[row]} in row {row}; a logarithm of 0 or a division by 0 "
            f"made it: give the raw value, or null where there is none"
        )
    return values
