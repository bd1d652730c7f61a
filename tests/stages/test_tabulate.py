"""tabulate: scores of the chosen days become tables that are read back whole."""

from itertools import chain

import numpy as np
import pytest

from pipeline.calibration.statistics.bins import tabulate
from pipeline.core.errors import AdaCalibError, ArtifactError, NotEnoughDataError
from pipeline.core.files import manifest_sums
from pipeline.formats.days import day_number
from pipeline.formats.scores import read_scores, scored_day, write_day, write_scores_manifest
from pipeline.formats.tables import read_field_tables, read_tables_manifest
from pipeline.params.sections import TabulateParams
from pipeline.stages.tabulate import run
from tests.calibration.logs import assert_same, random_scores
from tests.tiny_logs import files_of

PARAMS = TabulateParams(candidates=(2, 5), grid_cells=20)
PARTS = {
    "training": ["2024-01-01", "2024-01-02"],
    "calibration": ["2024-01-03", "2024-01-04"],
    "test": ["2024-01-05"],
}


def write_scores(folder, rows=200, parts=PARTS):
    """Scored days of all splits, `rows` a day."""
    folder.mkdir(parents=True)
    days = {}
    for seed, day in enumerate(chain.from_iterable(parts.values())):
        scores = random_scores(rows, n_field_values=6, n_days=1, seed=seed)
        scores.day[:] = day_number(day)
        days[day] = write_day(folder, day, *scored_day(day, scores, {}))
    write_scores_manifest(
        folder,
        {
            "parts": parts,
            "binning_days": parts["calibration"],
            "days": days,
            "field": {"values": [None, *"abcdefg"]},
            "features": {"categorical": [], "numeric": []},
            "conventions": {},
        },
    )
    return folder


def test_bins_are_those_of_the_calibration_days(tmp_path):
    scores = write_scores(tmp_path / "scores")
    run(scores, tmp_path / "tables", params=PARAMS)
    bins, _ = tabulate(read_scores(scores, "calibration"), (2, 5), 20)
    assert_same(read_field_tables(tmp_path / "tables").bins, bins)


def test_cells_of_the_calibration_days_are_as_they_would_be_alone(tmp_path):
    scores = write_scores(tmp_path / "scores")
    run(scores, tmp_path / "tables", params=PARAMS)
    _, alone = tabulate(read_scores(scores, "calibration"), (20,), 20)
    cells = read_field_tables(tmp_path / "tables").cells
    assert_same(cells.take(cells.day <= day_number(PARTS["calibration"][-1])), alone)


def test_later_days_are_counted_whole_within_the_same_cells(tmp_path):
    """Also field values that the calibration days did not have."""
    scores = write_scores(tmp_path / "scores")
    run(scores, tmp_path / "tables", params=PARAMS)
    cells, rows = read_field_tables(tmp_path / "tables").cells, read_scores(scores, "test")
    later = cells.take(cells.day == day_number(PARTS["test"][0]))
    for name in ("impressions", "responses"):
        counted = np.bincount(later.field_value_id, getattr(later, name), 8)
        assert np.array_equal(counted, np.bincount(rows.field_value_id, getattr(rows, name), 8))
    logit_sums = np.bincount(rows.field_value_id, rows.uncalibrated_logit, 8)
    counted = np.bincount(later.field_value_id, later.logit_sum, 8)
    np.testing.assert_allclose(counted, logit_sums, atol=1e-4)


def test_days_of_the_gap_are_later_days(tmp_path):
    parts = {"training": [], "calibration": ["2024-01-03"], "gap": ["2024-01-04"]}
    scores = write_scores(tmp_path / "scores", parts=parts | {"test": PARTS["test"]})
    run(scores, tmp_path / "tables", params=PARAMS)
    manifest = read_tables_manifest(tmp_path / "tables")
    assert manifest["days"] == ["2024-01-03"]
    assert manifest["later_days"] == ["2024-01-04", "2024-01-05"]
    assert len(np.unique(read_field_tables(tmp_path / "tables").cells.day)) == 3


def test_training_days_are_not_counted(tmp_path):
    scores = write_scores(tmp_path / "scores")
    run(scores, tmp_path / "tables", params=PARAMS)
    assert read_field_tables(tmp_path / "tables").bins.candidate(2).impressions.sum() == 400
    assert read_field_tables(tmp_path / "tables").cells.impressions.sum() == 600


def test_the_manifest_says_what_the_tables_were_made_of(tmp_path):
    scores = write_scores(tmp_path / "scores")
    run(scores, tmp_path / "tables", params=PARAMS)
    manifest = read_tables_manifest(tmp_path / "tables")
    rows = read_scores(scores, "calibration")
    assert manifest == {
        "made_of": manifest_sums({"scores": scores}),
        "candidates": [2, 5],
        "grid_cells": 20,
        "days": PARTS["calibration"],
        "later_days": PARTS["test"],
        "n_field_values": 8,
        "totals": {
            "impressions": 400,
            "responses": int(rows.responses.sum()),
            "field_values": len(np.unique(rows.field_value_id)),
        },
        "params": {"tabulate": {"candidates": [2, 5], "grid_cells": 20}},
    }


def test_the_same_scores_give_the_same_bytes(tmp_path):
    scores = write_scores(tmp_path / "scores")
    for name in ("one", "two"):
        run(scores, tmp_path / name, params=PARAMS)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")


def test_days_without_impressions_are_refused_and_nothing_is_written(tmp_path):
    scores = write_scores(tmp_path / "scores", rows=0)
    with pytest.raises(NotEnoughDataError, match="the calibration days have no impressions"):
        run(scores, tmp_path / "tables", params=PARAMS)
    assert not (tmp_path / "tables").exists()


def test_a_damaged_missing_or_strange_table_is_refused_by_name(tmp_path):
    run(write_scores(tmp_path / "scores"), tmp_path / "tables", params=PARAMS)
    path = tmp_path / "tables" / "bins.parquet"
    (tmp_path / "tables" / "cells.parquet").write_bytes(path.read_bytes())
    with pytest.raises(ArtifactError, match=r"cells\.parquet lacks the column cell_id"):
        read_field_tables(tmp_path / "tables")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ArtifactError, match=r"bins\.parquet is no whole Parquet file"):
        read_field_tables(tmp_path / "tables")
    path.unlink()
    with pytest.raises(ArtifactError, match=r"bins\.parquet is missing"):
        read_field_tables(tmp_path / "tables")


def test_memory_is_a_matter_of_the_machine_and_changes_nothing(tmp_path, monkeypatch):
    scores = write_scores(tmp_path / "scores")
    run(scores, tmp_path / "whole", params=PARAMS)
    monkeypatch.setenv("ADACALIB_MEMORY_GB", "1e-6")
    run(scores, tmp_path / "parts", params=PARAMS)
    assert files_of(tmp_path / "whole") == files_of(tmp_path / "parts")


def test_memory_that_is_no_number_is_refused(tmp_path, monkeypatch):
    scores = write_scores(tmp_path / "scores")
    monkeypatch.setenv("ADACALIB_MEMORY_GB", "4 GB")
    with pytest.raises(AdaCalibError, match="must be a number of gigabytes, it is '4 GB'"):
        run(scores, tmp_path / "tables", params=PARAMS)
