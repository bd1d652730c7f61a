"""Against the truth: what can be said where the true response probabilities are known."""

import numpy as np
from scipy.special import entr

from pipeline.core.errors import DataError
from pipeline.metrics.counts import ResponseCounts, count_responses


def count_truth(
    calibrated_logit: np.ndarray,
    true_probability: np.ndarray,
    impressions: np.ndarray,
    group: np.ndarray,
    n_groups: int,
) -> ResponseCounts:
    """Counts of every group with the true expectation in place of the responses: no label noise.

    Every metric of counts can be taken of them; `field_rce` of them is Field-RCE against the truth.

    Args:
        calibrated_logit: float [n], finite.
        true_probability: float [n] in [0, 1].
        impressions: [n].
        group: int [n] in [0, n_groups).
        n_groups: number of groups.

    Raises:
        DataError: as `count_responses`, or a true probability lies outside [0, 1].
    """
    inside = (true_probability >= 0) & (true_probability <= 1)
    if not inside.all():
        row = int(np.flatnonzero(~inside)[0])
        raise DataError(
            f"true probabilities must lie in [0, 1], row {row} has {true_probability[row]}"
        )
    weights = np.asarray(impressions, dtype=np.float64)
    return count_responses(calibrated_logit, weights, weights * true_probability, group, n_groups)


def excess_log_loss(
    calibrated_logit: np.ndarray, true_probability: np.ndarray, impressions: np.ndarray
) -> float:
    """Mean Kullback-Leibler divergence KL(true ‖ predicted) in nats per impression.

    The expected LogLoss minus that of the true probabilities, which no method can beat: 0 is
    perfect. NaN without impressions.

    Args:
        calibrated_logit: float [n], finite.
        true_probability: float [n] in [0, 1].
        impressions: [n].

    Raises:
        DataError: as `count_truth`.
    """
    everything = np.zeros(len(calibrated_logit), dtype=np.int64)
    counts = count_truth(calibrated_logit, true_probability, impressions, everything, 1)
    least = (impressions * (entr(true_probability) + entr(1 - true_probability))).sum()
    total = counts.impressions[0]
    return float((counts.log_loss[0] - least) / total) if total > 0 else float("nan")
