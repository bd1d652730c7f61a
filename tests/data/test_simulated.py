"""The simulated log: known probabilities, equal for equal seeds, and a turn nobody foresees."""

import numpy as np
import pyarrow as pa
import pytest

from pipeline.core.errors import DataError
from pipeline.data.ingest.simulated import CONSTANT, LEAST_SLOPE, SCHEMA, Simulation

LOG = Simulation(rows=60_000, days=20, field_values=40, seed=3)


def whole(simulation: Simulation) -> pa.Table:
    return pa.concat_tables([table for _, table in simulation.tables()])


def test_the_size_is_what_was_asked_for():
    log = Simulation(rows=100, days=7, field_values=2)
    days = dict(log.tables())
    assert sum(map(len, days.values())) == 100
    assert {len(table) for table in days.values()} == {14, 15}
    assert (min(days), max(days)) == ("2025-01-01", "2025-01-07")
    assert all(table.schema == SCHEMA for table in days.values())


def test_a_day_is_the_same_alone_or_among_others_and_another_for_another_seed():
    later = Simulation(rows=60_000, days=20, field_values=40, seed=3).day(7)
    assert dict(LOG.tables())["2025-01-08"].equals(later)
    assert not Simulation(rows=60_000, days=20, field_values=40, seed=4).day(7).equals(later)


def test_clicks_are_drawn_from_the_true_probabilities():
    log = whole(LOG)
    probability = log["true_probability"].to_numpy()
    clicks = log["click"].to_numpy()
    assert (probability > 0).all()
    assert (probability < 1).all()
    sigma = np.sqrt((probability * (1 - probability)).sum())
    assert abs(clicks.sum() - probability.sum()) < 4 * sigma
    assert 0.03 < probability.mean() < 0.14


def test_items_have_zipf_frequencies():
    counts = np.sort(np.unique(whole(LOG)["item_id"].to_numpy(), return_counts=True)[1])[::-1]
    assert len(counts) == 40
    assert 3 * counts[-1] < counts[0] < 30 * counts[-1]


def test_every_item_ranks_by_the_old_score_after_the_turn():
    """A strictly increasing map of the old score is right for every item."""
    score = np.linspace(-12, 6, 2_000)
    for item in range(40):
        rise = np.diff(LOG._turned(score, np.full(2_000, item), LOG.days - 1)) / np.diff(score)
        assert rise.min() > 0.9 * LEAST_SLOPE


def test_before_the_turn_the_score_is_the_truth_and_after_it_no_line_is():
    score = np.linspace(CONSTANT - 3, CONSTANT + 3, 500)
    misfit = []
    for item in range(40):
        before = LOG._turned(score, np.full(500, item), 0)
        np.testing.assert_allclose(before, score, atol=1e-3)
        after = LOG._turned(score, np.full(500, item), LOG.days - 1)
        misfit.append(np.polyfit(score, after, 1, full=True)[1][0] / 500)
    assert np.sqrt(np.median(misfit)) > 0.1


@pytest.mark.parametrize(
    "size", [{"rows": 0}, {"days": 0}, {"field_values": 0}, {"rows": 5, "days": 6}]
)
def test_a_log_of_no_size_is_refused(size):
    with pytest.raises(DataError, match="simulated needs"):
        Simulation(**size)
