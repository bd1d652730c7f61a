"""AdaCalib as published against simpler baselines, out of sample, and against parts of itself."""

from dataclasses import replace

import numpy as np

from pipeline.calibration.baselines.binned import isotonic
from pipeline.calibration.baselines.per_value import eb_platt
from pipeline.calibration.choice import Comparison
from pipeline.calibration.folds import Fold, forward_folds
from pipeline.calibration.paper.paper_fit import fit_paper, predict
from pipeline.calibration.paper.paper_network import PaperSettings
from pipeline.calibration.paper.paper_rows import RowFeatures
from pipeline.formats.maps import PiecewiseLinearMap
from pipeline.formats.scores import Scores

COMPARED = 2  # of the last folds: each is one more training on rows

# Posterior guidance, adaptive function, adaptive binning: the paper's second table from its second
# row on. Its first has the auxiliary network, which reads the rows' features: bench.quality has it.
ABLATION = {
    "paper": (True, True, True),
    "paper_one_bin_count": (True, True, False),
    "paper_shared_bins": (True, False, False),
    "paper_free_knots": (False, False, False),
}


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
    logit, ids = target.uncalibrated_logit, target.field_value_id
    predicted = {
        "identity": logit.astype(np.float64),
        "isotonic": isotonic(history)(logit, ids),
        "eb_platt": eb_platt(history)(logit, ids),
        "adacalib": predict(fitted, target, features.take(later) if features else None),
    }
    return Comparison(predicted, ids, target.impressions, target.responses)


def paper_comparisons(
    scores: Scores, settings: PaperSettings, features: RowFeatures | None = None
) -> list[Comparison]:
    """Predictions for the last folds, forward in time; none where there are too few days."""
    folds = forward_folds(scores)[-COMPARED:]
    return [_comparison(scores, fold, settings, features) for fold in folds]


def ablation_maps(rows: Scores, settings: PaperSettings) -> dict[str, PiecewiseLinearMap]:
    """The maps of AdaCalib as published with one part after the other taken away, by ABLATION.

    Args:
        rows: calibration rows.
        settings: how they are trained; its own choice of parts is passed over.

    Raises:
        NotEnoughDataError: no row stands for an impression.
        TrainingError: the loss is not finite.
    """
    maps = {}
    for row, (guidance, function, binning) in ABLATION.items():
        parts = replace(
            settings,
            posterior_guidance=guidance,
            adaptive_function=function,
            adaptive_binning=binning,
            auxiliary=False,
        )
        maps[row] = fit_paper(rows, parts).serving
    return maps
