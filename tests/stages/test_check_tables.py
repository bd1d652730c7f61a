"""check_tables: a report where the tables hold, a refusal and no report where they do not."""

import numpy as np
import pytest

from pipeline.data.table_files import read_bins, read_cells, read_tables_manifest, write_tables
from pipeline.errors import CheckFailedError
from pipeline.files import read_json
from pipeline.params import CheckTablesParams
from pipeline.stages import tabulate
from pipeline.stages.check_tables import run
from tests.quality.test_checks import changed
from tests.stages.test_tabulate import PARAMS as TABULATE
from tests.stages.test_tabulate import write_scores

PARAMS = CheckTablesParams(equal_frequency_tolerance=0.5)


@pytest.fixture
def walk(tmp_path):
    """The paths of the stage: scores, tables made of them, and the report to come."""
    scores = write_scores(tmp_path / "scores")
    tabulate.run(scores, tmp_path / "tables", params=TABULATE)
    return scores, tmp_path / "tables", tmp_path / "tables.json"


def break_table(folder, change):
    """Write the tables of a folder again with another bin table."""
    bins, cells = read_bins(folder), read_cells(folder)
    write_tables(folder, change(bins), cells, read_tables_manifest(folder))


def test_the_report_lists_every_check_and_says_that_all_passed(walk):
    run(*walk, params=PARAMS)
    report = read_json(walk[2])
    assert report["passed"] is True
    assert report["breaches"] == []
    assert {"contiguous_bounds", "equal_frequency", "coverage"} <= {
        check["name"] for check in report["checks"]
    }
    assert all(check["breach"] is None for check in report["checks"])


def test_the_same_tables_give_the_same_report(walk):
    run(*walk, params=PARAMS)
    first = walk[2].read_bytes()
    run(*walk, params=PARAMS)
    assert walk[2].read_bytes() == first


def test_a_breach_fails_the_stage_by_field_value_and_bin_and_leaves_no_report(walk):
    break_table(walk[1], lambda bins: changed(bins, "responses", 3, bins.impressions[3] + 1))
    with pytest.raises(CheckFailedError, match=r"field value id 0 \(None\), K = 5, bin 1: it has"):
        run(*walk, params=PARAMS)
    assert not walk[2].exists()


def test_a_value_that_vanished_from_the_table_fails_the_stage(walk):
    """H23: bins for a field value of the log are missing entirely."""
    break_table(walk[1], lambda bins: bins.take(bins.field_value_id != 2))
    with pytest.raises(CheckFailedError, match=r"field value id 2 \('b'\), K = 2: the log has"):
        run(*walk, params=PARAMS)


def test_an_empty_table_fails_the_stage(walk):
    """H23: a table without rows breaks no rule on rows."""
    break_table(walk[1], lambda bins: bins.take(np.zeros(0, dtype=np.int64)))
    with pytest.raises(CheckFailedError, match="bins: expected that there are rows"):
        run(*walk, params=PARAMS)
