"""One log and its tables for all tests of the checks."""

import pytest

from pipeline.calibration.statistics.bins import tabulate
from tests.calibration.logs import random_scores
from tests.quality.test_table_checks import CANDIDATES, log_sums


@pytest.fixture(scope="session")
def log():
    """Bins, cells and sums of a log with ties; each test breaks a copy."""
    scores = random_scores(2000, n_field_values=12, impressions=4, decimals=1)
    bins, cells = tabulate(scores, CANDIDATES, 20)
    return bins, cells, log_sums(scores, bins)
