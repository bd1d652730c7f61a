"""Do no harm: which calibrator ships is decided on counts that none of them has seen."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from pipeline.calibration.statistics.grid import log_loss_from_logits
from pipeline.core.errors import NotEnoughDataError

ENOUGH_DAYS = 5  # below, nothing is reported on how a difference varies over days


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


@dataclass(frozen=True)
class Comparison:
    """What the calibrators predicted for the rows of one day or fold, and what happened.

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

    def sums(self, name: str) -> dict[str, float]:
        """Impressions, responses, those that one calibrator expected, and their variance."""
        expected = self.impressions * expit(self.predicted[name])
        columns = {
            "impressions": self.impressions,
            "responses": self.responses,
            "expected_responses": expected,
            "expected_variance": expected * expit(-self.predicted[name]),
        }
        return {column: float(values.sum()) for column, values in columns.items()}

    def losses(self, name: str, n_field_values: int) -> np.ndarray:
        """Summed log-loss of one calibrator by field value, float64 [V], in nats."""
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


def standard_error(difference: np.ndarray, impressions: np.ndarray) -> float:
    """Of a difference of losses per impression, the wider of two: field values or days as units.

    For a ratio r of sums over units u: √(n / (n - 1) · Σ_u (d_u - r · i_u)²) / Σ_u i_u. With fewer
    than ENOUGH_DAYS days field values are the only units. Days are the units because what shakes
    all field values at once (a campaign, a holiday) comes and goes by days: blocks of several
    days are fewer units of unequal size, and show less of how far the difference varies.

    Args:
        difference: float64 [D, V], summed differences in nats by day (or by fold, see `choose`).
        impressions: float64 [D, V].
    """
    ratio = difference.sum() / impressions.sum()
    axes = (0, 1) if len(difference) >= ENOUGH_DAYS else (0,)
    return max(
        _of_units(difference.sum(axis=axis), impressions.sum(axis=axis), ratio) for axis in axes
    )


def _of_units(difference: np.ndarray, impressions: np.ndarray, ratio: float) -> float:
    used = impressions > 0
    n = int(used.sum())
    if n < 2:
        return 0.0
    away = (difference - ratio * impressions)[used]
    return float(np.sqrt(n / (n - 1) * (away**2).sum()) / impressions.sum())


def losses_of(
    comparisons: Sequence[Comparison], n_field_values: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Losses by calibrator, and impressions: a row for each comparison, [comparisons, V]."""
    losses = {
        name: np.stack([comparison.losses(name, n_field_values) for comparison in comparisons])
        for name in comparisons[0].predicted
    }
    shown = [np.bincount(c.ids, c.impressions, n_field_values) for c in comparisons]
    return losses, np.stack(shown)
