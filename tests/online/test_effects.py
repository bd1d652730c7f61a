"""Effects against scipy's tests, and what may not change them."""

import duckdb
import numpy as np
import pandas as pd
import pytest
from scipy.stats import false_discovery_control, ttest_ind

from pipeline.online.analysis import effects, moments, sample_ratio, stratified

METRICS = ("CTR", "eCPM", "revenue per unit")


def drawn_units(seed: int = 0, units: int = 400) -> pd.DataFrame:
    """Sums of units that differ, some treated."""
    rng = np.random.default_rng(seed)
    impressions = rng.poisson(rng.gamma(2, 5, units))
    clicks = rng.binomial(impressions, rng.beta(2, 8, units))
    return pd.DataFrame(
        {
            "cell": rng.integers(0, 2, units),
            "impressions": impressions,
            "clicks": clicks,
            "revenue": clicks * rng.lognormal(0, 0.5, units),
        }
    )


def of_units(frame: pd.DataFrame) -> dict:
    """The moments of a frame's cells."""
    with duckdb.connect() as database:
        columns = [c for c in frame.columns if c != "cell"]
        return moments(database.from_df(frame), columns)


def by_metric(arms) -> dict[str, dict]:
    """Effects by metric."""
    return {row["metric"]: row for row in effects(arms, METRICS)}


def test_a_mean_is_compared_as_by_welch_and_a_ratio_as_by_its_linearised_mean():
    frame = drawn_units()
    found = by_metric(of_units(frame))
    control, treated = frame[frame.cell == 0], frame[frame.cell == 1]
    assert found["revenue per unit"]["pvalue"] == pytest.approx(
        ttest_ind(control.revenue, treated.revenue, equal_var=False).pvalue
    )
    rates = [arm.clicks.sum() / arm.impressions.sum() for arm in (control, treated)]
    linear = [
        rate + (arm.clicks - rate * arm.impressions) / arm.impressions.mean()
        for rate, arm in zip(rates, (control, treated), strict=True)
    ]
    assert found["CTR"]["pvalue"] == pytest.approx(ttest_ind(*linear, equal_var=False).pvalue)
    assert found["CTR"]["effect"] == pytest.approx(rates[1] / rates[0] - 1)


def test_ecpm_is_revenue_of_a_thousand_impressions():
    frame = drawn_units()
    found = by_metric(of_units(frame))["eCPM"]
    control = frame[frame.cell == 0]
    assert found["control"] == pytest.approx(
        1000 * control.revenue.sum() / control.impressions.sum()
    )


def test_adjusted_p_values_are_holms():
    rows = list(by_metric(of_units(drawn_units(1))).values())
    p = np.sort([row["pvalue"] for row in rows])
    holm = np.minimum(np.maximum.accumulate(p * np.arange(len(p), 0, -1)), 1)
    np.testing.assert_allclose(np.sort([row["pvalue_adj"] for row in rows]), holm)
    assert (holm >= false_discovery_control(p) - 1e-12).all()


def test_one_period_is_the_plain_comparison():
    arms = of_units(drawn_units())
    plain, one = by_metric(arms), by_metric(stratified([arms]))
    for name, row in plain.items():
        assert one[name] == {"metric": name} | {
            key: pytest.approx(value) for key, value in row.items() if key != "metric"
        }


def test_scaling_the_money_changes_no_relative_effect():
    frame = drawn_units()
    plain = by_metric(of_units(frame))
    scaled = by_metric(of_units(frame.assign(revenue=7 * frame.revenue)))
    for name in ("eCPM", "revenue per unit"):
        for key in ("effect", "low", "high", "pvalue"):
            assert scaled[name][key] == pytest.approx(plain[name][key])


def test_swapping_the_arms_inverts_the_ratio_and_its_interval():
    frame = drawn_units()
    plain = by_metric(of_units(frame))["CTR"]
    other = by_metric(of_units(frame.assign(cell=1 - frame.cell)))["CTR"]
    assert 1 + other["effect"] == pytest.approx(1 / (1 + plain["effect"]))
    assert 1 + other["low"] == pytest.approx(1 / (1 + plain["high"]))


def test_a_share_that_follows_the_level_is_no_effect_within_periods():
    """Simpson's paradox: later units click more and are treated more often."""
    frame = drawn_units(2, 4000)
    late = np.arange(len(frame)) % 2
    rng = np.random.default_rng(0)
    treated = (rng.random(len(frame)) < np.where(late, 0.5, 0.1)).astype(int)
    frame = frame.assign(clicks=frame.clicks * (1 + 2 * late), cell=treated)
    pooled = by_metric(of_units(frame))["CTR"]
    cells = of_units(frame.assign(cell=2 * late + treated))
    within = by_metric(stratified([{0: cells[0], 1: cells[1]}, {0: cells[2], 1: cells[3]}]))["CTR"]
    assert pooled["low"] > 0
    assert within["low"] < 0 < within["high"]


@pytest.mark.parametrize("price", [0.0, 0.002, 0.7])
def test_a_metric_that_no_unit_differs_in_is_undefined_and_leaves_the_others_as_they_are(price):
    frame = drawn_units()
    found = by_metric(of_units(frame.assign(revenue=price * frame.impressions)))
    assert found["eCPM"] == {"metric": "eCPM", "effect": None}
    compared = [row["metric"] for row in found.values() if row["effect"] is not None]
    assert compared == (["CTR", "revenue per unit"] if price else ["CTR"])
    assert found["CTR"]["pvalue"] == pytest.approx(by_metric(of_units(frame))["CTR"]["pvalue"])


def test_a_sample_ratio_is_held_against_the_planned_share():
    arms = of_units(drawn_units(0, 4000))
    assert sample_ratio(arms, 0.5) > 0.001
    assert sample_ratio(arms, 0.4) < 0.001
