"""Rows cut by the hash of a key into parts on the disk, so that two logs join part by part."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from pipeline.encoding.hashing import hashes, shares

PARTS = 128  # as many files are open at a time; some systems allow 256
BATCH = 64 << 20  # bytes of rows that wait before they are cut


class Partitions:
    """A context that takes rows; afterwards `part` gives those of one part.

    Rows with the same key are in the same part, in the order they came; a key's part does not
    depend on the other rows.

    Args:
        folder: where the parts are written.
        key: the text column that is hashed.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self._folder, self._key = folder, key
        self._waiting: list[pa.Table] = []
        self._writers: dict[int, ipc.RecordBatchStreamWriter] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._folder.mkdir()
        return self

    def __exit__(self, *error: object) -> None:
        with self._open:
            if error[0] is None:
                self._cut()

    def add(self, rows: pa.Table) -> None:
        """Add rows; all have the same columns."""
        self._waiting.append(rows)
        if sum(table.nbytes for table in self._waiting) > BATCH:
            self._cut()

    def part(self, number: int) -> Iterator[pa.Table]:
        """The rows of part `number`, from 0 to PARTS - 1, some at a time."""
        path = self._path(number)
        if not path.exists():
            return
        with pa.OSFile(str(path)) as file, ipc.open_stream(file) as stream:
            for batch in stream:
                yield pa.Table.from_batches([batch])

    def _path(self, number: int) -> Path:
        return self._folder / f"part-{number:03}.arrow"

    def _cut(self) -> None:
        """Move the rows that wait to their parts."""
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting).combine_chunks()
        self._waiting = []
        part = shares(hashes(rows[self._key].combine_chunks())[:, 0], PARTS)
        order = np.argsort(part, kind="stable")
        bounds = np.searchsorted(part[order], np.arange(PARTS + 1))
        for number in np.unique(part):
            own = order[bounds[number] : bounds[number + 1]]
            self._writer(int(number), rows.schema).write_table(rows.take(pa.array(own)))

    def _writer(self, number: int, schema: pa.Schema) -> ipc.RecordBatchStreamWriter:
        if number not in self._writers:
            file = self._open.enter_context(pa.OSFile(str(self._path(number)), "wb"))
            options = ipc.IpcWriteOptions(compression="lz4")
            writer = ipc.new_stream(file, schema, options=options)
            self._writers[number] = self._open.enter_context(writer)
        return self._writers[number]
