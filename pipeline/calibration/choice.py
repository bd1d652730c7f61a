"""Do no harm: which calibrator ships is decided on counts that none of the contenders has seen."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pipeline.calibration.adacalib.fit import HeldOut
from pipeline.calibration.baselines.isotonic import isotonic_curve
from pipeline.calibration.comparison import standard_error
from pipeline.calibration.statistics.logits import log_loss_from_logits
from pipeline.core.errors import NotEnoughDataError
from pipeline.formats.maps import PiecewiseLinearMap, shared_map
from pipeline.formats.tables import CellTable


@dataclass(frozen=True)
class Choice:
    """The calibrator that was chosen and the comparison behind it.

    Attributes:
        name: the chosen one.
        best: the one with the least out-of-sample LogLoss.
        logloss: out-of-sample LogLoss of each, nats per impression.
        excess: LogLoss of each minus that of `best`.
        standard_error: of that difference; the wider of two, field values or days as units.
        days: number of days that are predicted from days before; where folds split counts, or are
            blocks of days, the number of folds.
        impressions: out-of-sample impressions.
    """

    name: str
    best: str
    logloss: dict[str, float]
    excess: dict[str, float]
    standard_error: dict[str, float]
    days: int
    impressions: int

    def as_json(self) -> dict[str, Any]:
        """The choice for a manifest."""
        return asdict(self)


@dataclass(frozen=True)
class Contest:
    """What the contenders predicted for the rows of one day or fold, and what happened.

    Attributes:
        predicted: name -> float64 [n], calibrated logits; from simple to complex.
        ids: int [n], field value ids.
        impressions: [n].
        responses: [n].
    """

    predicted: dict[str, np.ndarray]
    ids: np.ndarray
    impressions: np.ndarray
    responses: np.ndarray

    def losses(self, name: str, n_field_values: int) -> np.ndarray:
        """Summed log-loss of one contender by field value, float64 [V], in nats."""
        loss = log_loss_from_logits(self.predicted[name], self.responses, self.impressions)
        return np.bincount(self.ids, loss, n_field_values)


def choose(losses: dict[str, np.ndarray], impressions: np.ndarray) -> Choice:
    """The simplest calibrator whose out-of-sample loss is within one standard error of the least.

    Args:
        losses: name -> float64 [D, V], summed log-loss of each day and field value, in nats; from
            the simplest to the most complex calibrator. Rows may be folds where days are not known.
        impressions: float64 [D, V].

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
    """Losses [D, V] of the four contenders, simplest first, and impressions [D, V]; D days."""
    contests = []
    for fold in held_out:
        shape, target = fold.target.logit.shape, fold.target
        history = fold.fold.history
        isotonic = isotonic_of_cells(cells, history.impressions, history.responses, n_field_values)
        logit = target.logit.astype(np.float64).ravel()
        ids = np.repeat(np.arange(n_field_values), shape[1])
        predicted = {
            "identity": logit,
            "isotonic": isotonic(logit, ids),
            "eb_platt": fold.still.ravel(),
            "adacalib": fold.adacalib.ravel(),
        }
        contests += [Contest(predicted, ids, n.ravel(), y.ravel()) for n, y in fold.by_day]
    return losses_of(contests, n_field_values)


def losses_of(
    contests: Sequence[Contest], n_field_values: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Losses by contender, and impressions: a row for each contest, [contests, V]."""
    losses = {
        name: np.stack([contest.losses(name, n_field_values) for contest in contests])
        for name in contests[0].predicted
    }
    shown = [np.bincount(c.ids, c.impressions, n_field_values) for c in contests]
    return losses, np.stack(shown)
