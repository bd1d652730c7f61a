"""Training: the right loss, the best epoch, the same bytes whatever happened on the way."""

import math
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.errors import NotEnoughDataError, TrainingError
from pipeline.core.work import WorkProgress
from pipeline.model.checkpoints import LAST_EPOCH, best_epoch
from pipeline.model.examples import Examples
from pipeline.model.scoring import logits_of
from pipeline.model.training import binomial_loss
from tests import reference
from tests.model.worlds import recipe_of, trained, untrained, weights, world

KILLED_WHILE_WRITING = """
import os, signal, sys
from pathlib import Path
from pipeline.model import checkpoints
from tests.model.worlds import trained, world

whole = Path.write_bytes
saved = []

def write_half_and_die(path, content):
    saved.append(path)
    if len(saved) < 3:
        return whole(path, content)
    whole(path, content[: len(content) // 2])
    os.kill(os.getpid(), signal.SIGKILL)

Path.write_bytes = write_half_and_die
trained(Path(sys.argv[1]), world(600)[0], world(200, seed=2)[0])
"""


class Stopped(BaseException):
    """What a signal does in the middle of a training."""


class StopAfter(WorkProgress):
    """Stops the training as soon as an epoch's state is saved."""

    def __init__(self, epoch: int) -> None:
        super().__init__("train", 1, "rows")
        self.epoch, self.lines = epoch, []

    def line(self, text: str) -> None:
        self.lines.append(text)
        if text.startswith(f"epoch {self.epoch} "):
            raise Stopped


@pytest.fixture(scope="module")
def sides() -> tuple[Examples, Examples]:
    """Rows to fit on and rows held out."""
    return world(600)[0], world(200, seed=2)[0]


@pytest.fixture(scope="module")
def undisturbed(sides, tmp_path_factory) -> bytes:
    """The weights of a training that nothing interrupted."""
    return weights(trained(tmp_path_factory.mktemp("undisturbed"), *sides)[0])


def answering(examples: Examples, responses: np.ndarray | int) -> Examples:
    """The same rows with other responses."""
    observed = examples.observed.copy()
    observed[:, 1] = responses
    return replace(examples, observed=observed)


def rate_of(examples: Examples) -> float:
    """The log-odds of the rate at which the rows respond."""
    impressions, responses = examples.observed.sum(axis=0)
    return math.log(responses / (impressions - responses))


@given(
    st.lists(
        st.tuples(st.floats(-120, 120), st.integers(0, 6), st.floats(0, 1)), min_size=1, max_size=8
    )
)
def test_the_loss_of_aggregates_is_that_of_their_impressions_one_by_one(rows):
    logit, impressions = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
    responses = np.array([round(r[1] * r[2]) for r in rows])
    label, single = reference.one_row_per_impression(impressions, responses, logit)[:2]
    tensors = (torch.tensor(np.asarray(a, float)) for a in (logit, impressions, responses))
    ones = torch.ones(len(label), dtype=torch.float64)
    one_by_one = binomial_loss(torch.tensor(single), ones, torch.tensor(np.asarray(label, float)))
    assert float(binomial_loss(*tensors)) == pytest.approx(float(one_by_one))


def test_the_loss_is_finite_where_the_probability_is_0_or_1():
    """Base logits -120, -20, 17, 18, 25, 120."""
    logit = torch.tensor([-120.0, -20, 17, 18, 25, 120])
    ones = torch.ones(6)
    assert float(binomial_loss(logit, ones, ones)) == pytest.approx(140, rel=1e-6)
    assert float(binomial_loss(logit, ones, 0 * ones)) == pytest.approx(180, rel=1e-6)


def test_a_trained_network_comes_near_the_truth(tmp_path):
    fitting, (held_out, truth) = world(4000)[0], world(4000, seed=2)
    _, history = trained(tmp_path, fitting, held_out, recipe_of(batch_size=128))
    shown, responses = torch.tensor(held_out.observed).unbind(1)
    best_possible = float(binomial_loss(torch.tensor(truth), shown, responses)) / shown.sum()
    constant = torch.full((len(truth),), rate_of(fitting), dtype=torch.float64)
    without_features = float(binomial_loss(constant, shown, responses)) / shown.sum()
    reached = best_epoch(history).held_out_loss
    assert reached < best_possible + 0.1 * (without_features - best_possible)


def test_a_row_of_many_impressions_teaches_what_its_impressions_teach(tmp_path):
    """The same impressions in one batch, aggregated and one by one."""
    fitting, held_out = world(50)[0], world(50, seed=2)[0]
    label, row = reference.one_row_per_impression(*fitting.observed.T.astype(int), np.arange(50))
    observed = np.stack([np.ones(len(label)), label], axis=1)
    single = Examples(fitting.categorical[row], fitting.numeric[row], observed)
    recipe = recipe_of(batch_size=1000, unseen_share=0.0)
    one, _ = trained(tmp_path / "one", fitting, held_out, recipe)
    other, _ = trained(tmp_path / "other", single, held_out, recipe)
    for name, tensor in one.state_dict().items():
        np.testing.assert_allclose(tensor, other.state_dict()[name], atol=1e-4, err_msg=name)


def test_training_twice_gives_the_same_bytes(sides, undisturbed, tmp_path):
    assert weights(trained(tmp_path, *sides)[0]) == undisturbed


def test_the_number_of_threads_changes_no_byte(sides, undisturbed, tmp_path):
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            assert weights(trained(tmp_path / str(threads), *sides)[0]) == undisturbed
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_a_resumed_training_ends_with_the_bytes_of_an_undisturbed_one(
    sides, undisturbed, tmp_path, epoch
):
    """Killed after epoch 2 of 4 (and 1, and 3)."""
    with pytest.raises(Stopped):
        trained(tmp_path, *sides, progress=StopAfter(epoch))
    second = StopAfter(99)
    network, history = trained(tmp_path, *sides, progress=second)
    assert weights(network) == undisturbed
    assert [record.epoch for record in history] == [1, 2, 3, 4]
    assert second.lines[0].startswith(f"going on after epoch {epoch}, ")
    assert len(second.lines) == 1 + (4 - epoch)


def test_a_finished_training_that_was_not_yet_published_is_not_repeated(
    sides, undisturbed, tmp_path
):
    trained(tmp_path, *sides)
    progress = StopAfter(1)
    assert weights(trained(tmp_path, *sides, progress=progress)[0]) == undisturbed
    assert len(progress.lines) == 1


@pytest.mark.slow
def test_a_write_cut_by_a_kill_leaves_the_epoch_before_loadable(sides, undisturbed, tmp_path):
    """Kill during the checkpoint write."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", KILLED_WHILE_WRITING, str(tmp_path)]
    killed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (
        len([path for path in tmp_path.iterdir() if path.is_file()]) == 2
    )  # the whole file of epoch 2, half of epoch 3's
    progress = StopAfter(99)
    assert weights(trained(tmp_path, *sides, progress=progress)[0]) == undisturbed
    assert progress.lines[0].startswith("going on after epoch 2, ")


@pytest.mark.parametrize("content", [b"", b"half a file", b"\x08\0\0\0\0\0\0\0{}      "])
def test_a_file_that_cannot_be_read_means_starting_again(sides, undisturbed, tmp_path, content):
    (tmp_path / LAST_EPOCH).write_bytes(content)
    assert weights(trained(tmp_path, *sides)[0]) == undisturbed


def test_a_file_with_a_changed_weight_means_starting_again(sides, undisturbed, tmp_path):
    trained(tmp_path, *sides, recipe_of(epochs=1))
    content = bytearray((tmp_path / LAST_EPOCH).read_bytes())
    content[-2] ^= 1
    (tmp_path / LAST_EPOCH).write_bytes(content)
    progress = StopAfter(1)
    with pytest.raises(Stopped):
        trained(tmp_path, *sides, recipe_of(epochs=1), progress=progress)
    assert progress.lines[0].startswith("epoch 1 of ")


def test_a_large_vocabulary_is_trained_row_by_row_and_resumed_to_the_same_bytes(sides, tmp_path):
    """Rows of the embedding that no batch names stay as they were drawn."""
    recipe = recipe_of(batch_size=1, epochs=2, unseen_share=0.0)
    few = [replace(side, **{n: a[:20] for n, a in vars(side).items()}) for side in sides]
    whole, _ = trained(tmp_path / "whole", *few, recipe)
    drawn, seen = untrained().embedding.weight, np.unique(np.add(few[0].categorical, [0, 4]))
    unseen = np.setdiff1d(np.arange(len(drawn)), seen)
    assert torch.equal(whole.embedding.weight[unseen], drawn[unseen])
    with pytest.raises(Stopped):
        trained(tmp_path / "cut", *few, recipe, progress=StopAfter(1))
    assert weights(trained(tmp_path / "cut", *few, recipe)[0]) == weights(whole)


@pytest.mark.parametrize("change", ["recipe", "label", "feature", "held_out"])
def test_another_training_does_not_go_on_from_the_file(sides, tmp_path, change):
    fitting, held_out = sides
    trained(tmp_path, fitting, held_out, recipe_of(epochs=1))
    other = {
        "recipe": (fitting, held_out, recipe_of(epochs=1, seed=2)),
        "label": (answering(fitting, 0), held_out),
        "feature": (replace(fitting, numeric=-fitting.numeric), held_out),
        "held_out": (fitting, replace(held_out, numeric=-held_out.numeric)),
    }[change]
    progress = StopAfter(1)
    with pytest.raises(Stopped):
        trained(tmp_path, *other, progress=progress)
    assert progress.lines[0].startswith("epoch 1 of ")


def test_held_out_rows_are_not_trained_on(sides, tmp_path):
    fitting, held_out = sides
    recipe = recipe_of(epochs=1)
    opposite = answering(held_out, held_out.observed @ [1, -1])
    one, history = trained(tmp_path / "one", fitting, held_out, recipe)
    other, other_history = trained(tmp_path / "other", fitting, opposite, recipe)
    assert weights(one) == weights(other)
    assert history[0].loss == other_history[0].loss
    assert history[0].held_out_loss != other_history[0].held_out_loss


def test_the_weights_of_the_best_epoch_are_kept(sides, tmp_path):
    fitting, held_out = sides
    network, history = trained(tmp_path, fitting, held_out, recipe_of(learning_rate=0.05))
    logit = logits_of(network, held_out.categorical, held_out.numeric, 1000)
    nats = binomial_loss(
        torch.from_numpy(logit).double(),
        *torch.from_numpy(held_out.observed).unbind(1),
    )
    loss = float(nats) / held_out.observed[:, 0].sum()
    assert loss == pytest.approx(best_epoch(history).held_out_loss, rel=1e-9)
    assert best_epoch(history).held_out_loss == min(r.held_out_loss for r in history)


def test_training_ends_when_it_gets_no_better(tmp_path):
    """Labels without a pattern: after some epochs the network only learns the fitting rows."""
    fitting, held_out = world(300)[0], world(300, seed=2)[0]
    noise = np.random.default_rng(1).binomial(fitting.observed[:, 0].astype(int), 0.3)
    recipe = recipe_of(epochs=50, patience=2, learning_rate=0.02)
    _, history = trained(tmp_path, answering(fitting, noise), held_out, recipe)
    assert len(history) == best_epoch(history).epoch + 2 < 50


@pytest.mark.parametrize("value", [-math.inf, math.nan])
def test_the_first_loss_that_is_not_finite_stops_naming_batch_and_feature(sides, tmp_path, value):
    """Nothing is saved over the last good file."""
    fitting, held_out = sides
    trained(tmp_path, fitting, held_out, recipe_of(epochs=1))
    before = (tmp_path / LAST_EPOCH).read_bytes()
    numeric = fitting.numeric.copy()
    numeric[77, 1] = value
    sentence = rf"epoch 1, batch \d+ of 10: .*feature age is {value} in row 77 of the fitting days"
    with pytest.raises(TrainingError, match=sentence):
        trained(tmp_path, replace(fitting, numeric=numeric), held_out)
    assert (tmp_path / LAST_EPOCH).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [LAST_EPOCH]


def test_weights_that_run_away_stop_naming_the_batch_and_the_learning_rate(sides, tmp_path):
    with pytest.raises(TrainingError, match=r"batch 2 of 10: .* lower train_base.learning_rate"):
        trained(tmp_path, *sides, recipe_of(learning_rate=1e30))
    assert not list(tmp_path.iterdir())


def test_a_last_step_that_runs_away_is_caught_before_it_is_saved(sides, tmp_path):
    recipe = recipe_of(learning_rate=1e30, batch_size=600)
    with pytest.raises(TrainingError, match="epoch 1: the loss on the held-out days"):
        trained(tmp_path, *sides, recipe)
    assert not list(tmp_path.iterdir())


def test_a_side_without_impressions_is_refused(sides, tmp_path):
    fitting, held_out = sides
    empty = replace(held_out, observed=0 * held_out.observed)
    with pytest.raises(NotEnoughDataError, match="the held-out days have no impressions"):
        trained(tmp_path, fitting, empty)
    with pytest.raises(NotEnoughDataError, match="the fitting days have no impressions"):
        trained(tmp_path, empty, held_out)


def test_no_response_at_all_is_learned_as_rare(sides, tmp_path):
    fitting, held_out = sides
    silent = answering(fitting, 0)
    network, _ = trained(tmp_path, silent, held_out, recipe_of(epochs=1))
    logit = logits_of(network, held_out.categorical, held_out.numeric, 1000)
    assert np.isfinite(logit).all()
    assert logit.mean() < -3


def test_hidden_ids_teach_what_it_means_not_to_know(sides, tmp_path):
    """The world has no unseen value; without hiding, the id 0 would stay as it was drawn."""
    for share, learned in ((0.0, False), (0.05, True)):
        recipe = recipe_of(epochs=1, unseen_share=share)
        network, _ = trained(tmp_path / str(share), *sides, recipe)
        unknown = network.embedding.weight[network.first_row]
        assert bool((unknown != 0).all()) is learned


def test_rows_are_left_as_they_were(sides, tmp_path):
    before = [array.copy() for side in sides for array in vars(side).values()]
    trained(tmp_path, *sides, recipe_of(epochs=1, unseen_share=0.5))
    for array, copy in zip([a for side in sides for a in vars(side).values()], before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_an_epoch_is_one_line_on_standard_error(sides, tmp_path, capsys):
    trained(tmp_path, *sides, recipe_of(epochs=2))
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert [line[:17] for line in lines] == ["epoch 1 of 2: los", "epoch 2 of 2: los"]
    assert all(
        re.search(r"held out [\d.]+, [\d,]+ rows/s, 0:00:\d\d left$", line) for line in lines
    )


def test_an_untrained_network_is_not_the_trained_one(undisturbed):
    assert weights(untrained()) != undisturbed
