"""Serving maps on disk: one Parquet row per map and field value, checked when written and read."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.errors import ArtifactError
from pipeline.core.files import publish
from pipeline.formats.maps import PiecewiseLinearMap, from_knots

MAP_ARRAYS = [field.name for field in fields(PiecewiseLinearMap)]
SCHEMA = pa.schema(
    [
        ("map", pa.string()),
        ("field_value_id", pa.int32()),
        ("field_value", pa.string()),
        ("knots", pa.list_(pa.float64())),
        ("values", pa.list_(pa.float64())),
        ("left_slope", pa.float64()),
        ("right_slope", pa.float64()),
    ]
)


def _lists(column: pa.ChunkedArray) -> list[np.ndarray]:
    """The arrays of a list column, without one Python object per number."""
    array = column.combine_chunks()
    return np.split(array.flatten().to_numpy(), array.value_lengths().to_numpy().cumsum()[:-1])


def _check(place: str, table: pa.Table) -> None:
    """Refuse the rows of one map if a logit cannot be looked up in them."""
    ids = table["field_value_id"].to_numpy()
    if not len(ids) or not np.array_equal(ids, np.arange(len(ids))):
        raise ArtifactError(
            f"{place}: field value ids must be 0..{len(ids) - 1} in order; rerun it"
        )
    slopes = np.column_stack([table["left_slope"].to_numpy(), table["right_slope"].to_numpy()])
    for row, (knots, values) in enumerate(
        zip(_lists(table["knots"]), _lists(table["values"]), strict=True)
    ):
        where = f"{place}, field value id {row}"
        if not len(knots) or len(knots) != len(values):
            raise ArtifactError(
                f"{where} has {len(knots)} knots and {len(values)} values; refit it"
            )
        if not (np.isfinite(knots).all() and (np.diff(knots) > 0).all()):
            raise ArtifactError(
                f"{where}: knots must be finite and strictly ascending, not {knots.tolist()}; "
                "refit it"
            )
        if not (np.isfinite(values).all() and np.isfinite(slopes[row]).all()):
            raise ArtifactError(f"{where}: values and slopes must be finite; refit it")


def _table(name: str, serving_map: PiecewiseLinearMap, field_values: list[str | None]) -> pa.Table:
    if len(field_values) != serving_map.n_field_values:
        raise ArtifactError(
            f"map {name} has {serving_map.n_field_values} rows for {len(field_values)} "
            "field values; both must come from the same scores"
        )
    rows = np.arange(serving_map.n_field_values)
    real = serving_map.knots != np.inf
    width = real.sum(axis=1)
    offsets = pa.array(np.concatenate([[0], np.cumsum(width)]).astype(np.int32))
    slopes = serving_map.segment_slopes
    columns = [
        pa.array([name] * len(rows), pa.string()),
        pa.array(rows.astype(np.int32)),
        pa.array(field_values, pa.string()),
        pa.ListArray.from_arrays(offsets, serving_map.knots[real]),
        pa.ListArray.from_arrays(offsets, serving_map.segment_values[:, 1:][real]),
        pa.array(slopes[:, 0]),
        pa.array(slopes[rows, width]),
    ]
    return pa.table(columns, schema=SCHEMA)


def _map(table: pa.Table) -> PiecewiseLinearMap:
    slopes = (table[side].to_numpy() for side in ("left_slope", "right_slope"))
    return from_knots(_lists(table["knots"]), _lists(table["values"]), *slopes)


def _refuse_jumps(name: str, serving_map: PiecewiseLinearMap, table: pa.Table) -> None:
    """Refuse a map that these rows do not hold whole: one that is no continuous line."""
    held = _map(table)
    if not all(np.array_equal(getattr(held, f), getattr(serving_map, f)) for f in MAP_ARRAYS):
        raise ArtifactError(
            f"map {name} is no continuous line through knots; make it by from_knots"
        )


def write_maps(
    path: Path, maps: dict[str, PiecewiseLinearMap], field_values: list[str | None]
) -> None:
    """Publish maps under their names, in the order of the dict; a row is a map at one field value.

    The file is the whole map: read back, it returns the same bits for every logit. Whether values
    ascend along the knots is not asked here: that is a fact which the gate reports by name.

    Args:
        path: the Parquet file to write.
        maps: maps made by `from_knots` or its relatives, all with V rows.
        field_values: V texts, index = field value id, the first None.

    Raises:
        ArtifactError: a map has another number of rows, jumps, or has knots, values or slopes that
            are not finite, or knots that do not ascend strictly.
    """
    tables = {name: _table(name, serving_map, field_values) for name, serving_map in maps.items()}
    for name, table in tables.items():
        _check(f"map {name}", table)
        _refuse_jumps(name, maps[name], table)
    with publish(path) as temporary:
        pq.write_table(pa.concat_tables(tables.values()), temporary, compression="zstd")


def read_maps(path: Path) -> dict[str, PiecewiseLinearMap]:
    """The maps of a file by name, each with one row per field value id.

    Raises:
        ArtifactError: the file is missing, is not such a file, lacks a field value id, or holds
            knots, values or slopes that are not finite, or knots that do not ascend strictly.
    """
    try:
        table = pq.read_table(path)
    except FileNotFoundError:
        raise ArtifactError(f"{path} does not exist; run dvc repro calibrate") from None
    except pa.ArrowInvalid as error:
        raise ArtifactError(f"{path} is damaged ({error}); run dvc repro calibrate") from None
    if table.schema != SCHEMA:
        raise ArtifactError(f"{path} has the columns {table.schema.names}, not {SCHEMA.names}")
    names = table["map"].to_numpy()
    maps = {}
    for name in dict.fromkeys(names):
        rows = table.filter(pa.array(names == name))
        _check(f"{path}: map {name}", rows)
        maps[name] = _map(rows)
    return maps
