"""What several baselines start from: rates, merged rows, bins of all rows, cells as rows."""

from dataclasses import replace

import numpy as np

from pipeline.calibration.paper.paper_rows import response_rate
from pipeline.calibration.statistics.bins import tabulate
from pipeline.formats.scores import Scores
from pipeline.formats.tables import BinTable


def global_bins(scores: Scores, n_bins: int) -> BinTable:
    """Equal-frequency bins of all rows together, fewer where logits are tied."""
    everything = replace(
        scores, field_value_id=np.zeros_like(scores.field_value_id), n_field_values=1
    )
    bins, _ = tabulate(everything, (n_bins,), n_bins)
    return bins


def grouped(scores: Scores, n_cells: int) -> Scores:
    """The cells of each field value's equal-frequency grid, all days together, as rows.

    A cell at its mean logit stands for its rows, so that the cost of a fit does not grow with them.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    response_rate(scores)
    one_day = replace(scores, day=np.zeros_like(scores.day))
    _, cells = tabulate(one_day, (1,), n_cells)
    logit = (cells.logit_sum / cells.impressions).astype(np.float32)
    counts = (cells.impressions, cells.responses, cells.day)
    return Scores(logit, cells.field_value_id, *counts, scores.n_field_values)


def binary_rows(scores: Scores) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows for a binary classifier: (index into the scores [m], label 0 or 1 [m], weight [m]).

    Labels are Platt's (1999) targets: a response counts (N₊ + 1) / (N₊ + 2) as 1 and the rest as 0,
    another impression 1 / (N₋ + 2) as 1, so that one class or separable classes have a finite fit.
    """
    hits = scores.responses.astype(np.float64)
    misses = scores.impressions - hits
    ones = hits * ((hits.sum() + 1) / (hits.sum() + 2)) + misses / (misses.sum() + 2)
    weight = np.concatenate([ones, hits + misses - ones])
    row = np.flatnonzero(weight > 0)
    return row % len(scores), (row < len(scores)).astype(np.int8), weight[row]
