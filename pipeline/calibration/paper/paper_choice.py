"""The out-of-sample comparison of AdaCalib as published with its simpler rivals, on rows."""

from dataclasses import replace

import numpy as np

from pipeline.calibration.adacalib.folds import Fold, make_folds
from pipeline.calibration.baselines import eb_platt, isotonic
from pipeline.calibration.choice import Contest
from pipeline.calibration.paper.paper_fit import fit_paper, predict
from pipeline.calibration.paper.paper_network import PaperSettings
from pipeline.calibration.paper.paper_rows import Features
from pipeline.formats.scores import Scores

CONTESTS = 2  # of the last folds: each is one more training on rows


def _with_counts(scores: Scores, impressions: np.ndarray, responses: np.ndarray) -> Scores:
    whole = np.issubdtype(scores.impressions.dtype, np.integer)
    dtype = np.int64 if whole else np.float64
    return replace(scores, impressions=impressions.astype(dtype), responses=responses.astype(dtype))


def _contest(
    scores: Scores, fold: Fold, settings: PaperSettings, features: Features | None
) -> Contest:
    known = np.flatnonzero(fold.history.impressions > 0)
    later = np.flatnonzero(fold.target.impressions > 0)
    history = _with_counts(scores, fold.history.impressions, fold.history.responses).take(known)
    target = _with_counts(scores, fold.target.impressions, fold.target.responses).take(later)
    fitted = fit_paper(history, settings, features.take(known) if features else None)
    logit, ids = target.uncalibrated_logit, target.field_value_id
    predicted = {
        "identity": logit.astype(np.float64),
        "isotonic": isotonic.fit(history)(logit, ids),
        "eb_platt": eb_platt.fit(history)(logit, ids),
        "adacalib": predict(fitted, target, features.take(later) if features else None),
    }
    return Contest(predicted, ids, target.impressions, target.responses)


def paper_contests(
    scores: Scores, settings: PaperSettings, features: Features | None = None
) -> list[Contest]:
    """The contests on the last folds: forward in time, or split counts where there are few days."""
    folds = make_folds(scores, settings.seed)[-CONTESTS:]
    return [_contest(scores, fold, settings, features) for fold in folds]
