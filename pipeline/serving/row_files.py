"""Files of rows that are scored: Parquet and CSV, a batch at a time."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from pipeline.core.errors import DataError
from pipeline.encoding.values import placed
from pipeline.serving.predictor import Predictor

BATCH_ROWS = 65_536
BLOCK_BYTES = 8 << 20  # of a CSV file
CSV = (".csv", ".csv.gz")


@dataclass(frozen=True)
class RowBatch:
    """Rows that are scored together.

    Attributes:
        rows: of the columns that are read or kept.
        first_row: its place in the file, from 0.
        bytes_read: of the file, about, since the batch before.
    """

    rows: pa.RecordBatch
    first_row: int
    bytes_read: int


def is_csv(path: Path) -> bool:
    """Whether a file's name says so."""
    return path.name.lower().endswith(CSV)


def is_rows(path: Path) -> bool:
    """Whether a file's name says that it holds rows; hidden ones and `_SUCCESS` do not."""
    holds_rows = is_csv(path) or path.suffix == ".parquet"
    return path.is_file() and holds_rows and path.name[0] not in "._"


@contextmanager
def opened(
    source: Path, predictor: Predictor, keep: Sequence[str]
) -> Iterator[tuple[list[pa.Field], Iterator[RowBatch]]]:
    """The fields of the columns to keep, and the rows.

    In CSV the first line names the columns; what is kept and no number of the model's is text, and
    an empty cell, quoted or not, is null, as where a log is landed.

    Raises:
        DataError: the file is missing, damaged or lacks a column, when it is opened or read.
    """
    try:
        with (_csv if is_csv(source) else _parquet)(source, keep, predictor) as (schema, rows):
            yield [schema.field(name) for name in keep], rows
    except FileNotFoundError:
        raise DataError(f"{source} does not exist; name a Parquet or CSV file") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{source} is no whole file of rows ({error}); write it again as Parquet, or as text "
            "that is called .csv or .csv.gz"
        ) from None


def _taken(
    source: Path, names: Sequence[str], keep: Sequence[str], predictor: Predictor
) -> list[str]:
    """The columns to read of a file that has `names`."""
    missing = [name for name in keep if name not in names]
    if missing:
        raise DataError(
            f"{source}: column {missing[0]} is missing, the file has {names[:20]}; add it, "
            "or leave it out of --keep"
        )
    with placed(f"{source}: "):
        return list(dict.fromkeys([*predictor.columns_in(names), *keep]))


@contextmanager
def _parquet(
    source: Path, keep: Sequence[str], predictor: Predictor
) -> Iterator[tuple[pa.Schema, Iterator[RowBatch]]]:
    with pq.ParquetFile(source) as file:
        size = source.stat().st_size / max(1, file.metadata.num_rows)
        columns = _taken(source, file.schema_arrow.names, keep, predictor)

        def batches() -> Iterator[RowBatch]:
            first = 0
            for rows in file.iter_batches(BATCH_ROWS, columns=columns):
                yield RowBatch(rows, first, round(size * len(rows)))
                first += len(rows)

        yield file.schema_arrow, batches()


@contextmanager
def _csv(
    source: Path, keep: Sequence[str], predictor: Predictor
) -> Iterator[tuple[pa.Schema, Iterator[RowBatch]]]:
    lines, blocks = pc.ParseOptions(newlines_in_values=True), pc.ReadOptions(block_size=BLOCK_BYTES)
    packing = "gzip" if source.suffix == ".gz" else None
    with pa.input_stream(source, packing) as stream:
        names = pc.open_csv(stream, blocks, lines).schema.names
    columns = _taken(source, names, keep, predictor)
    with source.open("rb") as raw, pa.input_stream(raw, packing) as stream:
        reader = pc.open_csv(stream, blocks, lines, _conversion(columns, predictor))

        def batches() -> Iterator[RowBatch]:
            first = place = 0
            for rows in reader:
                yield RowBatch(rows, first, raw.tell() - place)
                first, place = first + len(rows), raw.tell()

        yield reader.schema, batches()


def _conversion(columns: list[str], predictor: Predictor) -> pc.ConvertOptions:
    """All is text where it is known how the log's numbers are spelled."""
    reading, texts = predictor.reading, dict.fromkeys(columns, pa.string())
    numbers = {} if reading else dict.fromkeys(predictor.number_columns, pa.float64())
    return pc.ConvertOptions(
        column_types=texts | numbers,
        include_columns=columns,
        null_values=[""],
        strings_can_be_null=reading is None or "" in reading.nulls,
    )


@contextmanager
def written(
    place: Path, form: Path, schema: pa.Schema
) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """What writes batches into the file `place`, in the format that the name `form` has."""
    if is_csv(form):
        packing = "gzip" if form.suffix == ".gz" else None
        with (
            pa.output_stream(place, compression=packing) as stream,
            pc.CSVWriter(stream, schema) as lines,
        ):
            yield lines.write_batch
    else:
        with pq.ParquetWriter(place, schema, compression="zstd") as columns:
            yield columns.write_batch
