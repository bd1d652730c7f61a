"""Single days decide: paying past errors back wins totals over days, and never days."""

import numpy as np
import pytest
from scipy.special import expit, logit

from pipeline.formats.scores import Scores
from pipeline.metrics.calibration import deviance_terms, log_loss_terms, noise_floor, pcoc_terms
from pipeline.metrics.counts import ResponseCounts
from pipeline.metrics.significance import (
    Resampling,
    field_value_interval,
    gain_interval,
    over_days,
)
from pipeline.metrics.summary import (
    DECIDING,
    few_days_pcoc,
    measure,
    overall_pcoc,
    pcoc_intervals,
    summarise,
)

DAYS, VALUES = 28, 40
DAILY = DECIDING["daily_field_deviance"]


def counts_of(impressions, responses, chance):
    """Counts of one shape [days, V] where every impression has its cell's probability."""
    loss = -(responses * np.log(chance) + (impressions - responses) * np.log1p(-chance))
    expected = impressions * chance
    return ResponseCounts(impressions, responses, expected, expected * (1 - chance), loss)


def true_rates(seed):
    """Impressions, responses and true rates [days, V] of a log whose rates stay as they are."""
    rng = np.random.default_rng(seed)
    impressions = rng.poisson(400 * rng.pareto(2, VALUES) + 200, (DAYS, VALUES))
    rate = np.tile(expit(rng.normal(-3, 0.7, VALUES)), (DAYS, 1))
    return impressions, rng.binomial(impressions, rate), rate


def paying_back(impressions, responses, chance, share=0.3):
    """The forecasts of a controller that adds a share of each value's debt to its next day."""
    debt, paid = np.zeros(VALUES), []
    for shown, came, p in zip(impressions, responses, chance, strict=True):
        paid.append(np.clip(p + share * debt / np.maximum(shown, 1), p / 5, 5 * p))
        debt += came - shown * paid[-1]
    return np.array(paid)


def shifted(chance, by):
    """Probabilities whose log-odds are off by the same everywhere."""
    return expit(logit(chance) + by)


def pooled_and_deciding(counts):
    """Deviance of the days' totals, and the two metrics that decide."""
    deciding = [float(over_days(s, counts).ratio()) for s in DECIDING.values()]
    return float(deviance_terms(counts.sum(axis=0)).ratio()), deciding


def test_what_decides_never_rewards_paying_back_past_errors_of_true_probabilities():
    pooled_wins = 0
    for seed in range(50):
        impressions, responses, rate = true_rates(seed)
        paid = paying_back(impressions, responses, rate)
        pooled, deciding = pooled_and_deciding(counts_of(impressions, responses, rate))
        gamed, worse = pooled_and_deciding(counts_of(impressions, responses, paid))
        pooled_wins += gamed < pooled
        assert all(with_it > true for with_it, true in zip(worse, deciding, strict=True))
    assert pooled_wins == 50


def test_the_daily_deviance_is_that_of_single_days_added_up():
    impressions, responses, rate = true_rates(1)
    counts = counts_of(impressions, responses, shifted(rate, 0.1))
    parts = [
        2 * (o * np.log(o / e) if o else 0.0) - 2 * (o - e)
        for o, e in zip(responses.ravel(), counts.expected_responses.ravel(), strict=True)
    ]
    expected = sum(parts) / responses.sum()
    interval = field_value_interval(DAILY, counts)
    assert interval.value == pytest.approx(expected)
    assert interval.low < interval.value < interval.high


def test_days_that_are_left_out_together_are_one_unit():
    """As if they were one day, where a metric is of the days' totals."""
    impressions, responses, rate = true_rates(2)
    better, worse = (counts_of(impressions, responses, shifted(rate, by)) for by in (0.02, 0.2))
    both = [c.reshape(DAYS // 2, 2, VALUES).sum(axis=1) for c in (better, worse)]
    gain = gain_interval(log_loss_terms, better, worse, Resampling(block_days=2))
    merged = gain_interval(log_loss_terms, *both)
    assert (gain.low, gain.high) == pytest.approx((merged.low, merged.high))
    assert (gain.days, merged.days) == (DAYS, DAYS // 2)


def test_few_blocks_make_no_claim_about_other_days():
    impressions, responses, rate = true_rates(3)
    counts = counts_of(impressions, responses, rate)
    assert field_value_interval(pcoc_terms, counts, Resampling(block_days=7)).over == "field values"


def test_the_floor_of_the_daily_deviance_is_met_by_true_probabilities_alone():
    """Also by forecasts that follow the days before, as each day is drawn given those."""
    impressions, responses, rate = true_rates(4)
    true, wrong = (counts_of(impressions, responses, shifted(rate, by)) for by in (0.0, 0.3))
    floors = [noise_floor(deviance_terms, counts, 50, 1) for counts in (true, wrong)]
    values = [field_value_interval(DAILY, counts).value for counts in (true, wrong)]
    assert values[0] == pytest.approx(floors[0], rel=0.1)
    assert values[1] > 1.2 * floors[1]


def test_the_interval_of_pcoc_is_never_surer_than_days_or_labels_are():
    impressions, responses, rate = true_rates(5)
    shock = np.random.default_rng(5).normal(0, 0.4, (DAYS, 1))
    calm, shaken = (counts_of(impressions, responses, p) for p in (rate, shifted(rate, shock)))
    widths = []
    for counts in (calm, shaken):
        value, low, high = pcoc_intervals(counts.sum(axis=1).reshape(-1, 1))
        total = counts.sum()
        assert value[0] == pytest.approx(total.expected_responses / total.responses)
        assert low[0] < value[0] < high[0]
        widths.append(high[0] - low[0])
    assert widths[1] > 2 * widths[0]


def test_a_few_days_are_as_unsure_as_days_before_them_are_apart():
    """95 % intervals of three days hold the truth, with shocks or without; labels alone do not."""
    rng, held = np.random.default_rng(6), []
    expected = np.array([900.0, 1000.0, 500.0] + [800.0] * 14)[:, None]
    for apart in (0.0, 0.3):
        for _ in range(200):
            responses = rng.poisson(expected * np.exp(rng.normal(0, apart, (17, 1))))
            days = ResponseCounts(expected * 10, responses, expected, 0.9 * expected, expected)
            few, before = (
                days.each(lambda c, part=part: c[part]) for part in (slice(3), slice(3, 17))
            )
            of_labels, of_days = overall_pcoc(few), few_days_pcoc(few, before)
            held.append([of["low"] < 1 < of["high"] for of in (of_labels, of_days)])
    calm, shaken = np.array(held).reshape(2, 200, 2).mean(axis=1)
    assert calm[1] >= 0.93
    assert shaken[0] < 0.5
    assert shaken[1] >= 0.9
    many = few_days_pcoc(before, before)
    assert np.isnan([*many.values()]).all()


def test_an_increasing_map_for_each_value_and_day_keeps_the_ranking_of_days(rng):
    """It need not keep the ranking of a value's rows of several days, as levels move in between."""
    n = 3000
    logit, day = rng.normal(-1, 1, n).astype(np.float32), rng.integers(0, 6, n).astype(np.int32)
    ones, value = np.ones(n, np.int32), rng.integers(0, 4, n).astype(np.int32)
    responses = (rng.random(n) < expit(logit)).astype(np.int32)
    rows = Scores(logit, value, ones, responses, day, 4)
    moved = logit + rng.normal(0, 1, (6, 4))[day, value]
    before, after = (
        summarise(measure(each, rows), Resampling(0.95, 50)) for each in (logit, moved)
    )
    assert after["daily_field_auc"] == pytest.approx(before["daily_field_auc"], abs=1e-12)
    assert after["field_auc"] < before["field_auc"] - 0.02
