"""Score a Parquet file of any length: a batch in memory at a time, a whole output file or none."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.errors import DataError
from pipeline.core.files import publish
from pipeline.serving.predictor import SCHEMA, Predictor, ServedScores

BATCH_ROWS = 65_536


@dataclass(frozen=True)
class Counted:
    """What was seen while scoring.

    Attributes:
        rows: all of them.
        unseen: with a field value that no vocabulary holds; null is none.
        out_of_range: with a logit beyond the outermost knots of its field value.
    """

    rows: int
    unseen: int
    out_of_range: int

    def __str__(self) -> str:
        return (
            f"{self.rows} rows scored, {self.unseen} with an unseen field value, "
            f"{self.out_of_range} with a score outside the calibrated range"
        )


def rows_of(source: Path) -> int:
    """How many rows a Parquet file has.

    Raises:
        DataError: the file is missing or damaged.
    """
    with _opened(source, []) as file:
        return int(file.metadata.num_rows)


def score_file(
    predictor: Predictor,
    source: Path,
    target: Path,
    report: Callable[[int], None] = lambda _: None,
) -> Counted:
    """Publish the scores of a Parquet file's rows, in their order, with the columns of `SCHEMA`.

    Args:
        report: called with the rows that were scored since the last call.

    Raises:
        DataError: the file is missing, damaged, lacks a column, or holds what it should not; the
            sentence names the column, the first row of the batch, and the row counted from there.
            Or the scores would replace the rows.
        ArtifactError: the scores would replace a folder.
    """
    rows = unseen = out_of_range = 0
    if target.exists() and source.exists() and target.samefile(source):
        raise DataError(f"{target} holds the rows themselves; name another file for their scores")
    with (
        _opened(source, predictor.columns) as file,
        publish(target) as temporary,
        pq.ParquetWriter(temporary, SCHEMA, compression="zstd") as writer,
    ):
        for batch in _batches(file, predictor.columns, source):
            scores = _scored(predictor, batch, f"{source}, batch from row {rows} on")
            writer.write_batch(scores.batch())
            rows += len(scores)
            report(len(scores))
            unseen += int(scores.unseen.sum())
            out_of_range += int(scores.out_of_range.sum())
    return Counted(rows, unseen, out_of_range)


def _scored(predictor: Predictor, batch: pa.RecordBatch, place: str) -> ServedScores:
    try:
        return predictor.predict(batch)
    except DataError as error:
        raise DataError(f"{place}: {error}") from None


def _begins_as_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


@contextmanager
def _opened(source: Path, columns: list[str]) -> Iterator[pq.ParquetFile]:
    try:
        file = pq.ParquetFile(source)
    except FileNotFoundError:
        raise DataError(f"{source} does not exist; name a Parquet file") from None
    except (pa.ArrowInvalid, OSError) as error:
        if source.is_file() and not _begins_as_parquet(source):
            raise DataError(
                f"{source} is no Parquet file; write its rows as one: field values and categories "
                "as text, numbers as numbers"
            ) from None
        raise DataError(f"{source} is not a whole Parquet file ({error}); write it again") from None
    with file:
        missing = [name for name in columns if name not in file.schema_arrow.names]
        if missing:
            raise DataError(
                f"{source}: column {missing[0]} is missing, the model reads {columns}; add it"
            )
        yield file


def _batches(file: pq.ParquetFile, columns: list[str], source: Path) -> Iterator[pa.RecordBatch]:
    try:
        yield from file.iter_batches(BATCH_ROWS, columns=columns)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{source} is damaged inside ({error}); write it again") from None
