"""Calibration of field values: LogLoss, field deviance, Field-RCE with its floor, PCOC with bands.

O, E and n are a field value's responses, expected responses and impressions, |D| is Σ n. Every
function reads the last axis of its counts as field values.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from scipy.special import entr, rel_entr

from pipeline.core.errors import DataError
from pipeline.metrics.counts import ResponseCounts, Terms, count_responses, ratio


def log_loss_terms(counts: ResponseCounts) -> Terms:
    """LogLoss: nats per impression. Defined without responses too."""
    return Terms(counts.log_loss, counts.impressions)


def deviance_terms(counts: ResponseCounts) -> Terms:
    """Field deviance: 2 Σ_z [O ln(O/E) − (O − E)] / Σ_z O over *all* field values.

    A value without responses costs 2E. It is the Poisson deviance of the values' totals, a proper
    score: nothing has a lower expectation than the true rates. Infinite where E = 0 < O.
    """
    observed = counts.responses.astype(np.float64)
    shortfall = observed - counts.expected_responses
    deviance = 2 * (rel_entr(observed, counts.expected_responses) - shortfall)
    return Terms(deviance, observed)


def field_rce_terms(counts: ResponseCounts) -> Terms:
    """Field-RCE: 1/|D| Σ_z |Σ (y − p)| / (Σ y / n), which is Σ_z n |O − E| / O / |D|.

    The paper's metric, word for word. Values without responses, where it divides by zero, are left
    out of the sum and of |D|.
    """
    has_responses = counts.responses > 0
    error = np.abs(counts.responses - counts.expected_responses) * counts.impressions
    relative = np.divide(error, counts.responses, out=np.zeros(counts.shape), where=has_responses)
    return Terms(relative, np.where(has_responses, counts.impressions, 0))


def pcoc_terms(counts: ResponseCounts) -> Terms:
    """PCOC, predicted over observed responses: Σ E / Σ O."""
    return Terms(counts.expected_responses, counts.responses)


def pcoc(counts: ResponseCounts) -> np.ndarray:
    """E / O of every field value, float64, NaN without responses; overall: of `counts.sum()`."""
    return ratio(counts.expected_responses, counts.responses)


def wilson_interval(
    responses: np.ndarray, impressions: np.ndarray, confidence: float = 0.95
) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's interval (1927) of a response rate: low and high, float64, NaN without impressions.

    Args:
        responses: O, any shape.
        impressions: n, same shape.
        confidence: share of intervals that hold the true rate, in (0, 1).
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate = ratio(responses, impressions)
    inverse = ratio(np.ones_like(rate), impressions)
    center = rate + z * z * inverse / 2
    half = z * np.sqrt(rate * (1 - rate) * inverse + (z * inverse / 2) ** 2)
    scale = 1 + z * z * inverse
    low = np.where(rate == 0, 0.0, np.maximum(center - half, 0) / scale)
    high = np.where(rate == 1, 1.0, np.minimum((center + half) / scale, 1))
    return low, high


def pcoc_band(counts: ResponseCounts, confidence: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Low and high PCOC of every field value, from Wilson's interval of its observed rate.

    The band is E / (n · high rate) … E / (n · low rate): a PCOC of 1 lies inside where the
    predictions can be true. Without responses it has no upper end (inf); without impressions it is
    NaN.
    """
    low, high = wilson_interval(counts.responses, counts.impressions, confidence)
    expected_rate = ratio(counts.expected_responses, counts.impressions)
    unbounded = np.where(np.isnan(low), np.nan, np.inf)
    upper = np.divide(expected_rate, low, out=unbounded, where=low > 0)
    return ratio(expected_rate, high), upper


@dataclass(frozen=True)
class FieldRce:
    """Field-RCE and what it leaves out.

    Attributes:
        value: Field-RCE over the values it counts; NaN if it counts none.
        coverage: share of all impressions those values hold.
        values: how many it counts.
        values_left_out: how many have impressions and are not counted.
        absolute_error_left_out: Σ |E − O| over those, in responses.
    """

    value: float
    coverage: float
    values: int
    values_left_out: int
    absolute_error_left_out: float


def field_rce(counts: ResponseCounts) -> FieldRce:
    """Field-RCE (see `field_rce_terms`), with the values it leaves out beside it.

    Args:
        counts: shape [V].
    """
    counted = counts.responses > 0
    left_out = ~counted & (counts.impressions > 0)
    missed = np.abs(counts.expected_responses - counts.responses)[left_out].sum()
    return FieldRce(
        value=float(field_rce_terms(counts.take(counted)).ratio()),
        coverage=float(ratio(counts.impressions[counted].sum(), counts.impressions.sum())),
        values=int(counted.sum()),
        values_left_out=int(left_out.sum()),
        absolute_error_left_out=float(missed),
    )


def noise_floor(
    terms: Callable[[ResponseCounts], Terms], counts: ResponseCounts, draws: int, seed: int
) -> float:
    """A metric that label noise alone would give: labels drawn from the calibrated probabilities.

    A method cannot be expected below its floor on a test set of this size, and at it only if its
    probabilities are the true ones. A cell's responses are drawn from the binomial with mean E and
    the number of trials that brings its variance next to Σ impressions · p(1 − p), so rows are not
    needed. Of cells of single days this holds for rolling forecasts too: each is drawn given the
    days before it.

    Args:
        terms: the metric, of counts of shape [cells].
        counts: any shape; each entry is a cell. Responses are not read.
        draws: number of simulated test sets, whose metric is averaged.
        seed: of the draws.

    Returns:
        The mean, NaN where the metric of no drawn test set is defined.
    """
    cells = counts.reshape(-1)
    cells = cells.take(cells.impressions > 0)
    generator = np.random.default_rng(seed)
    trials, chance = _matching_binomials(cells)
    drawn = [
        float(terms(replace(cells, responses=generator.binomial(trials, chance))).ratio())
        for _ in range(draws)
    ]
    defined = [value for value in drawn if not np.isnan(value)]
    return float(np.mean(defined)) if defined else float("nan")


def _matching_binomials(counts: ResponseCounts) -> tuple[np.ndarray, np.ndarray]:
    """Trials and chance of mean E exactly and variance V nearly: trials = E² / (E − V), rounded."""
    expected = counts.expected_responses
    sum_of_squares = np.maximum(expected - counts.expected_variance, expected**2 / 2**40)
    trials = np.divide(expected**2, sum_of_squares, out=np.zeros_like(expected), where=expected > 0)
    trials = np.maximum(np.ceil(expected), np.rint(trials)).clip(min=1)
    return trials.astype(np.int64), np.minimum(expected / trials, 1.0)


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
