"""Whole walks on odd but valid logs and settings: a report comes out, or one sentence."""

import numpy as np
import pyarrow as pa

from tests.whole_walk import DAYS, project, walk


def day_of(number: int, rows: int = 60, **columns: pa.Array) -> pa.Table:
    """A day of two items with logged scores, with columns replaced or added."""
    random = np.random.default_rng(number)
    score = random.normal(-1, 1, rows)
    given = {
        "item": pa.array(random.choice(["a", "b"], rows)),
        "score": pa.array(score),
        "click": pa.array((random.random(rows) < 1 / (1 + np.exp(-score))).astype("i1")),
    }
    return pa.table(given | columns)


def log(**columns: pa.Array) -> dict[str, pa.Table]:
    """The days of a log."""
    return {day: day_of(number, **columns) for number, day in enumerate(DAYS)}


def test_the_paper_variant_has_a_report(tmp_path):
    values = {"log__served_logit": "score", "calibrate__variant": "paper"}
    brief = {"calibrate__paper__epochs": 1, "calibrate__paper__least_steps": 1}
    folder = project(tmp_path, log(), **values, **brief, calibrate__choose="always")
    walk(folder, "report")
    assert (folder / "artifacts/report/report.html").is_file()


def test_numbers_as_large_as_a_float64_holds_are_features(tmp_path):
    """Some tools write the largest one where they know none."""
    largest = pa.array(np.random.default_rng(0).choice([-1.7e308, 1.0, 1.7e308], 60))
    walk(project(tmp_path, log(price=largest), log__numeric=["price"]), "merge")
    assert (tmp_path / "artifacts/model/test_vectors.json").is_file()
