"""Rows as a training reads them: equal ones merged, in an order that says nothing."""

from dataclasses import replace

import numpy as np

from pipeline.core.errors import NotEnoughDataError
from pipeline.formats.scores import Scores
from pipeline.formats.sort_keys import sortable_bits

SCATTER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: neighbours end up far apart


def response_rate(scores: Scores) -> float:
    """(ΣO + ½) / (Σ impressions + 1): the mean rate, inside (0, 1) also without any response.

    Raises:
        NotEnoughDataError: no row stands for an impression.
    """
    impressions = scores.impressions.sum()
    if not impressions:
        raise NotEnoughDataError(
            "a calibrator needs rows with impressions, there are none; take more calibration days"
        )
    return float((scores.responses.sum() + 0.5) / (impressions + 1))


def merged(scores: Scores) -> Scores:
    """Rows of equal field value, day and logit as one row, day by day in a scattered order.

    A row of n impressions and the n rows it stands for come out alike, whatever the order they came
    in, which a method that takes its steps row by row needs. Within a day neither logits nor field
    values stand together, so that any part of it is like the whole. Rows without impressions are
    dropped.
    """
    scores = scores.take(scores.impressions > 0)
    bits = sortable_bits(scores.uncalibrated_logit).astype(np.uint64)
    value = (scores.field_value_id.astype(np.uint64) << np.uint64(32)) | bits
    value *= SCATTER  # modulo 2^64, where an odd factor loses nothing
    order = np.lexsort((value, scores.day))
    new = np.ones(len(scores), dtype=bool)
    new[1:] = (np.diff(value[order]) != 0) | (np.diff(scores.day[order]) != 0)
    starts = np.flatnonzero(new)
    counts = (np.add.reduceat(c[order], starts) for c in (scores.impressions, scores.responses))
    impressions, responses = counts
    return replace(scores.take(order[starts]), impressions=impressions, responses=responses)
