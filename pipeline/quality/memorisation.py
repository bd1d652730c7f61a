"""Whether the base model knows its training rows by heart: rates of training days, bin by bin."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from pipeline.calibration.statistics.bins import tabulate
from pipeline.calibration.statistics.counting import count_cells
from pipeline.core.columns import joined
from pipeline.formats.scores import Scores
from pipeline.formats.tables import BinTable

BINS = 20
"""Equal-frequency bins of all calibration rows together."""

Z = 1.96  # of a 95 % interval


def memorisation(calibration: Scores, training: Iterable[Scores]) -> dict[str, Any]:
    """How much steeper responses rise with the score on training days than on calibration days.

    A model that has memorised its training rows ranks those better than fresh ones, so at equal
    score their rates are more extreme: lower in low bins, higher in high ones. The log odds of the
    response in each of BINS equal-frequency bins of the calibration days, training days' minus
    calibration days' (half a response added to each), are fitted by a line in the bin's mean logit,
    weighted by 1/v of their counts. `steeper` is how far the line rises over one standard deviation
    of the calibration days' logits: 0 where training rows are like fresh ones, 0.7 where a row that
    lies a deviation higher has odds higher by twice as much as a fresh row has. A shift of all
    rates alike (a season) is the line's height and is not counted. The interval's standard error
    grows with whatever the line leaves unexplained; `ends_low` does not: it is how far, at the
    least, the difference rises over a deviation from the lowest bin to the highest, by the counts
    of those two alone.

    Args:
        calibration: rows of the calibration days.
        training: rows of the training days, day by day; counts add up.

    Returns:
        `training_days`, `steeper`, `low`, `high` and `ends_low` (NaN with fewer than three bins, or
        without training rows), and `by_bin`: `logit`, and impressions and responses of both.
    """
    bounds, known = tabulate(_as_one(calibration), [BINS], BINS)  # a cell of it is a bin
    days = [count_cells(_as_one(rows), bounds) for rows in training]
    cells = joined([known.take(np.zeros(0, int)), *days])
    impressions, responses = (
        np.bincount(cells.cell_id, column, len(bounds)).astype(column.dtype)
        for column in (cells.impressions, cells.responses)
    )
    logit = bounds.logit_sum / bounds.impressions
    steeper, error, ends_low = _slope(bounds, impressions, responses, logit)
    return {
        "training_days": len(days),
        "steeper": steeper,
        "low": steeper - Z * error,
        "high": steeper + Z * error,
        "ends_low": ends_low,
        "by_bin": {
            "logit": logit.tolist(),
            "calibration_impressions": bounds.impressions.tolist(),
            "calibration_responses": bounds.responses.tolist(),
            "training_impressions": impressions.tolist(),
            "training_responses": responses.tolist(),
        },
    }


def _as_one(rows: Scores) -> Scores:
    """The rows as if they had one field value."""
    return replace(rows, field_value_id=np.zeros_like(rows.field_value_id), n_field_values=1)


def _slope(
    calibration: BinTable, impressions: np.ndarray, responses: np.ndarray, logit: np.ndarray
) -> tuple[float, float, float]:
    """Rise of the difference over a deviation, its standard error; the least from end to end."""
    seen = impressions > 0
    if seen.sum() < 3:
        return float("nan"), float("nan"), float("nan")
    sides = (
        (impressions[seen], responses[seen]),
        (calibration.impressions[seen], calibration.responses[seen]),
    )
    odds = [np.log(r + 0.5) - np.log(n - r + 0.5) for n, r in sides]
    weight = 1 / sum(1 / (r + 0.5) + 1 / (n - r + 0.5) for n, r in sides)
    difference = odds[0] - odds[1]
    deviation = np.sqrt(np.cov(logit[seen], aweights=calibration.impressions[seen], ddof=0))
    line, covariance = np.polyfit(logit[seen], difference, 1, w=np.sqrt(weight), cov="unscaled")
    left = (weight * (difference - np.polyval(line, logit[seen])) ** 2).sum() / (seen.sum() - 2)
    error = np.sqrt(max(1.0, left) * covariance[0, 0])
    ends = [-1, 0]
    rise = np.subtract(*difference[ends]) - Z * np.sqrt((1 / weight[ends]).sum())
    least = rise / np.subtract(*logit[seen][ends])
    return tuple(float(found * deviation) for found in (line[0], error, least))  # type: ignore
