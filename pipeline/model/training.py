"""Training of the base network: mini-batches of whole epochs, best epoch kept, exact resume."""

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch.nn import functional

from pipeline.core.errors import NotEnoughDataError, TrainingError
from pipeline.core.files import json_sha256
from pipeline.core.work import WorkProgress
from pipeline.model.checkpoints import EpochRecord, best_epoch, resume_epoch, save_epoch
from pipeline.model.examples import Batch, Batches, Shard
from pipeline.model.network import Adam, BaseNetwork, initialise
from pipeline.model.ranks import AGAIN, ALONE, Ranks
from pipeline.model.scoring import logits_of

EVALUATION_BATCH = 4096  # rows: what the layers make of them fits a cache
SPARSE_FROM = 4  # embeddings for every id of a batch from which changing only those is faster


class Recipe(Protocol):
    """How the network is trained: the values of train_base in params.yaml that change its weights.

    Attributes:
        epochs: at most.
        patience: epochs in a row without a better held-out loss that end the training.
        batch_size: rows of a step.
        learning_rate: of Adam.
        weight_decay: of Adam, on all weights.
        unseen_share: share of ids replaced by 0 in a step, so that the id 0 learns what it means
            not to know a value.
        seed: of weights, orders and replaced ids.
    """

    epochs: int
    patience: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    unseen_share: float
    seed: int


def binomial_loss(
    logit: torch.Tensor, impressions: torch.Tensor, responses: torch.Tensor
) -> torch.Tensor:
    """Σ impressions · ln(1 + e^logit) - responses · logit, in nats.

    The negative log-likelihood of responses among impressions, without the binomial coefficient:
    a row of 5 impressions and 2 responses costs what its five rows of one impression cost. It is
    taken from the logit, so it is finite at ±120, where a float32 probability is 0 or 1.

    Args:
        logit: float [n], log-odds.
        impressions: float [n].
        responses: float [n], at most impressions.
    """
    return (impressions * functional.softplus(logit) - responses * logit).sum()


def train(
    network: BaseNetwork,
    fitting: Shard,
    held_out: Shard,
    recipe: Recipe,
    *,
    folder: Path,
    progress: WorkProgress,
    ranks: Ranks = ALONE,
) -> list[EpochRecord]:
    """Train `network` and leave it with the weights of its best epoch; one record an epoch.

    After each epoch the whole state is published in `folder`. A training of the same rows by the
    same recipe that finds it there goes on after that epoch, and ends with the same bytes as one
    that was never interrupted. The caller removes the folder when the result is safe.

    Several processes take the steps of one, to rounding: each has a part of every batch, and their
    gradients are added up. The first of them publishes; as many as began a training go on with it.

    Args:
        network: sized for the rows; changed in place.
        fitting: rows whose loss is minimised.
        held_out: rows of later days, which only decide which epoch is kept and when to stop.
        recipe: how.
        folder: where the last good epoch is kept.
        progress: is reported rows and epochs.
        ranks: this process among those that train together, and its device.

    Raises:
        NotEnoughDataError: one of the sides has no impressions.
        TrainingError: a loss is not finite; the sentence names epoch, batch and feature.
    """
    for name, side in (("fitting", fitting), ("held-out", held_out)):
        if not side.impressions:
            raise NotEnoughDataError(f"the {name} days have no impressions; train on more days")
    initialise(network, recipe.seed, fitting.response_rate)
    network.to(ranks.device)
    network.embedding.sparse = _sparse(network, recipe)
    optimizer = Adam(network, recipe.learning_rate, recipe.weight_decay)
    batches = Batches(fitting, ranks, recipe.batch_size, recipe.unseen_share, recipe.seed)
    fingerprint = _fingerprint(network, batches, held_out, recipe)
    save = partial(save_epoch, folder, fingerprint, network=network, optimizer=optimizer)
    history, best_weights = resume_epoch(folder, fingerprint, network, optimizer)
    if ranks.total(len(history)) != len(history) * ranks.number:
        raise TrainingError(f"processes see different files in {folder}; {AGAIN}")
    if history:
        progress.line(f"going on after epoch {history[-1].epoch}, which {folder} holds")
        progress.leave_out(len(history) * len(fitting))
    with _deterministic(ranks.device):
        while not _finished(history, recipe):
            epoch = len(history) + 1
            loss = _run_epoch(network, optimizer, batches, epoch=epoch, progress=progress)
            history.append(EpochRecord(epoch, loss, _mean_loss(network, held_out, epoch, ranks)))
            if best_epoch(history).epoch == epoch:
                best_weights = {n: t.detach().clone() for n, t in network.state_dict().items()}
            if ranks.rank == 0:
                save(history=history, best_weights=best_weights)
            progress.line(f"{_sentence(history[-1], recipe)}, {progress.pace()}")
    network.load_state_dict(best_weights)
    return history


def _sparse(network: BaseNetwork, recipe: Recipe) -> bool:
    """Whether a step touches few rows of the embeddings, so that it pays to change those alone."""
    touched = recipe.batch_size * len(network.first_row)
    return network.embedding.num_embeddings > SPARSE_FROM * touched


def _sentence(record: EpochRecord, recipe: Recipe) -> str:
    return (
        f"epoch {record.epoch} of {recipe.epochs}: loss {record.loss:.5f}, "
        f"held out {record.held_out_loss:.5f}"
    )


def _finished(history: Sequence[EpochRecord], recipe: Recipe) -> bool:
    if len(history) >= recipe.epochs:
        return True
    return bool(history) and len(history) - best_epoch(history).epoch >= recipe.patience


def _fingerprint(network: BaseNetwork, batches: Batches, held_out: Shard, recipe: Recipe) -> str:
    """The sha256 of what decides the weights: rows, recipe, sizes, processes, torch's version."""
    sizes = {name: list(tensor.shape) for name, tensor in network.state_dict().items()}
    values = [getattr(recipe, name) for name in Recipe.__annotations__]
    rows = batches.shard.sha256s, held_out.sha256s
    return json_sha256([values, sizes, batches.ranks.number, torch.__version__, rows])


def _run_epoch(
    network: BaseNetwork,
    optimizer: Adam,
    batches: Batches,
    *,
    epoch: int,
    progress: WorkProgress,
) -> float:
    """Take one step for each batch; the epoch's mean loss in nats per impression."""
    fitting, ranks = batches.shard, batches.ranks
    total, mean_impressions = 0.0, fitting.impressions / len(fitting)
    device = network.first_row.device.type
    for number, batch in enumerate(batches.epoch(epoch), start=1):
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            logit = network(batch.categorical, batch.numeric)
        loss = binomial_loss(logit.float(), *batch.observed.unbind(1))
        nats = loss.item()
        if not math.isfinite(nats):
            reason = _reason(batch, fitting.numeric_columns)
            raise TrainingError(f"epoch {epoch}, batch {number} of {len(batches)}: {reason}")
        (loss / (batch.size * mean_impressions)).backward()
        ranks.add_gradients(network)
        optimizer.step()
        total += nats
        progress.advance(batch.size)
    return ranks.total(total) / fitting.impressions


def _reason(batch: Batch, numeric_columns: Sequence[str]) -> str:
    """Why a batch has no finite loss: its first feature that is not finite, or the largest one."""
    wrong = (~torch.isfinite(batch.numeric)).nonzero()
    if len(wrong):
        row, column = wrong[0].tolist()
        return (
            f"the loss is not finite because feature {numeric_columns[column]} is "
            f"{batch.numeric[row, column].item()} in row {int(batch.rows[row])} of the fitting "
            f"days; repair that feature"
        )
    sentence = "the loss is not finite though every feature is: the weights have run away"
    if batch.numeric.numel():
        column = int(batch.numeric.abs().amax(0).argmax())
        largest = batch.numeric[:, column].abs().max().item()
        sentence += f" (the largest feature is {numeric_columns[column]}, ±{largest:.4g})"
    return f"{sentence}; lower train_base.learning_rate"


def _mean_loss(network: BaseNetwork, shard: Shard, epoch: int, ranks: Ranks) -> float:
    """Nats per impression, summed in float64; the processes take batches in turn."""
    nats, step = 0.0, ranks.number * EVALUATION_BATCH
    for start in range(ranks.rank * EVALUATION_BATCH, len(shard), step):
        rows = shard.read(start, EVALUATION_BATCH)
        logit = logits_of(network, rows.categorical, rows.numeric, EVALUATION_BATCH)
        if not np.isfinite(logit).all():
            raise TrainingError(
                f"epoch {epoch}: the loss on the held-out days is not finite though every "
                f"batch's was; lower train_base.learning_rate"
            )
        impressions, responses = rows.observed.T
        loss = impressions * np.logaddexp(0, logit, dtype=np.float64)
        nats += float((loss - responses * logit.astype(np.float64)).sum())
    return ranks.total(nats) / shard.impressions


@contextmanager
def _deterministic(device: str) -> Iterator[None]:
    """Kernels whose bytes do not depend on the order in which threads finish.

    Those of the CPU that are used here never do.
    """
    if device == "cpu":
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what CUDA asks for that
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
