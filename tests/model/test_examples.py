"""Which rows teach."""

import pytest

from pipeline.core.errors import DataError, NotEnoughDataError
from pipeline.encoding.features import Encoder
from pipeline.encoding.vocabulary import Vocabulary
from pipeline.model.examples import examples_of, hold_out
from tests.tiny_logs import tiny_day

DAYS = [f"2024-03-{day:02}" for day in range(1, 21)]
ITEMS = Vocabulary(("a", "b"))


@pytest.mark.parametrize(
    ("share", "held_out"), [(0.01, 1), (0.05, 1), (0.1, 2), (0.11, 3), (0.3, 6), (0.95, 19)]
)
def test_the_newest_share_is_held_out_in_whole_days_rounded_up(share, held_out):
    fitting, newest = hold_out(DAYS, share)
    assert fitting + newest == DAYS
    assert len(newest) == held_out


@pytest.mark.parametrize("days", [DAYS[:1], []])
def test_days_that_are_all_held_out_are_too_few(days):
    with pytest.raises(NotEnoughDataError, match=r"held_out_share 0.1 of \d training days"):
        hold_out(days, 0.1)


def test_rows_come_day_by_day():
    days = [("2024-03-01", tiny_day(2)), ("2024-03-02", tiny_day(3, item=["b", "b", None]))]
    encoder = Encoder({"item": ITEMS}, (), ("item",), ITEMS)
    first, second = examples_of(encoder, days, "click", "shown")
    assert first.categorical.ravel().tolist() == [1, 2]
    assert second.categorical.ravel().tolist() == [2, 2, 0]
    assert first.observed.tolist() == [[1, 0], [2, 1]]
    assert second.observed.tolist() == [[1, 0], [2, 1], [3, 0]]


def test_a_row_without_a_response_is_refused_by_day_and_row():
    days = [("2024-03-01", tiny_day()), ("2024-03-02", tiny_day(click=[0, 1, None, 1]))]
    rows = examples_of(Encoder({}, (), ("item",), ITEMS), days, "click", None)
    with pytest.raises(DataError, match=r"day 2024-03-02, column click, row 2 is null or NaN"):
        list(rows)
