"""check_tables: a report where the tables hold, a refusal and no report where they do not."""

import dataclasses
import shutil

import numpy as np
import pytest

from pipeline.checkpoint.bundle import merge
from pipeline.core.errors import ArtifactError, CheckFailedError
from pipeline.core.files import file_sums, read_json, sha256_of
from pipeline.formats.champion import MODEL, TABLES, Pin, write_pin
from pipeline.formats.days import day_number
from pipeline.formats.tables import read_field_tables, read_tables_manifest, write_tables
from pipeline.params.sections import CheckTablesParams
from pipeline.stages import tabulate
from pipeline.stages.check_tables import build_docs, run
from tests.checkpoint.parts import write_parts
from tests.quality.test_table_checks import changed
from tests.stages.test_tabulate import PARAMS as TABULATE
from tests.stages.test_tabulate import PARTS, write_scores

PARAMS = CheckTablesParams(equal_frequency_tolerance=0.5)


@pytest.fixture
def walk(tmp_path):
    """The paths of the stage: scores, tables of them, a pin of nothing, the report to come."""
    scores = write_scores(tmp_path / "scores")
    tabulate.run(scores, tmp_path / "tables", params=TABULATE)
    write_pin(tmp_path / "champion.json", None)
    return scores, tmp_path / "tables", tmp_path / "champion.json", tmp_path / "tables.json"


def break_table(folder, change, change_cells=lambda cells: cells):
    """Write the tables of a folder again with another bin table, or other cells."""
    bins, cells = (
        change(read_field_tables(folder).bins),
        change_cells(read_field_tables(folder).cells),
    )
    write_tables(folder, bins, cells, read_tables_manifest(folder))


def test_the_report_lists_every_check_and_says_that_all_passed(walk):
    run(*walk, params=PARAMS)
    report = read_json(walk[3])
    assert report["passed"] is True
    assert report["breaches"] == []
    assert {"contiguous_bounds", "equal_frequency", "coverage"} <= {
        check["name"] for check in report["checks"]
    }
    assert all(check["breach"] is None for check in report["checks"])


def test_the_same_tables_give_the_same_report(walk):
    run(*walk, params=PARAMS)
    first = walk[3].read_bytes()
    run(*walk, params=PARAMS)
    assert walk[3].read_bytes() == first


def test_a_breach_fails_the_stage_by_field_value_and_bin_and_leaves_no_report(walk):
    break_table(walk[1], lambda bins: changed(bins, "responses", 3, bins.impressions[3] + 1))
    with pytest.raises(CheckFailedError, match=r"field value id 0 \(None\), K = 5, bin 1: "):
        run(*walk, params=PARAMS)
    assert not walk[3].exists()


def test_a_value_that_vanished_from_the_table_fails_the_stage(walk):
    """Bins for a field value of the log are missing entirely."""
    break_table(walk[1], lambda bins: bins.take(bins.field_value_id != 2))
    with pytest.raises(CheckFailedError, match=r"field value id 2 \('b'\), K = 2: the log has"):
        run(*walk, params=PARAMS)


def test_an_empty_table_fails_the_stage(walk):
    """A table without rows breaks no rule on rows."""
    break_table(walk[1], lambda bins: bins.take(np.zeros(0, dtype=np.int64)))
    with pytest.raises(CheckFailedError, match="bins: expected that there are rows"):
        run(*walk, params=PARAMS)


def test_cells_of_a_later_day_that_were_lost_fail_the_stage_by_the_day(walk):
    (test_day,) = PARTS["test"]
    lost = day_number(test_day)
    break_table(walk[1], lambda bins: bins, lambda cells: cells.take(cells.day != lost))
    with pytest.raises(CheckFailedError, match=f"day {test_day}|day {lost}"):
        run(*walk, params=PARAMS)
    assert not walk[3].exists()


def test_the_report_says_whether_bounds_still_divide_the_newest_days(walk):
    run(*walk, params=PARAMS)
    bounds = read_json(walk[3])["bounds"]
    assert (bounds["first_day"], bounds["last_day"]) == tuple(PARTS["calibration"])
    assert 0 <= bounds["shape_beyond_noise"] < 0.25
    assert bounds["warning"] is None


def pin_champion(pin, tables):
    """Pin a champion that has these tables and knows four of the log's values by other names."""
    model = pin.parent / MODEL
    model.parent.mkdir(parents=True)
    merge(*write_parts(pin.parent), model)
    shutil.copytree(tables, pin.parent / TABLES)
    sums = file_sums(pin.parent / TABLES)
    write_pin(pin, Pin("v0.0.3", "0" * 40, "2024-01-01", sha256_of(model / "manifest.json"), sums))


def test_without_a_champion_there_is_no_drift(walk):
    run(*walk, params=PARAMS)
    assert read_json(walk[3])["drift"] is None


def test_a_champion_of_other_field_values_shares_nothing_but_the_unseen(walk):
    """What the log does not know by name is never matched by its number."""
    break_table(*walk[1:2], *2 * [lambda table: table.take(table.field_value_id < 5)])
    champion_tables = walk[1]
    pin_champion(walk[2], champion_tables)
    shutil.rmtree(walk[1])
    tabulate.run(walk[0], walk[1], params=TABULATE)
    run(*walk, params=PARAMS)
    drift = read_json(walk[3])["drift"]
    assert drift["version"] == "v0.0.3"
    assert drift["field_values"] == 1
    assert drift["mix"] > 1


def test_a_champion_without_tables_is_reported_and_not_fatal(walk, tmp_path):
    (tmp_path / "none").mkdir()
    pin_champion(walk[2], tmp_path / "none")
    run(*walk, params=PARAMS)
    assert "does not exist" in read_json(walk[3])["drift"]["why"]


def test_champion_tables_of_other_bytes_are_refused(walk):
    pin_champion(walk[2], walk[1])
    (walk[2].parent / TABLES / "bins.parquet").write_bytes(b"PAR1")
    with pytest.raises(ArtifactError, match=r"bins\.parquet .*; bring it with: adacalib champion$"):
        run(*walk, params=PARAMS)
    assert not walk[3].exists()


def test_training_rates_are_compared_with_calibration_rates_bin_by_bin(walk):
    run(*walk, params=PARAMS)
    found = read_json(walk[3])["memorisation"]
    assert found["training_days"] > 0
    assert sum(found["by_bin"]["calibration_impressions"]) == 400
    assert sum(found["by_bin"]["training_impressions"]) == 400


def test_data_docs_are_built_from_the_same_evidence(walk, tmp_path):
    index = build_docs(walk[0], walk[1], tmp_path / "data_docs", PARAMS)
    assert index.is_file()
    assert len(list((tmp_path / "data_docs" / "expectations").glob("*.html"))) == 4


def test_tables_of_other_scores_are_refused(walk, tmp_path):
    """Whatever they hold: a value more, or the same."""
    other = write_scores(tmp_path / "other", rows=201)
    with pytest.raises(ArtifactError, match=r"tables was made with other scores than .* dvc repro"):
        run(other, *walk[1:], params=PARAMS)
    assert not walk[3].exists()


def test_a_value_that_the_log_has_not_fails_the_stage_by_its_id(walk):
    def add(table):
        last = table.take(np.flatnonzero(table.field_value_id == table.field_value_id.max()))
        more = dataclasses.replace(last, field_value_id=last.field_value_id + 90)
        columns = zip(vars(table).values(), vars(more).values(), strict=True)
        return type(table)(*(np.concatenate(pair) for pair in columns))

    break_table(walk[1], add, add)
    with pytest.raises(CheckFailedError, match="field value id 9"):
        run(*walk, params=PARAMS)
