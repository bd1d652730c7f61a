"""Ten days in a row, each promoted: every one is held against the one before on all its days."""

import shutil

import numpy as np
import pyarrow as pa
import pytest

from pipeline.core.files import file_sums, read_json, sha256_of
from pipeline.formats.champion import MODEL, PIN, TABLES, Pin, write_pin
from pipeline.formats.days import day_name, day_number
from pipeline.params.params_file import set_values
from tests.whole_walk import project, walk

FIRST, TEST_DAYS, REFRESHES = day_number("2024-03-04"), 6, 10
DAYS = [day_name(FIRST + n) for n in range(2 + 6 + TEST_DAYS + REFRESHES - 1)]


def logged_day(day: str, rows: int = 1500) -> pa.Table:
    """Clicks of three items whose logged logits are off by something that moves a little a day."""
    random = np.random.default_rng(int(day[-2:]))
    item, logit = random.integers(0, 3, rows), random.normal(-1.0, 1.0, rows)
    off = np.array([1.0, -1.0, 0.0]) + 0.03 * (day_number(day) - FIRST)
    click = random.random(rows) < 1 / (1 + np.exp(-(logit + off[item])))
    names = np.array(["a", "b", "c"])[item]
    return pa.table({"item": names, "score": logit, "click": click.astype(np.int8)})


def promote(folder, day):
    """What pinning a promoted day leaves for the next one, without git."""
    for part, made in ((MODEL, "model"), (TABLES, "tables")):
        shutil.rmtree(folder / part, ignore_errors=True)
        shutil.copytree(folder / "artifacts" / made, folder / part)
    digest, tables = sha256_of(folder / MODEL / "manifest.json"), file_sums(folder / TABLES)
    write_pin(folder / PIN, Pin(f"v0.0.{day_number(day) - FIRST}", "0" * 40, day, digest, tables))


@pytest.mark.slow
def test_each_of_ten_days_is_held_against_the_one_before_on_every_test_day(tmp_path):
    """Its served bytes on the newest one, as they have learned from all others."""
    split = {"split__training_days": 2, "split__calibration_days": 6, "split__test_days": TEST_DAYS}
    days = {day: logged_day(day) for day in DAYS}
    folder = project(tmp_path, days, log__served_logit="score", **split)
    for day in DAYS[-REFRESHES:]:
        set_values(folder / "params.yaml", {"split.last_day": day})
        walk(folder)
        champion = read_json(folder / "reports/evaluation.json")["champion"]
        if day == DAYS[-REFRESHES]:
            assert champion is None
        else:
            assert champion["compared_days"] == TEST_DAYS
            served = [row["day"] for row in champion["by_day"] if row["served"]]
            assert served == [day]
            gate = read_json(folder / "reports/gate.json")
            assert gate["passed"], gate["reasons"]
        assert (
            read_json(folder / "artifacts/model/manifest.json")["lineage"]["data"]["label_days"][-1]
            == day
        )
        promote(folder, day)
