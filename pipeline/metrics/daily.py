"""Metrics of single test days and of the largest field values, for who must look behind a total."""

from typing import Any

import numpy as np

from pipeline.metrics.calibration import deviance_terms, log_loss_terms, pcoc, pcoc_band, pcoc_terms
from pipeline.metrics.counts import ResponseCounts
from pipeline.metrics.significance import USUAL, Resampling, field_value_interval

DAILY = {"logloss": log_loss_terms, "field_deviance": deviance_terms, "pcoc": pcoc_terms}


def daily_metrics(counts: ResponseCounts) -> dict[str, np.ndarray]:
    """`logloss`, `field_deviance` and `pcoc` of every day, float64 [days]; NaN where undefined.

    Args:
        counts: shape [days, V].
    """
    return {name: terms(counts).ratio() for name, terms in DAILY.items()}


def largest_field_values(
    counts: ResponseCounts, listed: int, resampling: Resampling = USUAL
) -> list[dict[str, Any]]:
    """PCOC of the field values with most impressions, each with a band; the largest first.

    The band is the wider, at each end, of Wilson's (label noise) and the day jackknife's (shocks
    that a value's rows of a day share; from MIN_DAYS on). Its confidence is Bonferroni's, so that
    all bands together hold their true values: 1 − (1 − confidence) / number of values.

    Args:
        counts: shape [days, V].
        listed: how many field values at most.
        resampling: whose confidence is used.

    Returns:
        `field_value_id`, `impressions`, `responses`, `expected_responses`, `pcoc` (NaN without
        responses), `low` and `high` (inf without responses) of each.
    """
    total = counts.sum(axis=0)
    seen = np.flatnonzero(total.impressions > 0)
    ids = seen[np.argsort(-total.impressions[seen], kind="stable")][:listed]
    confidence = 1 - (1 - resampling.confidence) / max(1, len(ids))
    chosen, ratios = total.take(ids), pcoc(total.take(ids))
    low, high = pcoc_band(chosen, confidence)
    rows = []
    for place, value in enumerate(ids):
        of_days = field_value_interval(
            pcoc_terms, counts.take(np.array([value])), Resampling(confidence, 1, 0)
        )
        rows.append(
            {
                "field_value_id": int(value),
                "impressions": chosen.impressions[place].item(),
                "responses": chosen.responses[place].item(),
                "expected_responses": float(chosen.expected_responses[place]),
                "pcoc": float(ratios[place]),
                "low": float(np.fmin(low[place], max(of_days.low, 0.0))),
                "high": float(np.fmax(high[place], of_days.high)),
            }
        )
    return rows
