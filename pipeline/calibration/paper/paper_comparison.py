"""AdaCalib as published against simpler baselines, out of sample."""

from dataclasses import replace

import numpy as np

from pipeline.calibration.choice import Comparison
from pipeline.calibration.folds import Fold, all_counts, forward_folds
from pipeline.calibration.isotonic import isotonic_of_cells
from pipeline.calibration.paper.paper_fit import GRID_CELLS, fit_paper, predict
from pipeline.calibration.paper.paper_network import PaperSettings
from pipeline.calibration.paper.paper_rows import RowFeatures
from pipeline.calibration.prior.anchor import anchor_of_cells
from pipeline.calibration.statistics.bins import tabulate
from pipeline.formats.scores import Scores

COMPARED = 2  # of the last folds: each is one more training on rows


def _with_counts(scores: Scores, impressions: np.ndarray, responses: np.ndarray) -> Scores:
    whole = np.issubdtype(scores.impressions.dtype, np.integer)
    dtype = np.int64 if whole else np.float64
    return replace(scores, impressions=impressions.astype(dtype), responses=responses.astype(dtype))


def _comparison(
    scores: Scores, fold: Fold, settings: PaperSettings, features: RowFeatures | None
) -> Comparison:
    known = np.flatnonzero(fold.history.impressions > 0)
    later = np.flatnonzero(fold.target.impressions > 0)
    history = _with_counts(scores, fold.history.impressions, fold.history.responses).take(known)
    target = _with_counts(scores, fold.target.impressions, fold.target.responses).take(later)
    fitted = fit_paper(history, settings, features.take(known) if features else None)
    _, cells = tabulate(history, (1,), GRID_CELLS)
    counts, n = all_counts(cells), scores.n_field_values
    logit, ids = target.uncalibrated_logit, target.field_value_id
    predicted = {
        "identity": logit.astype(np.float64),
        "isotonic": isotonic_of_cells(cells, counts, n)(logit, ids),
        "eb_platt": anchor_of_cells(cells, counts, n)(logit, ids),
        "adacalib": predict(fitted, target, features.take(later) if features else None),
    }
    return Comparison(predicted, ids, target.impressions, target.responses)


def paper_comparisons(
    scores: Scores, settings: PaperSettings, features: RowFeatures | None = None
) -> list[Comparison]:
    """Predictions for the last folds, forward in time; none where there are too few days."""
    folds = forward_folds(scores)[-COMPARED:]
    return [_comparison(scores, fold, settings, features) for fold in folds]
