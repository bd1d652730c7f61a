"""Ranking: AUC and Field-AUC, on logits, with ties counted half."""

import numpy as np

from pipeline.metrics.ratios import Measured
from pipeline.metrics.runs import LogitRuns


def auc_per_group(runs: LogitRuns) -> np.ndarray:
    """AUC within each group, float64 [n_groups]; NaN for a group with only one class or no rows.

    AUC = P(logit of a response > logit of a non-response) + ½ P(equal), over all pairs of one
    response and one non-response of the group. It is taken on logits, so 17 and 25 stay apart where
    float32 probabilities are both 1, and on whole counts, so aggregated rows give exactly what rows
    of one impression give.
    """
    others = runs.impressions - runs.responses
    doubled_wins = runs.responses * (2 * runs.before(others) + others)
    wins = runs.per_group(doubled_wins) / 2
    pairs = runs.per_group(runs.responses).astype(np.float64) * runs.per_group(others)
    return np.divide(wins, pairs, out=np.full(runs.n_groups, np.nan), where=pairs > 0)


def field_auc(auc_by_value: np.ndarray, impressions: np.ndarray) -> Measured:
    """Field-AUC: the mean of the field values' AUC, weighted by their impressions.

    Values with only responses or none have no AUC: they are left out and the weights of the others
    renormalised. (The paper's second metric, there after He and McAuley, WWW 2016.)

    Args:
        auc_by_value: float [V] from `auc_per_group`, NaN where undefined.
        impressions: [V].

    Returns:
        The mean, and the share of impressions held by the values that have an AUC.
    """
    defined = ~np.isnan(auc_by_value)
    held = float(impressions[defined].sum())
    if held == 0:
        return Measured(float("nan"), 0.0)
    value = float((auc_by_value[defined] * impressions[defined]).sum()) / held
    return Measured(value, held / float(impressions.sum()))
