"""Rolling maps come back as they were written, and serve each day by its own map."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.core.errors import ArtifactError, DataError
from pipeline.formats.maps import affine_map
from pipeline.formats.rolling import DayMap, read_rolling, rolled, write_rolling


def test_each_row_is_served_by_the_map_of_its_own_day(tmp_path: Path) -> None:
    shifts = {10: 1.0, 11: 2.0}
    asked = np.array([3, 1, 3])
    maps = {
        day: DayMap.of(affine_map(np.array([0.0, shift, 9.0, -shift]), np.ones(4)), asked)
        for day, shift in shifts.items()
    }
    write_rolling(tmp_path / "rolling.parquet", {"eb_platt": maps})
    read = read_rolling(tmp_path / "rolling.parquet")["eb_platt"]
    logit, day = np.zeros(4), np.array([10, 11, 11, 10])
    ids = np.array([1, 1, 3, 2])  # no row of the day asked for value 2: the unseen row serves it
    assert rolled(read, logit, ids, day).tolist() == [1.0, 2.0, -2.0, 0.0]
    assert read[10].ids.tolist() == [0, 1, 3]


def test_a_day_without_a_map_and_a_file_that_is_missing_are_refused(tmp_path: Path) -> None:
    served = {1: DayMap.of(affine_map(np.zeros(1), np.ones(1)), np.array([0]))}
    with pytest.raises(DataError):
        rolled(served, np.zeros(1), np.zeros(1, int), np.array([2]))
    with pytest.raises(ArtifactError):
        read_rolling(tmp_path / "rolling.parquet")


@pytest.mark.parametrize("asked", [None, np.array([3, 1, 2])])
def test_each_id_is_served_by_the_row_that_serves_it(asked):
    """Whether that is its own, its parent's or that of id 0, and whatever the day asks for."""
    shift = np.array([0.0, 0.1, 0.2, 0.3, 0.4])
    serving = np.array([0, 1, 4, 0, 4])
    of_day = DayMap.of(affine_map(shift, np.ones(5)), asked, serving)
    ids = np.arange(4)
    np.testing.assert_array_equal(of_day(np.ones(4), ids), 1.0 + shift[serving[ids]])
