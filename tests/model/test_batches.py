"""In which order rows come: every row once, another order each epoch, the same again."""

import numpy as np
import pytest
import torch

from pipeline.model import examples
from pipeline.model.examples import Batches, Examples, Shard, write_shard
from pipeline.model.ranks import ALONE, Ranks


def shard_of(folder, rows: int, parts: int = 2) -> Shard:
    """Rows whose only numeric feature is their place."""
    place = np.arange(rows, dtype=np.float32)[:, None]
    ids = np.arange(2 * rows, dtype=np.int32).reshape(rows, 2) + 1
    observed = np.stack([np.arange(1, rows + 1), np.zeros(rows)], axis=1)
    arrays = [np.array_split(array, parts) for array in (ids, place, observed)]
    return write_shard(
        folder, (Examples(*part) for part in zip(*arrays, strict=True)), 2, ["place"]
    )


@pytest.fixture
def shard(tmp_path) -> Shard:
    """Ten rows."""
    return shard_of(tmp_path, 10)


@pytest.fixture
def small_blocks(monkeypatch) -> None:
    """Blocks of 10 rows, of which 4 are in memory at a time."""
    monkeypatch.setattr(examples, "BLOCK", 10)
    monkeypatch.setattr(examples, "WINDOW", 4)


def order(shard: Shard, epoch: int = 1, seed: int = 1, batch_size: int = 4) -> list[int]:
    """The places of the rows in the order in which they come."""
    epoch_of = Batches(shard, ALONE, batch_size=batch_size, unseen_share=0.5, seed=seed).epoch
    return torch.cat([batch.rows for batch in epoch_of(epoch)]).tolist()


def test_a_shard_gives_its_rows_back_from_any_place(shard):
    whole, some = shard.read(0, 100), shard.read(7, 2)
    assert whole.numeric.ravel().tolist() == list(range(10))
    assert some.categorical.tolist() == [[15, 16], [17, 18]]
    assert some.observed.tolist() == [[8, 0], [9, 0]]
    assert (len(shard), shard.impressions, shard.responses) == (10, 55.0, 0.0)
    assert 0 < shard.response_rate < 1


def test_a_log_without_numeric_features_has_rows_too(tmp_path):
    rows = Examples(np.ones((3, 1), np.int32), np.empty((3, 0), np.float32), np.ones((3, 2)))
    shard = write_shard(tmp_path, [rows], 1, [])
    assert shard.read(1, 5).numeric.shape == (2, 0)
    assert sorted(order(shard)) == [0, 1, 2]


def test_what_is_done_to_rows_that_were_read_changes_no_file(shard):
    before = shard.sha256s
    shard.read(0, 10).categorical[:] = 0
    assert shard.sha256s == before


def test_an_epoch_has_every_row_once(shard):
    batches = Batches(shard, ALONE, batch_size=4, unseen_share=0.0, seed=1)
    epoch = list(batches.epoch(1))
    assert [len(batch.rows) for batch in epoch] == [4, 4, 2]
    assert len(batches) == 3
    rows = torch.cat([batch.rows for batch in epoch])
    assert sorted(rows.tolist()) == list(range(10))
    assert torch.equal(torch.cat([batch.numeric for batch in epoch])[:, 0], rows.float())
    assert torch.equal(torch.cat([batch.observed for batch in epoch])[:, 0], rows.float() + 1)


@pytest.mark.parametrize("number", [2, 3, 7])
@pytest.mark.parametrize("rows", [1, 9, 41, 80])
def test_the_parts_of_processes_are_the_batches_of_one(small_blocks, tmp_path, rows, number):
    """Of one size; an example that fills one up is of the same batch and was observed 0 times."""
    shard = shard_of(tmp_path, rows)
    recipe = {"batch_size": 8, "unseen_share": 0.3, "seed": 1}
    parts = [list(Batches(shard, Ranks(rank, number), **recipe).epoch(1)) for rank in range(number)]
    for whole, *of_all in zip(Batches(shard, ALONE, **recipe).epoch(1), *parts, strict=True):
        assert {part.size for part in of_all} == {whole.size} == {len(whole.rows)}
        assert len({len(part.rows) for part in of_all}) == 1
        for name in ("rows", "categorical", "numeric", "observed"):
            together = torch.cat([getattr(part, name) for part in of_all])
            assert torch.equal(together[: whole.size], getattr(whole, name)), name
            filled = together[whole.size :]
            last = getattr(whole, name)[-1]
            assert torch.equal(filled, (0 * last if name == "observed" else last).expand_as(filled))


@pytest.mark.parametrize("rows", [1, 9, 10, 39, 40, 41, 80, 123])
def test_an_epoch_of_many_windows_has_every_row_once(small_blocks, tmp_path, rows):
    batches = Batches(shard_of(tmp_path, rows), ALONE, batch_size=7, unseen_share=0.0, seed=1)
    epoch = list(batches.epoch(1))
    assert len(batches) == len(epoch)
    places = torch.cat([batch.rows for batch in epoch])
    assert sorted(places.tolist()) == list(range(rows))
    assert torch.equal(torch.cat([batch.numeric for batch in epoch])[:, 0], places.float())


def test_a_window_mixes_blocks_from_all_over_the_log(small_blocks, tmp_path):
    first = np.array(order(shard_of(tmp_path, 400))[:40])
    assert len(set(first // 10)) == 4
    assert np.ptp(first) > 100
    assert (np.diff(first) == 1).sum() < 10


def test_the_order_differs_between_epochs_and_seeds_and_is_the_same_again(small_blocks, tmp_path):
    """A resumed training must not repeat the first shuffle."""
    shard = shard_of(tmp_path, 100)
    assert order(shard) == order(shard)
    several = {tuple(order(shard, epoch, seed)) for epoch, seed in ((1, 1), (2, 1), (1, 2))}
    assert len(several) == 3


def test_a_share_of_ids_is_hidden(shard):
    batches = Batches(shard, ALONE, batch_size=10, unseen_share=0.2, seed=1)
    hidden = [int((b.categorical == 0).sum()) for e in range(1, 20) for b in batches.epoch(e)]
    assert all(1 <= count <= 4 for count in hidden)
