"""Methods against one another on the same test rows: gains, what counts as one, the report."""

from dataclasses import asdict
from typing import Any

from pipeline.metrics.calibration import pcoc, well_observed
from pipeline.metrics.significance import (
    MIN_DAYS,
    USUAL,
    Interval,
    Resampling,
    TTest,
    gain_interval,
    paired_t_test,
)
from pipeline.metrics.summary import (
    STATISTICS,
    Measurement,
    summarise,
    summarise_well_observed,
)

MAX_PCOC_DISTANCE = 0.03
"""A Field-RCE gain counts only with a PCOC this near to empirical-Bayes Platt's (relative)."""


def gains(
    method: Measurement, reference: Measurement, resampling: Resampling = USUAL
) -> dict[str, Interval]:
    """The reference's metric minus the method's: `logloss`, `field_deviance`, `field_rce`.

    Positive is better; each with its paired interval (see `gain_interval`).
    """
    return {
        name: gain_interval(statistic, method.counts, reference.counts, resampling)
        for name, statistic in STATISTICS.items()
    }


def field_rce_gain_counts(
    gained: dict[str, Interval], method: Measurement, anchor: Measurement
) -> bool:
    """Whether a Field-RCE gain may be claimed: it is one, it costs no deviance, PCOC stays near.

    Field-RCE can be gained by predicting wrongly, so the gain counts only where field deviance is
    not worse and PCOC is within MAX_PCOC_DISTANCE of that of `anchor` (empirical-Bayes Platt).
    """
    own, other = (float(pcoc(m.counts.sum())) for m in (method, anchor))
    return (
        gained["field_rce"].low > 0
        and gained["field_deviance"].value >= 0
        and abs(own / other - 1) <= MAX_PCOC_DISTANCE
    )


def t_tests(method: Measurement, reference: Measurement) -> dict[str, TTest]:
    """The paper's paired t-test over days for each metric that has an interval."""
    return {
        name: paired_t_test(statistic, method.counts, reference.counts)
        for name, statistic in STATISTICS.items()
    }


def compare(
    measured: dict[str, Measurement],
    resampling: Resampling = USUAL,
    *,
    reference: str = "uncalibrated",
    fixed: str = "isotonic",
    anchor: str = "eb_platt",
) -> dict[str, Any]:
    """What the evaluation report says of several methods on the same test rows.

    Args:
        measured: by method; `reference`, `fixed` and `anchor` are among them.
        resampling: how intervals are made.
        reference: the method that gains are taken against.
        fixed: the method whose expected responses choose the well-observed values, for all methods.
        anchor: the method whose PCOC a Field-RCE gain must stay near to count.

    Returns:
        `methods`: `summarise` of each; `gains`: of each but the reference, by metric, `value`,
        `low`, `high`, `over`, `days`, and for Field-RCE whether it `counts`; `well_observed`:
        Field-RCE over the well-observed values of each; `t_tests`: over days, of each but the
        reference; `truth`: of each, by metric, in simulated logs; `claim_over_days`: whether the
        days are enough to speak of other days.
    """
    among = well_observed(measured[fixed].counts.sum(axis=0))
    base = measured[reference]
    others = {name: method for name, method in measured.items() if name != reference}
    return {
        "methods": {name: summarise(m, resampling) for name, m in measured.items()},
        "gains": {
            name: _gains_with_rule(m, base, measured[anchor], resampling)
            for name, m in others.items()
        },
        "well_observed": {
            name: summarise_well_observed(m, among, resampling) for name, m in measured.items()
        },
        "t_tests": {
            name: {metric: asdict(test) for metric, test in t_tests(m, base).items()}
            for name, m in others.items()
        },
        "truth": {
            metric: {name: m.truth[metric] for name, m in measured.items()} for metric in base.truth
        },
        "claim_over_days": base.counts.shape[0] >= MIN_DAYS,
    }


def _gains_with_rule(
    method: Measurement, base: Measurement, anchor: Measurement, resampling: Resampling
) -> dict[str, dict[str, Any]]:
    gained = gains(method, base, resampling)
    columns: dict[str, dict[str, Any]] = {name: asdict(gain) for name, gain in gained.items()}
    columns["field_rce"]["counts"] = field_rce_gain_counts(gained, method, anchor)
    return columns
