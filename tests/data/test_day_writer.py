"""The day writer: rows that come in any order and cut become whole days, byte for byte."""

import numpy as np
import pyarrow as pa
import pytest

from pipeline.core.errors import DataError
from pipeline.data.log_store.day_writer import DayWriter
from pipeline.data.log_store.manifest import CONTENT_BLOCK
from pipeline.formats.days import day_name
from tests.tiny_logs import KIND, PRIVATE, content_sha256, files_of, land_day, land_days, tiny_day


@pytest.mark.parametrize("budget", [1, 200_000, 1 << 30])
def test_a_day_has_the_same_bytes_however_its_rows_came(tmp_path, budget, monkeypatch):
    """In any cut, with or without spilling to the disk, the bytes of land_day."""
    monkeypatch.setattr("pipeline.data.log_store.day_writer.BUDGET", budget)
    rows = CONTENT_BLOCK + 1000
    rng = np.random.default_rng(1)
    values = {"item": rng.integers(0, 99, rows).astype(str), "price": rng.random(rows)}
    whole = tiny_day(1).slice(0, 0).schema.empty_table()
    values |= {"shown": np.ones(rows, np.int64), "click": np.zeros(rows, np.int8)}
    whole = pa.table(
        {n: pa.array(values[n], KIND.schema.field(n).type) for n in whole.column_names}
    )
    days = rng.integers(0, 3, rows)
    days[: CONTENT_BLOCK // 2] = 0

    def fill(stage: DayWriter) -> None:
        for start in range(0, rows, 9_999):
            part = whole.slice(start, 9_999)
            stage.add(part, days[start : start + len(part)])
        stage.add(whole.slice(0, 100_000), np.zeros(100_000, np.int32))

    land_days(tmp_path / "stream", PRIVATE, fill)
    for number in range(3):
        day = whole.filter(pa.array(days == number))
        if number == 0:
            day = pa.concat_tables([day, whole.slice(0, 100_000)])
        manifest = land_day(tmp_path / "whole", PRIVATE, day_name(number), day)
        assert manifest.days[day_name(number)].content_sha256 == content_sha256(day)
    stream, whole = (
        {name: content for name, content in files_of(tmp_path / log).items() if "day=" in name}
        for log in ("stream", "whole")
    )
    assert stream == whole


def test_a_stage_whose_filling_fails_leaves_nothing(tmp_path):
    land_day(tmp_path / "data", PRIVATE, "2024-01-01", tiny_day())
    before = files_of(tmp_path)

    def fill(stage: DayWriter) -> None:
        stage.add(tiny_day(), np.zeros(4, np.int32))
        raise OSError("the disk is full")

    with pytest.raises(DataError, match="data cannot be written: the disk is full; all its days"):
        land_days(tmp_path / "data", PRIVATE, fill)
    assert files_of(tmp_path) == before
