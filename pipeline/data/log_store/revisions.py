"""What landing a day again changed: its rows and responses, before and after."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.errors import DataError
from pipeline.data.log_store.manifest import DayEntry, Manifest, day_folder
from pipeline.encoding.values import as_numbers


@dataclass(frozen=True)
class DayChange:
    """A day that was landed again with other rows; the content hashes name its versions.

    Attributes:
        before, after: the day's entries.
        responses_before, responses_after: sums of the label; None where it is not known.
    """

    day: str
    before: DayEntry
    after: DayEntry
    responses_before: int | None
    responses_after: int | None

    def __str__(self) -> str:
        responses = ""
        if self.responses_before is not None and self.responses_after is not None:
            responses = f", {self.responses_before:,} -> {self.responses_after:,} responses"
        return (
            f"{self.day} has a new version: {self.before.rows:,} -> {self.after.rows:,} rows"
            f"{responses} (content {self.before.content_sha256[:8]} -> "
            f"{self.after.content_sha256[:8]})"
        )


def changes_of(
    folder: Path,
    standing: Manifest,
    staged: Mapping[str, tuple[Path, DayEntry]],
    label: str | None,
) -> Iterator[DayChange]:
    """The days that stand with other rows than those that come.

    Args:
        folder: the log's folder, and `standing` its manifest.
        staged: day → its new file and entry.
        label: column with the responses; None: they are not counted.
    """
    for day, (file, entry) in staged.items():
        before = standing.days.get(day)
        if before is not None and before.content_sha256 != entry.content_sha256:
            files = [day_folder(folder, day) / name for name in before.files]
            yield DayChange(day, before, entry, _sum(files, label), _sum([file], label))


def _sum(files: Sequence[Path], label: str | None) -> int | None:
    """The responses in `files`; None where no column says them, or a file is damaged."""
    total = 0
    try:
        for path in files:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(columns=[label]):
                    total += int(np.nansum(as_numbers(batch.column(0))))
    except (OSError, pa.ArrowInvalid, IndexError, TypeError, DataError):
        return None
    return total
