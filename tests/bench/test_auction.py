"""Simulated auctions: the truth wins without budgets, money adds up, and a slow oracle agrees."""

import numpy as np
import pytest

from bench.auction import FORMS, SHADING, Auctions, hold, share_of_gain


def drawn(seed: int = 0, n: int = 300, advertisers: int = 20) -> tuple[Auctions, np.ndarray]:
    """Auctions and wrong predictions."""
    rng = np.random.default_rng(seed)
    who = np.array([rng.permutation(advertisers)[:4] for _ in range(n)])
    truth = rng.uniform(0.01, 0.2, who.shape)
    wrong = np.clip(truth * rng.lognormal(0, 0.7, who.shape), 1e-4, 0.9)
    return Auctions(who, truth, rng.lognormal(0, 0.5, advertisers)), wrong


ENDLESS = np.full(20, np.inf)


@pytest.mark.parametrize("form", FORMS)
def test_without_budgets_nothing_has_more_welfare_than_the_truth(form):
    for seed in range(10):
        auctions, wrong = drawn(seed)
        best = hold(auctions, auctions.truth, ENDLESS, form).welfare
        assert hold(auctions, wrong, ENDLESS, form).welfare < best


@pytest.mark.parametrize("form", FORMS)
def test_a_common_factor_of_all_predictions_changes_no_winner(form):
    auctions, wrong = drawn()
    one, half = (hold(auctions, wrong * f, ENDLESS, form) for f in (1.0, 0.5))
    assert half.welfare == pytest.approx(one.welfare)
    np.testing.assert_allclose(half.spent, one.spent)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("block", [1, 10])
def test_a_slow_oracle_holds_the_same_auctions(form, block):
    auctions, wrong = drawn(3)
    budget = np.random.default_rng(1).uniform(0, 0.3, 20)
    bid = auctions.value * (SHADING if form == "first-price" else 1)
    spent, welfare = [0.0] * 20, 0.0
    for i, (who, p, true) in enumerate(
        zip(auctions.advertiser, wrong, auctions.truth, strict=True)
    ):
        if i % block == 0:
            there = {z for z in range(20) if spent[z] < budget[z]}
        ranked = sorted(
            ((bid[z] * q, z, q, r) for z, q, r in zip(who, p, true, strict=True) if z in there),
            reverse=True,
        )
        if ranked:
            _, z, q, r = ranked[0]
            second = ranked[1][0] if len(ranked) > 1 else 0.0
            spent[z] += r * (bid[z] if form == "first-price" else second / q)
            welfare += r * auctions.value[z]
    found = hold(auctions, wrong, budget, form, block)
    assert found.welfare == pytest.approx(welfare)
    np.testing.assert_allclose(found.spent, spent)


@pytest.mark.parametrize("form", FORMS)
def test_welfare_is_revenue_and_surplus_and_delivery_is_a_share(form):
    auctions, wrong = drawn()
    budget = np.full(20, 0.2)
    found = hold(auctions, wrong, budget, form).measures(budget)
    assert found["welfare"] == pytest.approx(found["revenue"] + found["surplus"])
    assert 0 < found["delivery"] <= 1


def test_second_prices_by_the_truth_leave_every_winner_a_surplus():
    auctions, _ = drawn()
    found = hold(auctions, auctions.truth, ENDLESS, "second-price")
    assert found.spent.sum() < found.welfare


def test_the_truth_has_all_of_the_gain_and_the_base_none_of_it():
    rng = np.random.default_rng(0)
    base = rng.uniform(1, 2, 8)
    truth = base + rng.uniform(0.1, 0.2, 8)
    assert share_of_gain(np.column_stack([truth, base, truth])) == pytest.approx((1, 1, 1))
    assert share_of_gain(np.column_stack([base, base, truth])) == pytest.approx((0, 0, 0))
    value, low, high = share_of_gain(np.column_stack([(base + truth) / 2 + 0.01, base, truth]))
    assert low < value < high
