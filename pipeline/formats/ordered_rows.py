"""A day's scored rows in the order of field values, for work that wants some of these alone."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.core.files import publish
from pipeline.formats.scores import Scores


def write_ordered(path: Path, scores: Scores) -> None:
    """Publish the rows of a day as a file that `read_ordered` reads slices of."""
    ordered = scores.take(np.argsort(scores.field_value_id, kind="stable"))
    columns = pa.record_batch(ordered.columns())
    with (
        publish(path) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, columns.schema) as writer,
    ):
        writer.write_batch(columns)


def read_ordered(path: Path, ids: tuple[int, int], n_field_values: int) -> Scores:
    """The rows of the field values [first, last), mapped into memory; no others are read."""
    with pa.memory_map(str(path)) as source:
        batch = pa.ipc.open_file(source).get_batch(0)
    rows = slice(*np.searchsorted(batch["field_value_id"].to_numpy(), ids))
    columns = {name: batch[name].to_numpy()[rows] for name in batch.schema.names}
    return Scores(**columns, n_field_values=n_field_values)
