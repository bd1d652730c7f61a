"""Field statistics of a log read in pieces: those of the whole log, to the bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.calibration.statistics import counting as module
from pipeline.calibration.statistics.bins import tabulate
from pipeline.calibration.statistics.counting import Pieces, tabulate_pieces
from pipeline.core.errors import DataError
from tests.calibration.logs import (
    AGGREGATED,
    CANDIDATES,
    GRID,
    assert_same,
    few_examples,
    random_scores,
    small_blocks,
)


def pieces_of(scores, count, loads=None):
    """A log in `count` pieces of rows; the number of every piece that is loaded goes to `loads`."""
    parts = np.array_split(np.arange(len(scores)), count)

    def load(piece, _):
        if loads is not None:
            loads.append(piece)
        return scores.take(parts[piece])

    def survey(piece):
        return scores.field_value_id[parts[piece]], scores.impressions[parts[piece]]

    days = scores.day.tolist() or [0]
    return Pieces(count, survey, load, scores.n_field_values, min(days), max(days))


@few_examples
@given(AGGREGATED, st.integers(1, 4), st.integers(1, 60), st.integers(1, 3))
def test_pieces_give_the_tables_of_the_whole_log(scores, count, rows_at_once, threads):
    with small_blocks():
        read = tabulate_pieces(
            pieces_of(scores, count), CANDIDATES, GRID, 16 * rows_at_once, threads
        )
    for a, b in zip(read, tabulate(scores, CANDIDATES, GRID), strict=True):
        assert_same(a, b)


@few_examples
@given(AGGREGATED, st.integers(1, 4), st.integers(1, 60), st.integers(1, 3))
def test_ranges_that_processes_make_one_by_one_give_the_same(scores, count, rows_at_once, threads):
    def over(work, items):
        return [work(item) for item in items]

    with small_blocks():
        read = tabulate_pieces(
            pieces_of(scores, count), CANDIDATES, GRID, 16 * rows_at_once, threads, over=over
        )
    for a, b in zip(read, tabulate(scores, CANDIDATES, GRID), strict=True):
        assert_same(a, b)


@pytest.mark.parametrize("impressions", [1, 3])
def test_pieces_are_read_once_where_all_rows_may_be_held(impressions):
    loads = []
    scores = random_scores(impressions=impressions)
    tabulate_pieces(pieces_of(scores, 3, loads), (5,), 20, memory=3000 * 128)
    assert sorted(loads) == [0, 1, 2]


@pytest.mark.parametrize("impressions", [1, 3])
def test_no_more_rows_are_held_than_asked_but_for_a_larger_field_value(impressions, monkeypatch):
    held = []
    scores = random_scores(impressions=impressions)
    tables_of = module.tables_of

    def watched(ranges, *arguments):
        held.append(sum(len(rows.keys) for rows in ranges))
        return tables_of(ranges, *arguments)

    monkeypatch.setattr(module, "tables_of", watched)
    bytes_of_a_row = module.PACKED_BYTES if impressions == 1 else module.COUNTED_BYTES
    tabulate_pieces(pieces_of(scores, 3), (5,), 20, memory=500 * bytes_of_a_row)
    largest = np.bincount(scores.field_value_id).max()
    assert len(held) > 5
    assert max(held) <= max(500, largest)
    assert sum(held) == (scores.impressions > 0).sum()


def test_candidates_must_divide_the_grid_before_anything_is_read():
    loads = []
    with pytest.raises(DataError, match="not a multiple"):
        tabulate_pieces(pieces_of(random_scores(), 2, loads), (7,), 20, 100)
    assert loads == []
