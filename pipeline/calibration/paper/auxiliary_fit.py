"""Fitting the auxiliary network of the default variant: after the head, on what the head leaves.

A row's offset is the head's logit for it by the fold that had not seen its day, so the network
learns what is left out of sample. It stops where the newest calibration day is predicted best, and
is kept only where that day says for sure that it helps.
"""

from collections.abc import Sequence
from copy import deepcopy

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from pipeline.calibration.adacalib.fit import HeldOut
from pipeline.calibration.adacalib.training import single_thread
from pipeline.calibration.comparison import standard_error
from pipeline.calibration.paper.auxiliary import AuxiliaryNetwork
from pipeline.calibration.paper.paper_rows import Features
from pipeline.core.errors import TrainingError
from pipeline.formats.scores import Scores

EPOCHS = 20  # at most
PATIENCE = 3  # epochs in a row without a better one that end the training
BATCH = 1024  # rows
LEARNING_RATE = 0.003
WEIGHT_DECAY = 0.001


def out_of_fold_logits(rows: Scores, held_out: Sequence[HeldOut]) -> np.ndarray:
    """AdaCalib's logit of each row by the fold that predicts its day, float64 [n].

    NaN on days that no fold predicts from days before: the first ones, and all where folds split
    counts.
    """
    logit = np.full(len(rows), np.nan)
    for fold in held_out:
        at = np.flatnonzero(np.isin(rows.day, fold.days))
        if len(at):
            x, ids = rows.uncalibrated_logit[at].astype(np.float64), rows.field_value_id[at]
            logit[at] = fold.basis(x, ids) + _correction(fold, x, ids)
    return logit


def _correction(fold: HeldOut, logit: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """What the network adds at logits [n] of ids [n], between the fold's cells; constant beyond."""
    added = fold.adacalib - fold.target.anchored
    correction = np.zeros(len(logit))
    order = np.argsort(ids, kind="stable")
    for mine in np.split(order, np.flatnonzero(np.diff(ids[order])) + 1):
        z = ids[mine[0]]
        seen = fold.target.impressions[z] > 0
        if seen.any():
            correction[mine] = np.interp(logit[mine], fold.target.logit[z][seen], added[z][seen])
    return correction


class _Rows:
    """Rows as tensors; each weighs what its impressions do."""

    def __init__(self, scores: Scores, features: Features, offset: np.ndarray):
        columns = (scores.impressions, scores.responses, offset)
        self.impressions, self.responses, self.offset = (
            torch.from_numpy(np.asarray(column, dtype=np.float32)) for column in columns
        )
        self.categorical = torch.from_numpy(features.categorical.astype(np.int64))
        self.numeric = torch.from_numpy(features.numeric.astype(np.float32))

    def losses(self, network: AuxiliaryNetwork | None, rows: Tensor) -> Tensor:
        """Log-loss [n] of the picked rows, in nats; None: without the term."""
        logit = self.offset[rows]
        if network is not None:
            logit = logit + network(self.categorical[rows], self.numeric[rows])
        n, y = self.impressions[rows], self.responses[rows]
        return n * functional.softplus(logit) - y * logit


def fit_auxiliary(
    scores: Scores, features: Features, offset: np.ndarray, seed: int
) -> AuxiliaryNetwork | None:
    """The network on top of `offset`; None where the newest day does not show that it helps.

    Args:
        scores: rows of the calibration days.
        features: of the same rows.
        offset: float64 [n], from `out_of_fold_logits`; rows with NaN are left out.
        seed: of initial weights and batches.

    Raises:
        TrainingError: the loss is not finite.
    """
    known = np.flatnonzero(np.isfinite(offset) & (scores.impressions > 0))
    day = scores.day[known]
    if len(np.unique(day)) < 2:
        return None
    rows = _Rows(scores.take(known), features.take(known), offset[known])
    newest = torch.from_numpy(np.flatnonzero(day == day.max()))
    with single_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = AuxiliaryNetwork(list(features.sizes), features.numeric.shape[1])
        earlier = torch.from_numpy(np.flatnonzero(day < day.max()))
        network = _train(network, rows, earlier, newest, seed)
        with torch.no_grad():
            gain = (rows.losses(None, newest) - rows.losses(network, newest)).double().numpy()
    ids = scores.field_value_id[known][newest.numpy()]
    shape = (1, scores.n_field_values)
    gained = np.bincount(ids, gain, shape[1]).reshape(shape)
    shown = np.bincount(ids, rows.impressions[newest].numpy(), shape[1]).reshape(shape)
    sure = gained.sum() > shown.sum() * standard_error(gained, shown)
    return network if sure else None


def _train(
    network: AuxiliaryNetwork, rows: _Rows, earlier: Tensor, newest: Tensor, seed: int
) -> AuxiliaryNetwork:
    """The network as it was after the epoch that predicted the newest day best."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    best, best_loss, waited = deepcopy(network), float("inf"), 0
    for _ in range(EPOCHS):
        for batch in earlier[torch.randperm(len(earlier), generator=generator)].split(BATCH):
            loss = rows.losses(network, batch).sum() / rows.impressions[batch].sum()
            if not torch.isfinite(loss):
                raise TrainingError(
                    f"calibrate: the auxiliary network's loss is {loss.item()}; "
                    "set calibrate.auxiliary to false"
                )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            held_out = float(rows.losses(network, newest).sum())
        waited += 1
        if held_out < best_loss:
            best, best_loss, waited = deepcopy(network), held_out, 0
        if waited >= PATIENCE:
            break
    return best
