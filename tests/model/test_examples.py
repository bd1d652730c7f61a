"""Which rows teach, and in which order."""

import numpy as np
import pytest
import torch

from pipeline.errors import DataError, NotEnoughDataError
from pipeline.model.examples import Batches, Examples, examples_of, hold_out
from pipeline.model.features import Encoder, vocabulary_of
from tests.tiny_logs import tiny_day

DAYS = [f"2024-03-{day:02}" for day in range(1, 21)]


@pytest.fixture
def examples() -> Examples:
    """Ten rows whose only numeric feature is their place."""
    return Examples(
        np.arange(20, dtype=np.int32).reshape(10, 2) + 1,
        np.arange(10, dtype=np.float32)[:, None],
        np.arange(1, 11, dtype=np.int32),
        np.zeros(10, np.int32),
        ("place",),
    )


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


def test_rows_follow_each_other_day_by_day():
    days = {"2024-03-01": tiny_day(2), "2024-03-02": tiny_day(3, item=["b", "b", None])}
    items = vocabulary_of(days, ["item"], 10)
    encoder = Encoder({"item": items}, (), ("item",), items)
    examples = examples_of(encoder, days, "click", "shown")
    assert examples.categorical.ravel().tolist() == [1, 2, 2, 2, 0]
    assert examples.impressions.tolist() == [1, 2, 1, 2, 3]
    assert examples.responses.tolist() == [0, 1, 0, 1, 0]
    assert len(examples) == 5


def test_a_row_without_a_response_is_refused_by_day_and_row():
    days = {"2024-03-01": tiny_day(), "2024-03-02": tiny_day(click=[0, 1, None, 1])}
    items = vocabulary_of(days, ["item"], 10)
    with pytest.raises(DataError, match=r"day 2024-03-02: column click .* row 2 has nan"):
        examples_of(Encoder({}, (), ("item",), items), days, "click", None)


def test_the_response_rate_is_inside_its_interval_without_a_response(examples):
    assert 0 < examples.response_rate < 1


def test_an_epoch_has_every_row_once(examples):
    batches = Batches(examples, "cpu", batch_size=4, unseen_share=0.0, seed=1)
    epoch = list(batches.epoch(1))
    assert [len(batch.rows) for batch in epoch] == [4, 4, 2]
    assert len(batches) == 3
    rows = torch.cat([batch.rows for batch in epoch])
    assert sorted(rows.tolist()) == list(range(10))
    assert torch.equal(torch.cat([batch.numeric for batch in epoch])[:, 0], rows.float())
    assert torch.equal(torch.cat([batch.observed for batch in epoch])[:, 0], rows.float() + 1)


def test_the_order_differs_between_epochs_and_seeds_and_is_the_same_again(examples):
    """H24: a resumed training must not repeat the first shuffle."""

    def order(seed: int, epoch: int) -> list[int]:
        batches = Batches(examples, "cpu", batch_size=4, unseen_share=0.5, seed=seed)
        return torch.cat([batch.rows for batch in batches.epoch(epoch)]).tolist()

    assert order(1, 1) == order(1, 1)
    assert len({tuple(order(1, 1)), tuple(order(1, 2)), tuple(order(2, 1))}) == 3


def test_a_share_of_ids_is_hidden_and_the_examples_are_left_as_they_were(examples):
    before = examples.categorical.copy()
    batches = Batches(examples, "cpu", batch_size=10, unseen_share=0.2, seed=1)
    hidden = [int((b.categorical == 0).sum()) for e in range(1, 20) for b in batches.epoch(e)]
    assert all(1 <= count <= 4 for count in hidden)
    np.testing.assert_array_equal(examples.categorical, before)
