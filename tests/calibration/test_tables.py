"""Tables of bins and cells: plain columns, looked up by candidate."""

from dataclasses import replace

import numpy as np
import pytest

from pipeline.calibration.statistics.bins import tabulate
from pipeline.core.errors import DataError
from pipeline.formats.tables import cells_to_bins
from tests.calibration.logs import random_scores
from tests.reference import inner_bounds


def test_a_candidate_has_its_own_rows_only():
    bins, _ = tabulate(random_scores(), (5, 10), 20)
    assert set(bins.candidate(5).requested_bins) == {5}
    assert len(bins.candidate(5)) + len(bins.candidate(10)) == len(bins)


def test_a_candidate_that_was_not_made_is_refused():
    bins, _ = tabulate(random_scores(), (5, 10), 20)
    with pytest.raises(DataError, match=r"has candidates \[5, 10\], not 7"):
        bins.candidate(7)


def test_columns_of_different_lengths_are_refused():
    bins, cells = tabulate(random_scores(), (5,), 20)
    for table in (bins, cells):
        with pytest.raises(DataError, match="columns of one length"):
            replace(table, responses=table.responses[1:])


def test_cells_lie_in_the_bin_whose_bounds_hold_their_mean_logit():
    bins, cells = tabulate(random_scores(), (5, 10), 20)
    for requested in (5, 10):
        inner = inner_bounds(bins, requested, 50)[cells.field_value_id]
        mean = cells.logit_sum / cells.impressions
        np.testing.assert_array_equal(
            cells_to_bins(cells, bins, requested), (mean[:, None] >= inner).sum(axis=1)
        )
