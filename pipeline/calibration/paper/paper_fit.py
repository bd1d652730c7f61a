"""AdaCalib as published: a knot network on discretised posterior statistics, trained on rows.

Wei et al., SIGIR 2022, "Posterior Probability Matters: Doubly-Adaptive Calibration for Neural
Predictions in Online Advertising". Between the bounds b_k(z) of a field value's bins the
calibrated logit is the line from MLP(p_k(z)) to MLP(p_{k+1}(z)); p_k is the bin's response rate
and number of responses, discretised to ids and embedded (its footnote); p_{K+1} are the maxima of
both. One such family per candidate bin count, a Gumbel choice among them by the value's frequency
and identity, a penalty on decreasing knots, and optionally a term of the row's features.

What the paper leaves open is decided thus: statistics and mixture are differentiable only through
the networks; the selected output's loss is added to the objective, since the candidates' losses
alone give the choice no gradient; attention is a log-softmax, noise acts in training only, and
each field value is served by its most attended candidate; knots that still decrease are repaired
afterwards.

AdaCalib as published against simpler baselines, out of sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.special import logit as log_odds

from pipeline.calibration.adacalib.knot_training import single_thread
from pipeline.calibration.baselines import eb_platt_of_cells, increasing, isotonic_of_cells
from pipeline.calibration.choice import Comparison
from pipeline.calibration.folds import Fold, forward_folds
from pipeline.calibration.paper.paper_network import (
    AuxiliaryNetwork,
    PaperNetwork,
    PaperSettings,
    train,
)
from pipeline.calibration.paper.paper_rows import (
    Family,
    RowFeatures,
    make_families,
    make_rows,
    merged,
    response_rate,
)
from pipeline.calibration.statistics.bins import tabulate
from pipeline.calibration.statistics.grid import bounded
from pipeline.formats.maps import PiecewiseLinearMap, from_knots
from pipeline.formats.scores import Scores

GRID_CELLS = 160  # that EB-Platt is fitted on


@dataclass(frozen=True)
class PaperFit:
    """AdaCalib as published, fitted.

    Attributes:
        serving: the map of (logit, field value), repaired to increase.
        auxiliary: the term of the features, to be added to it; None without.
        chosen_bins: int64 [V], the candidate that serves each field value; 0: none of its own.
        moved_knots: knots that the repair moved.
        decreasing: share of neighbouring knots that decreased before the repair.
    """

    serving: PiecewiseLinearMap
    auxiliary: AuxiliaryNetwork | None
    chosen_bins: np.ndarray
    moved_knots: int
    decreasing: float


def fit_paper(
    scores: Scores, settings: PaperSettings, features: RowFeatures | None = None
) -> PaperFit:
    """AdaCalib as published, fitted on rows.

    Args:
        scores: the rows whose statistics and labels are used.
        settings: which parts take part, and how they are trained.
        features: of the same rows; needed where `settings.auxiliary` asks for the network on them.

    Raises:
        NotEnoughDataError: no row stands for an impression.
        TrainingError: the loss is not finite.
    """
    counts = settings.counts()
    logit = bounded(scores.uncalibrated_logit).astype(np.float32)
    scores = replace(scores, uncalibrated_logit=logit)
    if features is None:
        scores = merged(scores)
    group, n_groups = scores.field_value_id, scores.n_field_values
    if not settings.adaptive_function:
        group, n_groups = np.zeros_like(group), 1
    grouped = replace(scores, field_value_id=group, n_field_values=n_groups)
    with single_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        static = _static(scores)
        bins, _ = tabulate(grouped, counts, int(np.lcm.reduce(counts)))
        families = make_families(bins, counts, n_groups)
        size = np.log1p(np.bincount(group, scores.impressions, n_groups))
        frequency = (size - size.mean()) / max(size.std(), 1e-6)
        used = features if settings.auxiliary else None
        start = float(log_odds(response_rate(scores)))
        network = PaperNetwork(families, frequency, settings, start, used)
        train(network, make_rows(scores, group, families, used), families, settings)
        return _compile(network, families, counts, static, settings)


def _static(scores: Scores) -> PiecewiseLinearMap:
    """Empirical-Bayes Platt, for the row of unseen values."""
    _, cells = tabulate(scores, (1,), GRID_CELLS)
    return eb_platt_of_cells(cells, scores.n_field_values)


def _compile(
    network: PaperNetwork,
    families: Sequence[Family],
    counts: Sequence[int],
    static: PiecewiseLinearMap,
    settings: PaperSettings,
) -> PaperFit:
    """Knots at the bounds of each value's chosen family; EB-Platt where it has no bins.

    Without adaptive function all values share the one curve, the unseen ones too. Beyond the outer
    bounds the correction of the outer knot holds: slope 1.
    """
    with torch.no_grad():
        heights = [knot().double().numpy() for knot in network.knots]
        chosen = network.log_attention().argmax(dim=1).numpy()
    knots, values = list(static.knots), list(static.segment_values[:, 1:])
    chosen_bins = np.zeros(len(knots), dtype=np.int64)
    moved, steps = 0, [np.empty(0)]
    for z in range(len(knots)):
        g = z if settings.adaptive_function else 0
        family, height = families[chosen[g]], heights[chosen[g]]
        n = family.n_bins[g]
        if n == 0 or (z == 0 and settings.adaptive_function):
            continue
        knots[z], first = np.unique(family.bounds[g, : n + 1], return_index=True)
        value = height[g, : n + 1][first]
        weights = np.r_[family.impressions[g, :n], family.impressions[g, n - 1]][first]
        values[z] = increasing(knots[z], value, weights, settings.min_slope)
        moved += int((values[z] != value).sum())
        steps.append(np.diff(value))
        chosen_bins[z] = counts[chosen[g]]
    slopes = np.where(chosen_bins > 0, 1.0, static.segment_slopes[:, 0])
    falls = np.concatenate(steps) < 0
    return PaperFit(
        serving=from_knots(knots, values, slopes, slopes),
        auxiliary=network.auxiliary,
        chosen_bins=chosen_bins,
        moved_knots=moved,
        decreasing=float(falls.sum() / max(len(falls), 1)),
    )


def predict(fitted: PaperFit, scores: Scores, features: RowFeatures | None = None) -> np.ndarray:
    """The calibrated logit, float64 [n], of rows: the map plus the auxiliary term, if any."""
    logit = fitted.serving(scores.uncalibrated_logit, scores.field_value_id)
    if fitted.auxiliary is None or features is None:
        return logit
    with torch.no_grad():
        term = fitted.auxiliary(
            torch.from_numpy(features.categorical.astype(np.int64)),
            torch.from_numpy(features.numeric.astype(np.float32)),
        )
    return logit + term.double().numpy()


COMPARED = 2  # of the last folds: each is one more training on rows


def _comparison(
    scores: Scores, fold: Fold, settings: PaperSettings, features: RowFeatures | None
) -> Comparison:
    known = np.flatnonzero(fold.history.impressions)
    later = np.flatnonzero(fold.target.impressions)
    history, target = scores.take(known), scores.take(later)
    fitted = fit_paper(history, settings, features.take(known) if features else None)
    _, cells = tabulate(history, (1,), GRID_CELLS)
    n, logit, ids = scores.n_field_values, target.uncalibrated_logit, target.field_value_id
    predicted = {
        "identity": logit.astype(np.float64),
        "isotonic": isotonic_of_cells(cells, n)(logit, ids),
        "eb_platt": eb_platt_of_cells(cells, n)(logit, ids),
        "adacalib": predict(fitted, target, features.take(later) if features else None),
    }
    return Comparison(predicted, ids, target.impressions, target.responses)


def paper_comparisons(
    scores: Scores,
    settings: PaperSettings,
    features: RowFeatures | None = None,
    horizon_days: int = 1,
) -> list[Comparison]:
    """Predictions for the last folds, forward in time; none where there are too few days."""
    folds = forward_folds(scores, horizon_days)[-COMPARED:]
    return [_comparison(scores, fold, settings, features) for fold in folds]
