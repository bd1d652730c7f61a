"""Columns of one length as one frozen thing, their types, and the Parquet files that hold them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Self, TypeVar, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.errors import AdaCalibError, ArtifactError, DataError

# What a field of `Columns` is in memory, and in a file.
Int32 = Annotated[np.ndarray, pa.int32()]
Int64 = Annotated[np.ndarray, pa.int64()]
Bool = Annotated[np.ndarray, pa.bool_()]
Float32 = Annotated[np.ndarray, pa.float32()]
Float64 = Annotated[np.ndarray, pa.float64()]


@dataclass(frozen=True)
class Columns:
    """Arrays of one length: what they hold at one place is a row; other fields are about all rows.

    Raises:
        DataError: the lengths differ.
    """

    def __post_init__(self) -> None:
        lengths = {name: len(column) for name, column in self.columns().items()}
        if len(set(lengths.values())) != 1:
            kind = type(self).__name__
            raise DataError(f"{kind} needs columns of one length, these have {lengths}")

    def __len__(self) -> int:
        return len(next(iter(self.columns().values())))

    @classmethod
    def schema(cls) -> pa.Schema:
        """The columns' names and their types in a file."""
        return pa.schema([(f.name, get_args(f.type)[1]) for f in fields(cls) if get_args(f.type)])

    def columns(self) -> dict[str, np.ndarray]:
        """The arrays by their names."""
        return {f.name: getattr(self, f.name) for f in fields(self) if get_args(f.type)}

    def take(self, rows: np.ndarray | slice) -> Self:
        """The rows that a boolean mask or an index array picks, as copies; a slice gives views."""
        return replace(self, **{name: column[rows] for name, column in self.columns().items()})


Kind = TypeVar("Kind", bound=Columns)


def joined(parts: Sequence[Kind]) -> Kind:
    """The rows of parts that have all else in common, one part after the other, as copies."""
    columns = [part.columns() for part in parts]
    return replace(parts[0], **{n: np.concatenate([c[n] for c in columns]) for n in columns[0]})


def read_columns(
    path: Path,
    remedy: str,
    columns: Sequence[str] | None = None,
    refusal: type[AdaCalibError] = ArtifactError,
) -> pa.Table:
    """Some columns of a Parquet file, in the order in which they are named; None: all.

    Args:
        path: of the file.
        remedy: what a sentence says to do.
        columns: their names.
        refusal: the error to raise.

    Raises:
        refusal: the file is missing, damaged, or lacks a column; the sentence names it.
    """
    try:
        with pq.ParquetFile(path) as file:
            held = file.schema_arrow.names
            wanted = held if columns is None else [*columns]
            missing = [name for name in wanted if name not in held]
            if not missing:
                return file.read(wanted).select(wanted)
    except FileNotFoundError:
        raise refusal(f"{path} is missing; {remedy}") from None
    except (pa.ArrowInvalid, OSError) as error:
        reason = str(error).splitlines()[0]
        raise refusal(f"{path} is no whole Parquet file: {reason}; {remedy}") from None
    raise refusal(f"{path} lacks the column {missing[0]}, it has {held}; {remedy}")


def read_parquet(path: Path, stage: str, *schemas: pa.Schema) -> pa.Table:
    """The columns of a file that has one of some schemas, which have the same names, or any.

    Raises:
        ArtifactError: the file is missing, damaged, or has other columns; the sentence names the
            stage that makes it.
    """
    remedy = f"run dvc repro {stage} (where it finds nothing changed, remove the file first)"
    table = read_columns(path, remedy, schemas[0].names if schemas else None)
    if schemas and table.schema not in schemas:
        types = dict(zip(table.column_names, map(str, table.schema.types), strict=True))
        raise ArtifactError(f"{path} has the columns {types}, not those of {stage}; {remedy}")
    return table
