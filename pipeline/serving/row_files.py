"""Files of rows that are scored: Parquet and CSV, a batch at a time."""

import csv
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import TextIOWrapper
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from pipeline.core.errors import DataError
from pipeline.encoding.reading import Reading
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


def _packing(path: Path) -> str | None:
    return "gzip" if path.suffix.lower() == ".gz" else None


def is_rows(path: Path) -> bool:
    """Whether a file in a folder is one to score, as all are but hidden ones and `_SUCCESS`."""
    return path.is_file() and path.name[0] not in "._"


@contextmanager
def opened(
    source: Path, predictor: Predictor, keep: Sequence[str]
) -> Iterator[tuple[list[pa.Field], Iterator[RowBatch]]]:
    """The fields of the columns to keep, and the rows.

    CSV is parted as the log's files were where its header is, else by commas, and the first line
    names the columns; what is kept and no number of the model's is text, and
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
    packing, blocks = _packing(source), pc.ReadOptions(block_size=BLOCK_BYTES)
    with pa.input_stream(source, packing) as stream:
        header = stream.read(BLOCK_BYTES).partition(b"\n")[0]
    log = predictor.reading or Reading()
    log = log if log.delimiter.encode() in header else Reading()
    lines = pc.ParseOptions(
        delimiter=log.delimiter, quote_char=log.quote or False, newlines_in_values=True
    )
    _refuse_open_quotes(source, log)
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


def _refuse_open_quotes(source: Path, log: Reading) -> None:
    """Refuse a value that goes on after its closing quote, which Arrow joins without a word."""
    with pa.input_stream(source, _packing(source)) as stream:
        blocks = iter(partial(stream.read, BLOCK_BYTES), b"")
        if not log.quote or not any(log.quote.encode() in block for block in blocks):
            return
    csv.field_size_limit(BLOCK_BYTES)
    with pa.input_stream(source, _packing(source)) as stream:
        text = TextIOWrapper(stream, "latin-1", newline="")
        records = csv.reader(text, delimiter=log.delimiter, quotechar=log.quote, strict=True)
        try:
            deque(records, 0)
        except csv.Error as error:
            line = f"{source}, line {records.line_num}"
            raise DataError(f"{line}: {error}; double the quotes inside a value") from None


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
        with (
            pa.output_stream(place, compression=_packing(form)) as stream,
            pc.CSVWriter(stream, schema) as lines,
        ):
            yield lines.write_batch
    else:
        with pq.ParquetWriter(place, schema, compression="zstd") as columns:
            yield columns.write_batch
