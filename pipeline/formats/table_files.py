"""Field statistics on disk: bins.parquet, cells.parquet and a manifest in one folder."""

from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.errors import ArtifactError
from pipeline.core.files import publish, read_json, write_json
from pipeline.formats.tables import BinTable, CellTable

BINS = pa.schema(
    [
        ("field_value_id", pa.int32()),
        ("requested_bins", pa.int32()),
        ("effective_bins", pa.int32()),
        ("bin_id", pa.int32()),
        ("lower_bound", pa.float32()),
        ("upper_bound", pa.float32()),
        ("impressions", pa.int64()),
        ("responses", pa.int64()),
        ("logit_sum", pa.float64()),
        ("posterior", pa.float64()),
    ]
)
CELLS = pa.schema(
    [
        ("field_value_id", pa.int32()),
        ("cell_id", pa.int32()),
        ("day", pa.int32()),
        ("impressions", pa.int64()),
        ("responses", pa.int64()),
        ("logit_sum", pa.float64()),
        ("probability_sum", pa.float64()),
    ]
)

Table = TypeVar("Table", BinTable, CellTable)


def write_tables(folder: Path, bins: BinTable, cells: CellTable, manifest: dict[str, Any]) -> None:
    """Publish a folder with both tables and the manifest that says what they were made of."""
    with publish(folder) as temporary:
        temporary.mkdir()
        for name, table, schema in (("bins", bins, BINS), ("cells", cells, CELLS)):
            columns = [pa.array(getattr(table, f.name)) for f in fields(table)]
            fractional = pa.types.is_floating(columns[schema.get_field_index("impressions")].type)
            kept = _fractional(schema) if fractional else schema
            pq.write_table(
                pa.table(columns, schema=kept), temporary / f"{name}.parquet", compression="zstd"
            )
        write_json(temporary / "manifest.json", manifest)


def _fractional(schema: pa.Schema) -> pa.Schema:
    """The schema of a table whose counts a sampled log makes fractional."""
    for name in ("impressions", "responses"):
        schema = schema.set(schema.get_field_index(name), pa.field(name, pa.float64()))
    return schema


def read_bins(folder: Path) -> BinTable:
    """The bins of every candidate.

    Raises:
        ArtifactError: the file is missing, damaged, or has other columns.
    """
    return _read(folder / "bins.parquet", BINS, BinTable)


def read_cells(folder: Path) -> CellTable:
    """The cells of the fitting grid.

    Raises:
        ArtifactError: the file is missing, damaged, or has other columns.
    """
    return _read(folder / "cells.parquet", CELLS, CellTable)


def read_tables_manifest(folder: Path) -> dict[str, Any]:
    """What the tables were made of: candidates, grid_cells, days, n_field_values, totals.

    Raises:
        ArtifactError: the file is missing or is not JSON.
    """
    return read_json(folder / "manifest.json")


def _read(path: Path, schema: pa.Schema, kind: type[Table]) -> Table:
    try:
        table = pq.read_table(path)
    except FileNotFoundError:
        raise ArtifactError(f"{path} does not exist; run dvc repro tabulate") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise ArtifactError(f"{path} is damaged ({error}); run dvc repro tabulate") from None
    if table.schema.remove_metadata() not in (schema, _fractional(schema)):
        raise ArtifactError(f"{path} has the columns {table.schema.names}, not {schema.names}")
    return kind(*(column.to_numpy() for column in table.columns))
