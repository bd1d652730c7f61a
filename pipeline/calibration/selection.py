"""Do no harm: which calibrator ships is decided on counts that none of the contenders has seen."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pipeline.calibration.adacalib import HeldOut
from pipeline.calibration.baselines.isotonic import isotonic_curve
from pipeline.calibration.comparison import standard_error
from pipeline.calibration.logits import softplus
from pipeline.calibration.piecewise import PiecewiseLinearMap, shared_map
from pipeline.calibration.tables import CellTable
from pipeline.errors import NotEnoughDataError


@dataclass(frozen=True)
class Choice:
    """The calibrator that was chosen and the comparison behind it.

    Attributes:
        name: the chosen one.
        best: the one with the least out-of-sample LogLoss.
        logloss: out-of-sample LogLoss of each, nats per impression.
        excess: LogLoss of each minus that of `best`.
        standard_error: of that difference; the wider of two, field values or folds as units.
        folds: number of folds.
        impressions: out-of-sample impressions.
    """

    name: str
    best: str
    logloss: dict[str, float]
    excess: dict[str, float]
    standard_error: dict[str, float]
    folds: int
    impressions: int

    def as_json(self) -> dict[str, Any]:
        """The choice for a manifest."""
        return asdict(self)


def choose(losses: dict[str, np.ndarray], impressions: np.ndarray) -> Choice:
    """The simplest calibrator whose out-of-sample loss is within one standard error of the least.

    Args:
        losses: name -> float64 [F, V], summed log-loss of each fold and field value, in nats; from
            the simplest to the most complex calibrator.
        impressions: float64 [F, V].

    Raises:
        NotEnoughDataError: the folds hold no impressions.
    """
    total = impressions.sum()
    if not total > 0:
        raise NotEnoughDataError("calibrate chooses on out-of-sample impressions, there are none")
    means = {name: float(loss.sum() / total) for name, loss in losses.items()}
    best = min(means, key=lambda name: means[name])
    errors = {n: standard_error(loss - losses[best], impressions) for n, loss in losses.items()}
    excess = {name: mean - means[best] for name, mean in means.items()}
    name = next(name for name in losses if excess[name] <= errors[name])
    return Choice(name, best, means, excess, errors, len(impressions), int(total))


def isotonic_of_cells(
    cells: CellTable, impressions: np.ndarray, responses: np.ndarray, n_field_values: int
) -> PiecewiseLinearMap:
    """Global isotonic regression on counts [n] of the fitting grid's cells."""
    some = impressions > 0
    logit = (cells.logit_sum / cells.impressions)[some]
    n, y = impressions[some], responses[some]
    rate = (y.sum() + 0.5) / (n.sum() + 1.0)
    curve = isotonic_curve(logit, n, y, np.full(len(n), rate))
    return shared_map(*curve, 0.0, 0.0, n_field_values)


def out_of_sample_losses(
    cells: CellTable, held_out: Sequence[HeldOut], n_field_values: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Losses [F, V] of the four contenders, simplest first, and impressions [F, V]."""
    losses: dict[str, list[np.ndarray]] = {}
    for fold in held_out:
        shape = fold.target.logit.shape
        isotonic = isotonic_of_cells(
            cells, fold.fold.history.impressions, fold.fold.history.responses, n_field_values
        )
        flat = fold.target.logit.astype(np.float64).ravel()
        predicted = {
            "identity": flat.reshape(shape),
            "isotonic": isotonic(flat, np.zeros(len(flat), dtype=np.int64)).reshape(shape),
            "eb_platt": fold.still,
            "adacalib": fold.adacalib,
        }
        for name, logit in predicted.items():
            each = fold.target.impressions * softplus(logit) - fold.target.responses * logit
            losses.setdefault(name, []).append(each.sum(axis=1))
    impressions = np.stack([fold.target.impressions.sum(axis=1) for fold in held_out])
    return {name: np.stack(each) for name, each in losses.items()}, impressions.astype(np.float64)
