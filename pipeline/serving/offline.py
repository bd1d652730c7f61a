"""Score files of any length: batches in memory at a time, whole outputs or none.

Files of rows that are scored: Parquet and CSV, a batch at a time.
"""

import csv
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import TextIOWrapper
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from pipeline.core.errors import ArtifactError, DataError
from pipeline.core.files import publish, refuse_pipe, remove_unfinished
from pipeline.core.work import made_ahead
from pipeline.encoding.reading import Reading
from pipeline.encoding.values import placed, refuse_doubled
from pipeline.serving.predictor import SCHEMA, Predictor, ServedScores, verified

BATCH_ROWS = 65_536
BLOCK_BYTES = 8 << 20  # of a CSV file
CSV = (".csv", ".csv.gz")
UNWRITTEN = r"\.(tsv|txt|jsonl?|ndjson|arrow|feather|orc|avro|xlsx|gz|bz2|xz|zst|zip|lz4)$"


@dataclass(frozen=True)
class RowBatch:
    """Rows that are scored together.

    Attributes:
        rows: of the columns that are read or kept.
        first_row: its place in the file, from 0.
        bytes_read: of the file, about, since the batch before.
    """

    rows: pa.RecordBatch | pa.Table
    first_row: int
    bytes_read: int


def is_csv(path: Path) -> bool:
    """Whether a file's name says so."""
    return path.name.lower().endswith(CSV)


def _packing(path: Path) -> str | None:
    return "gzip" if path.suffix.lower() == ".gz" else None


def batches_of(source: Path, predictor: Predictor, keep: Sequence[str]) -> Iterator[RowBatch]:
    """The rows of a file; the first batch has none, and is there for its schema.

    CSV is parted as the log's files were where its header is, else by commas, and the first line
    names the columns; what is kept and no number of the model's is text, and
    an empty cell, quoted or not, is null, as where a log is landed.

    Raises:
        DataError: the file is missing, damaged or lacks a column.
    """
    try:
        yield from (_csv if is_csv(source) else _parquet)(source, keep, predictor)
    except FileNotFoundError:
        raise DataError(f"{source} does not exist; name a Parquet or CSV file") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())  # a value may hold a line break
        raise DataError(
            f"{source} is no whole file of rows ({reason}); write it again as Parquet, or as UTF-8 "
            "text that is called .csv or .csv.gz"
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
        taken = list(dict.fromkeys([*predictor.columns_in(names), *keep]))
        refuse_doubled(taken, names)
    return taken


def _parquet(source: Path, keep: Sequence[str], predictor: Predictor) -> Iterator[RowBatch]:
    with pq.ParquetFile(source) as file:
        size = source.stat().st_size / max(1, file.metadata.num_rows)
        schema, first = file.schema_arrow, 0
        columns = _taken(source, schema.names, keep, predictor)
        yield RowBatch(schema.empty_table(), 0, 0)
        for rows in file.iter_batches(BATCH_ROWS, columns=columns):
            yield RowBatch(rows, first, round(size * len(rows)))
            first += len(rows)


def _csv(source: Path, keep: Sequence[str], predictor: Predictor) -> Iterator[RowBatch]:
    packing, blocks = _packing(source), pc.ReadOptions(block_size=BLOCK_BYTES)
    with pa.input_stream(source, packing) as stream:
        header = stream.read(BLOCK_BYTES).partition(b"\n")[0]
    log = predictor.reading or Reading()
    log = log if log.delimiter.encode() in header else Reading()
    lines = pc.ParseOptions(
        delimiter=log.delimiter, quote_char=log.quote or False, newlines_in_values=True
    )
    with pa.input_stream(source, packing) as stream:
        names = pc.open_csv(stream, blocks, lines).schema.names
    columns = _taken(source, names, keep, predictor)
    _refuse_open_quotes(source, log)
    with source.open("rb") as raw, pa.input_stream(raw, packing) as stream:
        reader = pc.open_csv(stream, blocks, lines, _conversion(columns, predictor))
        yield RowBatch(reader.schema.empty_table(), 0, 0)
        first = place = 0
        for rows in reader:
            yield RowBatch(rows, first, raw.tell() - place)
            first, place = first + len(rows), raw.tell()


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
    """What writes batches into the file `place`, in the format that the name `form` has.

    Raises:
        DataError: the format has no form for a column that is kept.
    """
    try:
        if is_csv(form):
            with (
                pa.output_stream(place, compression=_packing(form)) as stream,
                pc.CSVWriter(stream, schema) as lines,
            ):
                yield lines.write_batch
        else:
            # scores hardly come twice, so a dictionary of them takes time and room
            coded = [each.name for each in schema if not pa.types.is_floating(each.type)]
            with pq.ParquetWriter(
                place, schema, compression="zstd", use_dictionary=coded
            ) as columns:
                yield columns.write_batch
    except pa.ArrowException as error:
        raise DataError(
            f"{form} cannot hold a column of --keep ({error}); leave it out, or name a Parquet file"
        ) from None


@dataclass(frozen=True)
class Counted:
    """What was seen while scoring.

    Attributes:
        rows: all of them.
        unseen: with a field value that no vocabulary holds; null is none.
        out_of_range: with a logit beyond the outermost knots of its field value.
    """

    rows: int = 0
    unseen: int = 0
    out_of_range: int = 0

    def __str__(self) -> str:
        return (
            f"{self.rows} rows scored, {self.unseen} with an unseen field value, "
            f"{self.out_of_range} with a score outside the calibrated range"
        )

    def __add__(self, other: "Counted") -> "Counted":
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Counted(*(one + more for one, more in pairs))


OverFiles = Callable[[Callable[[Path], Counted], Sequence[Path]], Iterable[tuple[Path, Counted]]]


def score_files(
    predictor: Predictor,
    sources: Sequence[Path],
    target: Path,
    *,
    keep: Sequence[str] = (),
    threads: int = 1,
    report: Callable[[int], None] = lambda _: None,
    over: OverFiles | None = None,
) -> Counted:
    """Publish the scores of the rows of files, in their order, with the columns of `SCHEMA`.

    Args:
        predictor: with one thread of its own.
        sources: Parquet or CSV files (`.csv`, `.csv.gz`), or folders of them.
        target: a file of either format for one file; else a new folder, in which the scores of
            every file have its name and format.
        keep: columns that travel along, before those of the scores.
        threads: batches that are scored at a time; 0 = as many as there are cores.
        report: called with the bytes that were read since the last call.
        over: what has processes score several files at a time, and reports itself: a function and
            files → each file with what the function makes of it; None: one file after the other.

    Raises:
        DataError: a file is missing, damaged, lacks a column, or holds what it should not; the
            sentence names the column, the first row of the batch, and the row counted from there.
            Or the scores would replace what is there.
        ArtifactError: the scores would replace a folder, or the model was replaced meanwhile.
    """
    files, threads = files_of(sources), threads or os.cpu_count() or 1
    keep = [*dict.fromkeys(keep)]
    alone = len(files) == 1 and not sources[0].is_dir()
    _refuse_replacing(sources[0] if alone else None, target)
    taken = [name for name in keep if name in SCHEMA.names]
    if taken:
        raise DataError(f"--keep {taken[0]} would be there twice, as scores have such a column")
    told = (lambda _: None) if over else report

    def scored(file: Path) -> Counted:
        place, form = (temporary, target) if alone else (temporary / files[file], file)
        with publish(place) as written_to:
            batches = _score(
                predictor, file, (written_to, form), keep=keep,
                threads=1 if over else threads, report=told,
            )  # fmt: skip
            return sum(batches, start=Counted())

    with publish(target) as temporary:
        made = over(scored, [*files]) if over else ((file, scored(file)) for file in files)
        total = sum((counted for _, counted in made), start=Counted())
        remove_unfinished(temporary)
        if over and verified(predictor.folder)[0] != predictor.version:
            raise ArtifactError(f"{predictor.folder} shows another model by now; score again")
    return total


def files_of(sources: Sequence[Path]) -> dict[Path, Path]:
    """Every file of rows in files and folders, and its name beside the others.

    Of a folder these are all but those that are, or lie in a folder that is, called `.` or `_`
    something.

    Raises:
        DataError: there is none, two have one name, one is a pipe or the like, or a folder has a
            link to another one.
    """
    found: list[tuple[Path, Path]] = []
    for source in sources:
        inside = _below(source) if source.is_dir() else [source]
        found += [(f, f.relative_to(source if source.is_dir() else f.parent)) for f in inside]
    names = [name for _, name in found]
    places = ", ".join(map(str, sources))
    if not found:
        raise DataError(f"no file in {places}; name Parquet files, or .csv or .csv.gz")
    for path, _ in found:
        refuse_pipe(path)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"two files in {places} are called {twice}; score them one by one")
    return dict(found)


def _below(folder: Path) -> list[Path]:
    shown = (
        path
        for path in sorted(folder.rglob("*"))
        if not any(part[0] in "._" for part in path.relative_to(folder).parts)
    )
    files = [path for path in shown if path.is_symlink() or not path.is_dir()]
    linked = next(filter(Path.is_dir, files), None)
    if linked:
        raise DataError(f"{linked} is a link to a folder, which is not followed; name that folder")
    return files


def _refuse_replacing(source: Path | None, target: Path) -> None:
    """Refuse a target that is the one source, or whose name has another format; where there are
    several, one that is there.
    """
    refuse_pipe(target)
    if source and target.exists() and source.exists() and target.samefile(source):
        raise DataError(f"{target} holds the rows themselves; name another file for their scores")
    if source and re.search(UNWRITTEN, target.name.lower()) and not is_csv(target):
        raise DataError(
            f"{target} names a format that scores are not written in; name a .csv, .csv.gz or "
            ".parquet file"
        )
    if source is None and target.exists():
        raise DataError(f"{target} is there already; name a new folder for the scores of files")


def _score(
    predictor: Predictor,
    source: Path,
    target: tuple[Path, Path],
    *,
    keep: Sequence[str],
    threads: int,
    report: Callable[[int], None],
) -> Iterator[Counted]:
    """What was seen in each batch, after its scores were written."""

    def scored(batch: RowBatch) -> tuple[RowBatch, ServedScores]:
        with placed(f"{source}, batch from row {batch.first_row} on: "):
            return batch, predictor.predict(batch.rows)

    batches = batches_of(source, predictor, keep)
    read = next(batches).rows.schema
    schema = pa.schema([*map(read.field, keep), *SCHEMA])
    with written(*target, schema) as write:
        for batch, scores in made_ahead(scored, batches, threads):
            columns = [*(batch.rows.column(name) for name in keep), *scores.batch().columns]
            write(pa.record_batch(columns, schema=schema))
            report(batch.bytes_read)
            yield Counted(len(scores), int(scores.unseen.sum()), int(scores.out_of_range.sum()))
