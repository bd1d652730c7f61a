"""Rolling maps on disk: for every test day the map that each calibrator would have served on it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.core.columns import read_parquet
from pipeline.core.errors import DataError
from pipeline.core.files import publish
from pipeline.formats.maps import SCHEMA, PiecewiseLinearMap, map_of_rows, rows_of_map

FILE = "rolling.parquet"
ROLLING = pa.schema([pa.field("day", pa.int32()), *SCHEMA])


@dataclass(frozen=True)
class DayMap:
    """The map of one day, with a row for each field value that the day asks for.

    Attributes:
        ids: int32 [R], field value ids, strictly ascending from 0 on: the row of id 0 serves every
            value that has no row.
        map: R rows, row r for the field value ids[r].
    """

    ids: np.ndarray
    map: PiecewiseLinearMap

    @classmethod
    def of(
        cls,
        served: PiecewiseLinearMap,
        asked: np.ndarray | None,
        serving: np.ndarray | None = None,
    ) -> "DayMap":
        """The rows of a whole map that some field values ask for.

        Args:
            served: of all field values.
            asked: ids [n] of any order; None: all.
            serving: int64 [V], the id whose row serves each; None: its own.
        """
        if served.is_shared:
            row = np.zeros(1, np.int32)
            return cls(row, served.take(row))
        ids = np.arange(served.n_field_values)
        serving = ids if serving is None else serving
        ids = ids if asked is None else np.append(asked, 0)
        ids = np.unique(np.append(ids[serving[ids] > 0], 0)).astype(np.int32)
        return cls(ids, served.take(serving[ids]))

    def has_own(self, n_field_values: int) -> np.ndarray:
        """Whether each id has a row of its own, bool [V]."""
        return np.isin(np.arange(n_field_values), self.ids[1:])

    def whole(self, n_field_values: int) -> PiecewiseLinearMap:
        """The map of all V field values."""
        if len(self.ids) == 1:
            return self.map.repeated(n_field_values)
        return self.map.take(self._rows(np.arange(n_field_values)))

    def __call__(self, uncalibrated_logit: np.ndarray, field_value_id: np.ndarray) -> np.ndarray:
        """The calibrated logit, float64 [n], of logits [n] at field value ids [n]."""
        return self.map(uncalibrated_logit, self._rows(field_value_id))

    def _rows(self, ids: np.ndarray) -> np.ndarray:
        row = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where(self.ids[row] == ids, row, 0)


RollingMap = Mapping[int, DayMap]
"""Day (days since 1970-01-01) -> its map."""


def rolled(
    maps: RollingMap, uncalibrated_logit: np.ndarray, field_value_id: np.ndarray, day: np.ndarray
) -> np.ndarray:
    """The calibrated logit, float64 [n], of each row under the map of its own day.

    Raises:
        DataError: a row is of a day that has no map.
    """
    calibrated = np.empty(len(day))
    for one in np.unique(day).tolist():
        if one not in maps:
            known = f"{min(maps)}..{max(maps)}" if maps else "none"
            raise DataError(f"no rolling map is of the day {one}; they are of the days {known}")
        rows = np.flatnonzero(day == one)
        calibrated[rows] = maps[one](uncalibrated_logit[rows], field_value_id[rows])
    return calibrated


def write_rolling(path: Path, maps: Mapping[str, RollingMap]) -> None:
    """Publish the rolling maps of every calibrator, by name."""
    parts = []
    for name, of_days in maps.items():
        for day, served in sorted(of_days.items()):
            rows = rows_of_map(name, served.map, served.ids)
            column = pa.array(np.full(len(rows), day, np.int32))
            parts.append(rows.add_column(0, ROLLING.field("day"), column))
    with publish(path) as temporary:
        pq.write_table(pa.concat_tables(parts), temporary, compression="zstd")


def read_rolling(path: Path) -> dict[str, dict[int, DayMap]]:
    """Calibrator -> day -> its map.

    Raises:
        ArtifactError: the file is missing, damaged, or has other columns.
    """
    table = read_parquet(path, "calibrate", ROLLING)
    name, day = table["map"].to_numpy(), table["day"].to_numpy()
    starts = np.flatnonzero(np.r_[True, (name[1:] != name[:-1]) | (np.diff(day) != 0)])
    maps: dict[str, dict[int, DayMap]] = {}
    for start, end in zip(starts, np.append(starts[1:], len(day)), strict=True):
        rows = table.slice(start, end - start)
        served = DayMap(rows["field_value_id"].to_numpy(), map_of_rows(rows))
        maps.setdefault(str(name[start]), {})[int(day[start])] = served
    return maps
