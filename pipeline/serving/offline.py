"""Score files of any length: batches in memory at a time, whole outputs or none."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from pipeline.core.errors import ArtifactError, DataError
from pipeline.core.files import publish, remove_unfinished
from pipeline.core.prefetch import made_ahead
from pipeline.encoding.values import placed
from pipeline.serving.predictor import SCHEMA, Predictor, ServedScores, verified
from pipeline.serving.row_files import RowBatch, is_rows, opened, written


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

    Raises:
        DataError: there is none, or two have one name.
    """
    found: dict[Path, Path] = {}
    for source in sources:
        inside = sorted(filter(is_rows, source.rglob("*"))) if source.is_dir() else [source]
        found |= {f: f.relative_to(source if source.is_dir() else f.parent) for f in inside}
    names = [*found.values()]
    places = ", ".join(map(str, sources))
    if not found:
        raise DataError(f"no file in {places}; name Parquet files, or .csv or .csv.gz")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"two files in {places} are called {twice}; score them one by one")
    return found


def _refuse_replacing(source: Path | None, target: Path) -> None:
    """Refuse a target that is the one source; where there are several, one that is there."""
    if source and target.exists() and source.exists() and target.samefile(source):
        raise DataError(f"{target} holds the rows themselves; name another file for their scores")
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

    with opened(source, predictor, keep) as (kept, batches):
        schema = pa.schema([*kept, *SCHEMA])
        with written(*target, schema) as write:
            for batch, scores in made_ahead(scored, batches, threads):
                columns = [*(batch.rows.column(name) for name in keep), *scores.batch().columns]
                write(pa.record_batch(columns, schema=schema))
                report(batch.bytes_read)
                yield Counted(len(scores), int(scores.unseen.sum()), int(scores.out_of_range.sum()))
